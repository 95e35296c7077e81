//! Who is answered: whoever knows the token, by a name that is this server's.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, StatusCode};
use subtle::ConstantTimeEq;

use super::options::Options;
use super::reply::{self, Reply};

/// What a request must show.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    token: Option<Token>,
    /// The names that requests may be sent to, besides addresses and those of this machine.
    hosts: Option<Vec<String>>,
}

/// What a client must know. Not shown where it is printed.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    pub(super) fn new(token: String) -> Self {
        Self(token)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is the token, in a time that says nothing of how much of it is right.
    fn is(&self, given: &[u8]) -> bool {
        !self.is_empty() && self.0.as_bytes().ct_eq(given).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Admission {
    /// Of a server that is reached by names that its program does not know unless they were given.
    pub(super) fn of_application(options: &Options) -> Self {
        let hosts = &options.hosts;
        Self {
            token: options.token.clone(),
            hosts: (!hosts.is_empty()).then(|| hosts.clone()),
        }
    }

    /// Of a server that is reached by addresses. A page in a browser on this machine can reach it,
    /// too: by a name of its own that it has lead to this machine (DNS rebinding). Such a page does
    /// not know the token.
    pub(super) fn of_server(options: &Options) -> Self {
        let mut admission = Self::of_application(options);
        if admission.token.is_none() {
            admission.hosts.get_or_insert_default();
        }
        admission
    }

    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The answer to a request that is not answered.
    pub(super) fn refusal(&self, head: &Parts) -> Option<Reply> {
        if let Some(hosts) = &self.hosts
            && let Err(sentence) = check_host(head, hosts)
        {
            return Some(reply::error(StatusCode::FORBIDDEN, sentence));
        }
        if self.hosts.is_some() && is_of_another_site(&head.headers) {
            return Some(reply::error(
                StatusCode::FORBIDDEN,
                "a page of another site asked for this",
            ));
        }
        let token = self.token.as_ref()?;
        if given_token(&head.headers).is_some_and(|given| token.is(&given)) {
            return None;
        }
        Some(reply::unauthorized(
            "this server wants its token: as `Authorization: Bearer TOKEN`, or as the password of any user \
             (http://user:TOKEN@host/…)",
        ))
    }
}

/// The token that a request shows, if any. As a password too, which is all that `go tool pprof` and
/// browsers can send.
fn given_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let space = value.iter().position(|&byte| byte == b' ')?;
    let (scheme, given) = (&value[..space], value[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(given.into());
    }
    let pair = (scheme.eq_ignore_ascii_case(b"basic")).then(|| STANDARD.decode(given).ok())??;
    let colon = pair.iter().position(|&byte| byte == b':')?;
    Some(pair[colon + 1..].into())
}

/// Whether a browser asks for what is to be part of a page of another site, such as a picture. A
/// link on such a page may be followed, which is the user's will.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let is = |name, value| headers.get(name).is_some_and(|given| given == value);
    is("sec-fetch-site", "cross-site") && !is("sec-fetch-dest", "document")
}

