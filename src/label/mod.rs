//! Labels of the program's own on the samples of a thread, as Go's `pprof.Do` sets them.
//!
//! [`label`] sets one on the calling thread until its guard drops; [`Labels`] carries them to
//! another thread, or with a future from poll to poll. They become labels of the samples, which
//! `pprof -tagfocus` and its siblings select by. They cost a small allocation each, whether or not
//! something is recorded.

mod current;
mod future;
mod interned;
mod node;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

pub use future::Labelled;
pub(crate) use interned::Interned;
use node::Node;
pub(crate) use node::mark_sampled;

/// Puts a label on the samples of the calling thread until the guard drops. A label of the same key
/// that was set before is hidden meanwhile. The keys `thread`, `thread_id` and `state` are
/// sigprof's own labels, and a reader shows both; `pprof` does not show a value that is empty.
///
/// ```
/// fn pay() {
///     let _route = sigprof::label("route", "/pay");
///     // … samples taken here are labelled route=/pay …
/// }
/// # pay();
/// ```
pub fn label(key: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) -> LabelGuard {
    let number = current::push(key.into(), value.into());
    LabelGuard {
        number,
        thread: PhantomData,
    }
}

/// A label on the calling thread; dropping it takes the label off.
#[derive(Debug)]
#[must_use = "the label is taken off when this drops: bind it, as in `let _label = …`"]
pub struct LabelGuard {
    number: u64,
    /// The label is this thread's.
    thread: PhantomData<*const ()>,
}

impl Drop for LabelGuard {
    fn drop(&mut self) {
        current::remove(self.number);
    }
}

/// A set of labels that can be carried: to another thread, or with a task.
///
/// ```
/// let _route = sigprof::label("route", "/pay");
/// let labels = sigprof::Labels::capture();
/// std::thread::spawn(move || {
///     let _labels = labels.enter();
///     // … samples taken here are labelled route=/pay, too …
/// })
/// # .join().unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Labels(Option<Arc<Node>>);

impl Labels {
    /// No labels.
    pub fn new() -> Self {
        Self::default()
    }

    /// The labels that the calling thread has now.
    pub fn capture() -> Self {
        Self(current::get())
    }

    /// These labels and one more, which hides one of the same key.
    pub fn with(
        self,
        key: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Self {
        let key = key.into();
        // One that is hidden is never to be seen again, and a loop that sets it anew must not make
        // a chain.
        let below = match self.0 {
            Some(top) if top.key == key => top.below.clone(),
            below => below,
        };
        Self(Some(Node::new(below, key, value.into())))
    }

    /// Gives the calling thread these labels, and no others, until the guard drops.
    pub fn enter(&self) -> LabelsGuard {
        LabelsGuard {
            number: current::enter(self.0.clone()),
            thread: PhantomData,
        }
    }

    /// A future that has these labels whenever it is polled, on whichever thread.
    ///
    /// ```
    /// # async fn pay() {}
    /// let request = sigprof::Labels::new().with("route", "/pay").wrap(pay());
    /// ```
    pub fn wrap<F: Future>(self, future: F) -> Labelled<F> {
        Labelled::new(self, future)
    }

    /// Keys and values; of equal keys the one that was set last.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        node::visible(self.0.as_deref()).into_iter()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Labels on the calling thread; dropping it puts those back that the thread had before.
#[derive(Debug)]
#[must_use = "the labels are taken off when this drops: bind it, as in `let _labels = …`"]
pub struct LabelsGuard {
    number: u64,
    thread: PhantomData<*const ()>,
}

impl Drop for LabelsGuard {
    fn drop(&mut self) {
        current::leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Vec<(String, String)> {
        let labels = Labels::capture();
        let mut labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        labels.sort();
        labels
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs.map(|&(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    #[test]
    fn labels_nest_and_hide() {
        assert_eq!(now(), []);
        let outer = label("route", "/pay");
        let user = label("user", String::from("7"));
        {
            let _inner = label("route", "/pay/card");
            assert_eq!(now(), pairs(&[("route", "/pay/card"), ("user", "7")]));
        }
        assert_eq!(now(), pairs(&[("route", "/pay"), ("user", "7")]));
        drop(outer);
        assert_eq!(now(), pairs(&[("user", "7")]), "dropped out of turn");
        drop(user);
        assert_eq!(now(), []);
    }

    #[test]
    fn labels_travel_and_come_back() {
        let _mine = label("thread", "main");
        let labels = Labels::capture().with("step", "2");
        std::thread::spawn(move || {
            let _its = label("thread", "its");
            let outlives = {
                let _labels = labels.enter();
                assert_eq!(now(), pairs(&[("step", "2"), ("thread", "main")]));
                label("inner", "1")
            };
            assert_eq!(now(), pairs(&[("thread", "its")]), "dropped out of turn");
            drop(outlives);
            assert_eq!(now(), pairs(&[("thread", "its")]));
        })
        .join()
        .unwrap();
        assert_eq!(now(), pairs(&[("thread", "main")]));
    }

    #[test]
    fn nothing_stays_that_was_dropped_out_of_turn() {
        let route = label("route", "/pay");
        let entered = Labels::new().with("a", "1").enter();
        drop(route);
        drop(entered);
        assert_eq!(now(), []);

        let first = Labels::new().with("a", "1").enter();
        let second = Labels::new().with("b", "2").enter();
        drop(first);
        assert_eq!(now(), pairs(&[("b", "2")]));
        drop(second);
        assert_eq!(now(), []);
    }

    #[test]
    fn a_chain_is_as_long_as_it_is() {
        let long = || {
            let labels = (0..20_000).fold(Labels::new(), |labels, i: u32| {
                labels.with(["a", "b"][i as usize % 2], "value")
            });
            assert_eq!(labels.iter().count(), 2);
        };
        let thread = std::thread::Builder::new().stack_size(128 * 1024);
        thread.spawn(long).unwrap().join().unwrap();
    }

    #[test]
    fn a_future_has_its_labels_when_it_is_polled() {
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};
        let mut polls = 0;
        let future = std::future::poll_fn(|_| {
            polls += 1;
            assert_eq!(now(), pairs(&[("task", "a")]));
            if polls < 3 {
                Poll::Pending
            } else {
                Poll::Ready(7)
            }
        });
        let mut future = pin!(Labels::new().with("task", "a").wrap(future));
        let mut context = Context::from_waker(Waker::noop());
        for expected in [Poll::Pending, Poll::Pending, Poll::Ready(7)] {
            assert_eq!(future.as_mut().poll(&mut context), expected);
            assert_eq!(now(), []);
        }
    }
}
