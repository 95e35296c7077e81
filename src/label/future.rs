//! A future that carries labels from poll to poll.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::Labels;

/// A future that has its labels whenever it is polled; made by [`Labels::wrap`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Labelled<F> {
    labels: Labels,
    future: F,
}

impl<F> Labelled<F> {
    pub(super) fn new(labels: Labels, future: F) -> Self {
        Self { labels, future }
    }
}

impl<F: Future> Future for Labelled<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: nothing moves the future out of its place: it is private, and only ever seen
        // through this projection.
        let (labels, future) = unsafe {
            let this = self.get_unchecked_mut();
            (&this.labels, Pin::new_unchecked(&mut this.future))
        };
        let _labels = labels.enter();
        future.poll(context)
    }
}
