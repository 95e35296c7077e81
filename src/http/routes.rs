//! Paths to endpoints.

use bytes::Bytes;
use http::{Method, Request, StatusCode};

use super::query::Query;
use super::reply::{self, Reply};
use super::{cmdline, profile, symbol};

const GET: &[Method] = &[Method::GET, Method::HEAD];
const GET_AND_POST: &[Method] = &[Method::GET, Method::HEAD, Method::POST];

/// Answers a request whose body is here.
pub(super) async fn answer(request: Request<Bytes>) -> Reply {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let (allowed, endpoint) = match path {
        "/pprof/cmdline" => (GET, Endpoint::Cmdline),
        "/pprof/profile" => (GET, Endpoint::Profile),
        "/pprof/symbol" => (GET_AND_POST, Endpoint::Symbol),
        _ => {
            return reply::error(
                StatusCode::NOT_FOUND,
                "there is no such endpoint; there are /pprof/profile, /pprof/symbol and /pprof/cmdline",
            );
        }
    };
    if !allowed.contains(&head.method) {
        return reply::wrong_method(allowed);
    }
    match endpoint {
        Endpoint::Cmdline => cmdline::answer(),
        Endpoint::Symbol => symbol::answer(&head.method, body).await,
        Endpoint::Profile => {
            let query = Query::of(head.uri.query().unwrap_or_default());
            profile::answer(&head.method, &query).await
        }
    }
}

/// What a path stands for.
#[derive(Clone, Copy)]
enum Endpoint {
    Cmdline,
    Profile,
    Symbol,
}
