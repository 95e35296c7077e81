//! How much the endpoints do at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::body::Body;
use super::outgoing::{self, AllOutgoing};

/// The most bytes of requests' bodies that are read, and whose answers are written, at once.
const MOST_BODY_BYTES: usize = 16 << 20;
/// How many threads do work that takes a moment; further requests wait for them.
const WORKS: usize = 2;

/// What requests share.
#[derive(Debug)]
pub(super) struct Limits {
    max_windows: usize,
    windows: Arc<Semaphore>,
    works: Arc<Semaphore>,
    held: Arc<Held>,
    is_closed: watch::Sender<bool>,
}

/// What requests and answers hold.
#[derive(Debug, Default)]
struct Held {
    body_bytes: AtomicUsize,
    outgoing: AllOutgoing,
}

/// The right to work, given back when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Permit(
    #[allow(dead_code, reason = "is dropped")] Option<Arc<OwnedSemaphorePermit>>,
);

/// Room for a request's body, and for the answer until the client has taken it.
#[derive(Debug)]
pub(super) struct Room {
    held: Arc<Held>,
    bytes: usize,
}

impl Limits {
    pub(super) fn new(max_windows: usize) -> Self {
        let max_windows = max_windows.min(Semaphore::MAX_PERMITS);
        Self {
            max_windows,
            windows: Arc::new(Semaphore::new(max_windows)),
            works: Arc::new(Semaphore::new(WORKS)),
            held: Arc::default(),
            is_closed: watch::Sender::new(false),
        }
    }

    /// Has all windows end, and no further ones begin.
    pub(super) fn close(&self) {
        self.is_closed.send_replace(true);
    }

    pub(super) fn are_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// Waits until windows are to end.
    pub(super) async fn closed(&self) {
        // The sender is there as long as this is, so there is no other end.
        let _ = self
            .is_closed
            .subscribe()
            .wait_for(|&is_closed| is_closed)
            .await;
    }

    /// The right to a window, if there is one left.
    pub(super) fn window(&self) -> Option<Permit> {
        let one = || self.windows.clone().try_acquire_owned().ok();
        let permit = one().or_else(|| {
            self.held.outgoing.take_back(Instant::now());
            one()
        });
        permit.map(|permit| Permit(Some(permit.into())))
    }

    /// The right to do some work, as soon as there is one left.
    pub(super) async fn work(&self) -> Permit {
        // Nobody closes the semaphore, so it always gives one.
        Permit(self.works.clone().acquire_owned().await.ok().map(Arc::new))
    }

    /// Whether all that was permitted is done.
    pub(super) fn are_idle(&self) -> bool {
        self.windows.available_permits() == self.max_windows
            && self.works.available_permits() == WORKS
    }

    /// Room for a body, to be taken while it comes in.
    pub(super) fn room(&self) -> Room {
        Room {
            held: self.held.clone(),
            bytes: 0,
        }
    }

    /// A body that is made as the client takes it, of so many bytes in pieces, none of them empty.
    pub(super) fn pieces(
        &self,
        bytes: u64,
        pieces: impl Iterator<Item = Bytes> + Send + 'static,
    ) -> Body {
        Body::pieces(bytes, self.held.outgoing.add(pieces))
    }

    /// A body of these bytes. What is `held` is given back when the client has taken them.
    pub(super) fn body(&self, bytes: Vec<u8>, held: impl Send + 'static) -> Body {
        self.pieces(bytes.len() as u64, outgoing::copied(bytes, held))
    }
}

impl Room {
    /// Takes room for so many bytes more; false where there is none.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let held = self.held.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if held + bytes <= MOST_BODY_BYTES {
            return true;
        }
        self.held.outgoing.take_back(Instant::now());
        self.held.body_bytes.load(Ordering::Relaxed) <= MOST_BODY_BYTES
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.held
            .body_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