/// The name of a host that is given with a port perhaps, and with the root's dot at its end.
pub(super) fn name_of(host: &str) -> &str {
    let (name, _port) = host.split_once(':').unwrap_or((host, ""));
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether the name that a request was sent to is an address, this machine, or one of these.
///
/// # Errors
///
/// A sentence, where it is not.
fn check_host(head: &Parts, hosts: &[String]) -> Result<(), String> {
    let mut given = head.headers.get_all(HOST).iter();
    let (of_header, another) = (given.next(), given.next());
    let foreign = |name: &str| {
        format!(
            "`{name:.80}` is no name of this server's; `http::Options::allow_host` makes it one"
        )
    };
    if another.is_some() {
        return Err("the request has two Host headers, and must have one".into());
    }
    // A name in the request's line is what counts (RFC 9112, 3.2.2). Browsers always send one.
    let authority = match (head.uri.authority(), of_header) {
        (Some(authority), _) => authority.clone(),
        (None, Some(host)) if host.is_empty() => {
            return Err("the request has an empty Host header, and must have a name there".into());
        }
        (None, Some(host)) => Authority::try_from(host.as_bytes())
            .map_err(|_| foreign(&host.as_bytes().escape_ascii().to_string()))?,
        (None, None) => return Ok(()),
    };
    if authority.as_str().contains('@') {
        return Err(foreign(authority.as_str()));
    }
    let host = authority.host();
    let name = host.strip_suffix('.').unwrap_or(host);
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let is_address = address.unwrap_or(name).parse::<IpAddr>().is_ok();
    let is_this_machine = name.eq_ignore_ascii_case("localhost");
    let is_allowed = || hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
    match is_address || is_this_machine || is_allowed() {
        true => Ok(()),
        false => Err(foreign(name)),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let request = Request::builder().uri(uri);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.body(()).unwrap().into_parts().0
    }

    fn status(admission: &Admission, uri: &str, headers: &[(&str, &str)]) -> u16 {
        let refusal = admission.refusal(&head(uri, headers));
        refusal.map_or(200, |reply| reply.status().as_u16())
    }

    #[test]
    fn a_server_answers_by_addresses_and_by_names_that_are_its_own() {
        let options = Options::new()
            .allow_host("profiles.example")
            .allow_host("ported.example.:6060");
        let admission = Admission::of_server(&options);
        for host in [
            "127.0.0.1:6060",
            "192.168.0.1",
            "[::1]:6060",
            "localhost:6060",
            "LOCALHOST.",
            "profiles.example",
            "Profiles.Example.:80",
            "ported.example",
            "ported.example:6060",
        ] {
            assert_eq!(status(&admission, "/", &[("host", host)]), 200, "{host}");
        }
        assert_eq!(status(&admission, "/", &[]), 200, "HTTP/1.0");
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "a b",
            "evil@localhost",
        ] {
            assert_eq!(status(&admission, "/", &[("host", host)]), 403, "{host}");
        }
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(status(&admission, "/", &two), 403);
        let sentence = |headers: &[(&str, &str)]| {
            let head = head("/", headers);
            check_host(&head, &[]).unwrap_err()
        };
        assert!(sentence(&two).contains("two Host headers"));
        assert!(sentence(&[("host", "")]).contains("empty"));
        assert!(sentence(&[("host", "a b")]).contains("`a b`"));
        let absolute = status(&admission, "http://evil.example/", &[("host", "localhost")]);
        assert_eq!(absolute, 403);
        let application = Admission::of_application(&Options::new());
        assert_eq!(status(&application, "/", &[("host", "api.example")]), 200);
    }

    #[test]
    fn no_page_of_another_site_has_a_browser_ask() {
        let admission = Admission::of_server(&Options::new());
        for (site, destination, answer) in [
            ("none", "document", 200),
            ("same-origin", "document", 200),
            ("cross-site", "document", 200),
            ("cross-site", "image", 403),
            ("cross-site", "iframe", 403),
            ("cross-site", "empty", 403),
        ] {
            let headers = [
                ("host", "localhost:6060"),
                ("sec-fetch-site", site),
                ("sec-fetch-dest", destination),
            ];
            let status = status(&admission, "/", &headers);
            assert_eq!(status, answer, "{site}, {destination}");
        }
    }

    #[test]
    fn a_token_is_shown_as_such_or_as_a_password() {
        let admission = Admission::of_server(&Options::new().token("s3cret:"));
        let shown = |value: &str| status(&admission, "/", &[("authorization", value)]);
        assert_eq!(shown("Bearer s3cret:"), 200);
        assert_eq!(shown("bearer  s3cret:"), 200);
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        assert_eq!(shown(&basic("user:s3cret:")), 200);
        assert_eq!(shown(&basic(":s3cret:")), 200);
        for wrong in [
            "Bearer s3cret",
            "Bearer s3cret::",
            "Bearer ",
            "Bearer",
            "s3cret:",
            "Basic s3cret:",
            "Digest s3cret:",
            &basic("s3cret:"),
            &basic("user:S3cret:"),
        ] {
            assert_eq!(shown(wrong), 401, "{wrong}");
        }
        assert_eq!(status(&admission, "/", &[]), 401);
        // Clients send what is no ASCII as it is, which is UTF-8 where tokens are texts.
        let foreign = Admission::of_server(&Options::new().token("schlüssel"));
        let basic = basic("user:schlüssel");
        for value in ["Bearer schlüssel".as_bytes(), basic.as_bytes()] {
            let mut head = head("/", &[]);
            let value = HeaderValue::from_bytes(value).unwrap();
            head.headers.insert(AUTHORIZATION, value);
            assert!(foreign.refusal(&head).is_none(), "{head:?}");
        }
        let empty = Admission::of_application(&Options::new().token(""));
        for nothing in ["Bearer ", "Basic Og=="] {
            let headers = [("authorization", nothing)];
            assert_eq!(status(&empty, "/", &headers), 401);
        }
        // Who knows it may call the server what they like.
        let headers = [("host", "any.example"), ("authorization", "Bearer s3cret:")];
        assert_eq!(status(&admission, "/", &headers), 200);
        assert!(!format!("{admission:?}").contains("s3cret"));
    }
}
