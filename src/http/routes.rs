//! Paths to endpoints.

use axum::extract::OriginalUri;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};

#[cfg(feature = "contention")]
use super::contention;
use super::endpoints::Shared;
use super::family::Family;
#[cfg(feature = "heap")]
use super::heap;
use super::limits::Room;
use super::query::Query;
use super::reply::{self, Reply};
use super::{absent, cmdline, index, profile, symbol, threads};

const GET: &[Method] = &[Method::GET, Method::HEAD];
const GET_AND_POST: &[Method] = &[Method::GET, Method::HEAD, Method::POST];

/// The endpoint that a request is for; or the answer to one that is for none.
pub(super) fn find(prefix: &str, head: &Parts) -> Result<Endpoint, Box<Reply>> {
    let path = head.uri.path().strip_prefix(prefix);
    let endpoint = path.and_then(Endpoint::at).ok_or_else(|| {
        Box::new(reply::error(
            StatusCode::NOT_FOUND,
            format_args!(
                "there is no such endpoint; {} lists what there is",
                index_path(prefix, head)
            ),
        ))
    })?;
    let allowed = endpoint.methods();
    match allowed.contains(&head.method) {
        true => Ok(endpoint),
        false => Err(Box::new(reply::wrong_method(allowed))),
    }
}

/// Answers a request whose body is here.
pub(super) async fn answer(
    endpoint: Endpoint,
    shared: &Shared,
    head: &Parts,
    body: Bytes,
    room: Room,
) -> Reply {
    let limits = &shared.limits;
    let query = Query::of(head.uri.query().unwrap_or_default());
    match endpoint {
        Endpoint::IndexIsAt(place) => reply::moved_to(place),
        Endpoint::Index => {
            let path = index_path(&shared.prefix, head);
            index::answer(&head.headers, &path, shared.admission.has_token())
        }
        Endpoint::Cmdline(family) => cmdline::answer(family),
        Endpoint::Symbol if head.method == Method::POST => {
            symbol::answer(limits, &shared.symbols, body, room).await
        }
        // How many there are is nothing that a client looks at, as long as it is not 0.
        Endpoint::Symbol => reply::text("num_symbols: 1\n"),
        Endpoint::Profile(family) => profile::answer(limits, head, family, &query).await,
        Endpoint::Threads(kind) => threads::answer(limits, kind, &query, room).await,
        #[cfg(feature = "heap")]
        Endpoint::Heap(family, kind) => {
            let index = index_path(&shared.prefix, head);
            heap::answer(limits, head, family, kind, &query, &index).await
        }
        #[cfg(feature = "contention")]
        Endpoint::Contention(family, kind) => {
            let index = index_path(&shared.prefix, head);
            contention::answer(limits, head, family, kind, &query, &index).await
        }
        Endpoint::Absent(name) => {
            let why = format!("this version of sigprof records no {name} profile");
            absent::answer(name, &why, &query, &index_path(&shared.prefix, head))
        }
    }
}

/// Where the client of a request finds the index. An application may have put the endpoints below a
/// path of its own.
fn index_path(prefix: &str, head: &Parts) -> String {
    let here = head.uri.path();
    let sent = head.extensions.get::<OriginalUri>();
    let above = sent.and_then(|sent| sent.path().strip_suffix(here));
    format!("{}{prefix}/debug/pprof/", above.unwrap_or_default())
}

/// What a path stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Endpoint {
    Index,
    /// The index is there.
    IndexIsAt(&'static str),
    Cmdline(Family),
    Profile(Family),
    Symbol,
    Threads(&'static str),
    #[cfg(feature = "heap")]
    Heap(Family, heap::Kind),
    #[cfg(feature = "contention")]
    Contention(Family, contention::Kind),
    Absent(&'static str),
}

impl Endpoint {
    fn methods(self) -> &'static [Method] {
        match self {
            Self::Symbol => GET_AND_POST,
            _ => GET,
        }
    }

    /// Whether a request by this method has a body that counts.
    pub(super) fn reads_body(self, method: &Method) -> bool {
        self == Self::Symbol && method == Method::POST
    }

    fn at(path: &str) -> Option<Self> {
        let (family, name) = match path.strip_prefix("/debug/pprof") {
            Some("") => return Some(Self::IndexIsAt("pprof/")),
            Some("/") => return Some(Self::Index),
            Some(rest) => (Family::Go, rest.strip_prefix('/')?),
            None if path == "/" => return Some(Self::IndexIsAt("debug/pprof/")),
            None => (Family::Gperftools, path.strip_prefix("/pprof/")?),
        };
        match name {
            "cmdline" => Some(Self::Cmdline(family)),
            "profile" => Some(Self::Profile(family)),
            "symbol" => Some(Self::Symbol),
            _ => {
                #[cfg(feature = "heap")]
                if let Some(kind) = heap::Kind::of(family, name) {
                    return Some(Self::Heap(family, kind));
                }
                #[cfg(feature = "contention")]
                if let Some(kind) = contention::Kind::of(family, name) {
                    return Some(Self::Contention(family, kind));
                }
                let kind = threads::kind(name).filter(|_| family == Family::Go);
                let absent = || absent::name(family, name).map(Self::Absent);
                kind.map(Self::Threads).or_else(absent)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_whole() {
        assert_eq!(Endpoint::at("/debug/pprof/"), Some(Endpoint::Index));
        let profile = Endpoint::Profile(Family::Gperftools);
        assert_eq!(Endpoint::at("/pprof/profile"), Some(profile));
        for path in [
            "",
            "/pprof",
            "/pprof/",
            "/pprof/profile/",
            "/pprof/goroutine",
            "/debug/pprofile",
            "/debug/pprof//profile",
            "/x/debug/pprof/profile",
        ] {
            assert_eq!(Endpoint::at(path), None, "{path}");
        }
    }
}
