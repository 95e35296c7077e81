//! What is sent back: bodies with the headers that clients and browsers look at.

use std::fmt::Display;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};

use super::body::Body;
use crate::{Error, ErrorKind};

/// An answer.
pub(super) type Reply = Response<Body>;

/// When a client that was refused may ask again, in seconds.
const RETRY_AFTER_S: u64 = 10;
const TEXT: &str = "text/plain; charset=utf-8";

/// A text for people and line-reading clients.
pub(super) fn text(body: impl Into<Bytes>) -> Reply {
    whole(StatusCode::OK, TEXT, body)
}

/// A page for browsers, which runs no code and loads nothing.
pub(super) fn html(body: String) -> Reply {
    let mut reply = whole(StatusCode::OK, "text/html; charset=utf-8", body);
    reply.headers_mut().insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"),
    );
    reply
}

/// What is asked for is elsewhere.
pub(super) fn moved_to(place: &'static str) -> Reply {
    let mut reply = whole(StatusCode::FOUND, TEXT, format!("{place}\n"));
    let headers = reply.headers_mut();
    headers.insert(header::LOCATION, HeaderValue::from_static(place));
    reply
}

/// The head of a file for the client to keep.
pub(super) fn download(name: impl Display) -> Reply {
    let mut reply = whole(StatusCode::OK, "application/octet-stream", "");
    let disposition = format!("attachment; filename=\"{name}\"");
    if let Ok(disposition) = HeaderValue::try_from(disposition) {
        let headers = reply.headers_mut();
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    reply
}

/// A sentence that says what is wrong; the header has `pprof` show it.
pub(super) fn error(status: StatusCode, sentence: impl Display) -> Reply {
    let mut reply = whole(status, TEXT, format!("{sentence}\n"));
    let headers = reply.headers_mut();
    headers.insert("x-go-pprof", HeaderValue::from_static("1"));
    reply
}

/// What cannot be done now, for what is being done; a client can ask again.
pub(super) fn busy(sentence: impl Display) -> Reply {
    let sentence = format_args!("{sentence}; ask again in {RETRY_AFTER_S} seconds");
    let mut reply = error(StatusCode::SERVICE_UNAVAILABLE, sentence);
    let headers = reply.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
    reply
}

/// A request without the token. The header has browsers ask for it.
pub(super) fn unauthorized(sentence: impl Display) -> Reply {
    let mut reply = error(StatusCode::UNAUTHORIZED, sentence);
    let scheme = HeaderValue::from_static("Basic realm=\"profiles\"");
    reply.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    reply
}

/// A request by a method that the path has not.
pub(super) fn wrong_method(allowed: &'static [Method]) -> Reply {
    let list: Vec<&str> = allowed.iter().map(Method::as_str).collect();
    let list = list.join(", ");
    let mut reply = error(
        StatusCode::METHOD_NOT_ALLOWED,
        format_args!("this path is asked for by {list}"),
    );
    if let Ok(list) = HeaderValue::try_from(list) {
        reply.headers_mut().insert(header::ALLOW, list);
    }
    reply
}

/// What the profiler refuses, or fails at.
pub(super) fn failed(failure: &Error) -> Reply {
    match failure.kind() {
        ErrorKind::InvalidInput => error(StatusCode::BAD_REQUEST, failure),
        ErrorKind::AlreadyRunning | ErrorKind::SignalInUse => busy(failure),
        _ => error(StatusCode::INTERNAL_SERVER_ERROR, failure),
    }
}

fn whole(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Body::whole(body));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
