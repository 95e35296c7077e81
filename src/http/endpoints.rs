//! The endpoints as a tower service, for whatever a program serves HTTP with.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::timeout;
use tower_service::Service;

use super::admission::Admission;
use super::body::Body;
use super::limits::{Limits, Room};
use super::options::Options;
use super::reply::{self, Reply};
use super::{router, routes};
use crate::symbolize::Symbols;

/// How long a client may take to send a request's body.
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of a request's body: 200,000 addresses.
const MAX_BODY: usize = 4 << 20;

/// The [endpoints](super) as a tower service, by the whole path of a request: `/pprof/…` and
/// `/debug/pprof/…`. Made by [`Options::endpoints`].
///
/// Work that takes time is done on threads of its own. Bodies of requests are waited for by tokio's
/// clock: the runtime must have its time enabled, as `#[tokio::main]` does.
///
/// Clones share their limits. A forked child that serves makes endpoints of its own: windows that
/// were open at the fork would count as open in the child for ever.
#[derive(Clone, Debug)]
pub struct Endpoints(Arc<Shared>);

/// What the requests to one set of endpoints share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) prefix: String,
    pub(super) admission: Admission,
    pub(super) limits: Arc<Limits>,
    pub(super) symbols: Arc<Symbols>,
}

impl Endpoints {
    pub(super) fn of(options: &Options, admission: Admission) -> Self {
        Self(Arc::new(Shared {
            prefix: options.prefix.clone(),
            admission,
            limits: Arc::new(Limits::new(options.max_windows)),
            symbols: Arc::default(),
        }))
    }

    /// The endpoints, to be merged into an application of axum's, as [`router`](super::router()).
    pub fn router<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        router::of(&self.0.prefix, self)
    }

    /// Ends all windows that are open, whose clients see their connections closed, and refuses
    /// further ones with the status 503; all else is answered as before. For a server that ends
    /// when all requests have been answered, which would wait for windows up to five minutes:
    ///
    /// ```no_run
    /// # async fn application() -> std::io::Result<()> {
    /// let profiles = sigprof::http::Options::new().endpoints();
    /// let application = axum::Router::new().merge(profiles.router());
    /// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    /// # async fn told_to_end() {}
    /// let ending = async move {
    ///     told_to_end().await;
    ///     profiles.shutdown();
    /// };
    /// axum::serve(listener, application).with_graceful_shutdown(ending).await
    /// # }
    /// ```
    pub fn shutdown(&self) {
        self.0.limits.close();
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.0.limits
    }
}

impl<B> Service<Request<B>> for Endpoints
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answer {
        let shared = self.0.clone();
        Answer(Box::pin(async move { answer(&shared, request).await }))
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

async fn answer<B>(shared: &Shared, request: Request<B>) -> Reply
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    if let Some(refusal) = shared.admission.refusal(&head) {
        return refusal;
    }
    let endpoint = match routes::find(&shared.prefix, &head) {
        Ok(endpoint) => endpoint,
        Err(refusal) => return *refusal,
    };
    let mut room = shared.limits.room();
    let body = match endpoint.reads_body(&head.method) {
        true => match timeout(SENT_WITHIN, read(body, &mut room)).await {
            Ok(Ok(body)) => body,
            Ok(Err(refusal)) => return refusal,
            Err(_) => {
                return reply::error(
                    StatusCode::REQUEST_TIMEOUT,
                    format_args!("the body must be here within {SENT_WITHIN:?}"),
                );
            }
        },
        false => Bytes::new(),
    };
    routes::answer(endpoint, shared, &head, body, room).await
}

/// A request's body, when it is here.
async fn read<B>(body: B, room: &mut Room) -> Result<Bytes, Reply>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let mut body = pin!(body);
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error = error.into();
            reply::error(
                StatusCode::BAD_REQUEST,
                format_args!("the body cannot be read: {error}"),
            )
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if bytes.len() + data.remaining() > MAX_BODY {
            return Err(reply::error(
                StatusCode::PAYLOAD_TOO_LARGE,
                format_args!("the body must have at most {MAX_BODY} bytes"),
            ));
        }
        if !room.take(data.remaining()) {
            return Err(reply::busy("too much is being sent at once"));
        }
        bytes.put(data);
    }
    Ok(bytes.freeze())
}
