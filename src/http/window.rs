//! Answers that take the time that a client asked for.

use std::sync::Arc;

use http::request::Parts;
use http::{StatusCode, Version};

use super::body::Body;
use super::limits::{Limits, Permit};
use super::reply::{self, Reply};
use crate::error::{Error, ErrorKind, Result};

const SHUT_DOWN: &str = "the endpoints have been shut down";

/// The right to a window; or the answer to a request that gets none.
pub(super) fn permit(limits: &Limits) -> Result<Permit, Box<Reply>> {
    let refusal = match limits.are_closed() {
        true => reply::error(StatusCode::SERVICE_UNAVAILABLE, SHUT_DOWN),
        false => match limits.window() {
            Some(permit) => return Ok(permit),
            None => reply::busy("as many windows are open as may be at once"),
        },
    };
    Err(Box::new(refusal))
}

/// Answers with this head at once, and with the body when its bytes are there. A client of HTTP/1.0
/// gets both then: it could not tell a body that failed from one that is empty. The window counts
/// as open until the client has taken the body.
pub(super) async fn answer(
    limits: &Arc<Limits>,
    request: &Parts,
    head: Reply,
    permit: Permit,
    bytes: impl Future<Output = Result<Vec<u8>>> + Send + 'static,
) -> Reply {
    let limits = limits.clone();
    let body = async move {
        tokio::select! {
            bytes = bytes => bytes.map(|bytes| limits.body(bytes, permit)),
            () = limits.closed() => Err(Error::new(ErrorKind::Os, SHUT_DOWN)),
        }
    };
    if request.version <= Version::HTTP_10 {
        return match body.await {
            Ok(body) => head.map(|_| body),
            Err(error) => reply::failed(&error),
        };
    }
    head.map(|_| Body::later(body))
}
