//! A connection of a server's own: how long it is held open, and for whom.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tower_service::Service;

use super::endpoints::Endpoints;
use super::peer::Peer;

/// How many clients are let in at once.
const MOST_CONNECTIONS: usize = 256;
/// How long a client may take to send a request's line and headers.
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of a request's line and headers.
const MAX_HEAD: usize = 16 * 1024;
/// How long a client may take none of what it is sent.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// The places for connections. Where all are taken, connections that have been answered end, so
/// that whoever waits is let in.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    are_taken: Notify,
}

impl Places {
    pub(super) fn new() -> Self {
        Self {
            free: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            are_taken: Notify::new(),
        }
    }

    /// A place, as soon as there is one.
    pub(super) async fn one(&self) -> Option<OwnedSemaphorePermit> {
        if self.are_taken() {
            self.are_taken.notify_waiters();
        }
        // Nobody closes the semaphore, so it always gives one.
        self.free.clone().acquire_owned().await.ok()
    }

    fn are_taken(&self) -> bool {
        self.free.available_permits() == 0
    }
}

/// Serves a connection until it ends, or its client has gone.
pub(super) async fn serve(stream: TcpStream, endpoints: Endpoints, places: Arc<Places>) {
    // Where no descriptor is left the connection is closed.
    let Ok(peer) = Peer::of(&stream) else {
        return;
    };
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(TAKEN_WITHIN));
    let has_asked = AtomicBool::new(false);
    let answer = service_fn(|request| {
        has_asked.store(true, Ordering::Relaxed);
        let answer = endpoints.clone().call(request);
        let places = &places;
        async move {
            let mut answer = answer.await?;
            if places.are_taken() {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(SENT_WITHIN)
            .max_buf_size(MAX_HEAD)
            // Who sends nothing more may read the answer: `peer` says for how long.
            .half_close(true)
            .serve_connection(TokioIo::new(Box::pin(stream)), answer)
    );
    let served = async {
        loop {
            tokio::select! {
                // A connection that fails is the client's loss, which sees it.
                _ = connection.as_mut() => return,
                () = places.are_taken.notified() => {}
            }
            // hyper would end one whose request is on its way, too.
            if has_asked.load(Ordering::Relaxed) {
                // With the answer that it waits for, or at once.
                connection.as_mut().graceful_shutdown();
            }
        }
    };
    tokio::select! {
        () = served => {}
        () = peer.has_gone() => {}
    }
}
