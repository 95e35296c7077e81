//! How the endpoints are served.

use std::net::ToSocketAddrs;

use axum::Router;

use super::admission::{self, Admission, Token};
use super::endpoints::Endpoints;
use super::server::{self, Server};
use crate::error::Result;

/// How the endpoints are served: below which path, and to whom.
///
/// ```no_run
/// # fn main() -> sigprof::Result<()> {
/// let _server = sigprof::http::Options::new()
///     .token(std::env::var("PROFILES_TOKEN").unwrap_or_default())
///     .serve("0.0.0.0:6060")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is served before `serve`, `router` or `endpoints`"]
pub struct Options {
    pub(super) prefix: String,
    pub(super) token: Option<Token>,
    pub(super) hosts: Vec<String>,
    pub(super) is_remote_allowed: bool,
    pub(super) max_windows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            token: None,
            hosts: Vec::new(),
            is_remote_allowed: false,
            max_windows: 8,
        }
    }
}

impl Options {
    /// What [`serve`](super::serve) and [`router`](super::router()) have: no prefix, no token, 8
    /// windows.
    pub fn new() -> Self {
        Self::default()
    }

    /// A path that all endpoints are below: with `/internal`, the profile is at
    /// `/internal/debug/pprof/profile`. A `/` is put in front of one that has none. It is compared
    /// with what clients send, byte by byte: what URLs have percent-encoded is given so, as in
    /// `/my%20service`. Braces are characters like all others. [`axum::Router`] merges a
    /// path with a `:` or `*` behind a `/` only if its `without_v07_checks` was called.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        let prefix = prefix.as_ref().trim_matches('/');
        self.prefix = match prefix {
            "" => String::new(),
            prefix => format!("/{prefix}"),
        };
        self
    }

    /// What clients must show: as `Authorization: Bearer TOKEN`, or as the password of any user, as
    /// `go tool pprof http://user:TOKEN@host/…` sends it. Without encryption whoever sees the
    /// traffic learns the token. An empty token is nobody's: [`serve`](Self::serve) refuses it, and
    /// an application answers no request.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Token::new(token.into()));
        self
    }

    /// A name that requests may be sent to, whichever port it is given with. Where no name is
    /// given, a [server](Self::serve) without a token answers requests that were sent to an address
    /// or to `localhost`, so that no page of the web can have a browser on this machine ask in its
    /// name; and in an application all are answered.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(admission::name_of(&host.into()).into());
        self
    }

    /// Lets [`serve`](Self::serve) listen on an address that other machines can reach, without a
    /// token: whoever can reach it sees the program's command line and what the program does, and
    /// can have it recorded without end.
    pub fn allow_remote(mut self) -> Self {
        self.is_remote_allowed = true;
        self
    }

    /// How many windows may be open at once; by default 8. Further ones are refused, with the
    /// status 503.
    pub fn max_windows(mut self, windows: usize) -> Self {
        self.max_windows = windows;
        self
    }

    /// Serves the [endpoints](super) at an address, on a thread of its own, until the answer is
    /// dropped. Port 0 is any that is free: [`Server::local_addr`] says which.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an address that other machines can
    /// reach, where there is neither a [token](Self::token) nor
    /// [`allow_remote`](Self::allow_remote), for none at all, and for an empty token;
    /// [`Os`](crate::ErrorKind::Os) where the system refuses the address or a thread.
    pub fn serve(self, address: impl ToSocketAddrs) -> Result<Server> {
        server::start(&self, address)
    }

    /// The endpoints, to be merged into an application of axum's, as [`router`](super::router()).
    pub fn router<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        self.endpoints().router()
    }

    /// The endpoints as a tower service.
    pub fn endpoints(self) -> Endpoints {
        let admission = Admission::of_application(&self);
        Endpoints::of(&self, admission)
    }
}
