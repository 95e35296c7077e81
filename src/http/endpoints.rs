//! The endpoints as a tower service, for whatever a program serves HTTP with.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use tokio::time::timeout;
use tower_service::Service;

use super::reply::{self, Reply};
use super::routes;

/// How long a client may take to send a request's body.
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of a request's body: 200,000 addresses.
const MAX_BODY: usize = 4 << 20;

/// The [endpoints](super) as a tower service, by the whole path of a request: `/pprof/…` and
/// `/debug/pprof/…`.
///
/// Work that takes time is done on threads of its own. Bodies of requests are waited for by tokio's
/// clock: the runtime must have its time enabled, as `#[tokio::main]` does.
#[derive(Clone, Debug, Default)]
pub struct Endpoints(());

impl Endpoints {
    /// All of them.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<B> Service<Request<B>> for Endpoints
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answer {
        Answer(Box::pin(answer(request)))
    }
}

/// The answer to a request, to come. Dropping it ends what is done for it.
pub struct Answer(Pin<Box<dyn Future<Output = Reply> + Send>>);

impl Future for Answer {
    type Output = Result<Reply, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context).map(Ok)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// Answers a request when its body is here.
async fn answer<B>(request: Request<B>) -> Reply
where
    B: Body + Send,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let body = timeout(SENT_WITHIN, Limited::new(body, MAX_BODY).collect()).await;
    match body {
        Ok(Ok(body)) => routes::answer(&head, body.to_bytes()).await,
        Ok(Err(error)) if error.is::<LengthLimitError>() => reply::error(
            StatusCode::PAYLOAD_TOO_LARGE,
            format_args!("the body must have at most {MAX_BODY} bytes"),
        ),
        Ok(Err(error)) => reply::error(
            StatusCode::BAD_REQUEST,
            format_args!("the body cannot be read: {error}"),
        ),
        Err(_) => reply::error(
            StatusCode::REQUEST_TIMEOUT,
            format_args!("the body must be here within {SENT_WITHIN:?}"),
        ),
    }
}
