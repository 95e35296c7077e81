//! A label and those that were set before it, and how it outlives the samples that refer to it.
//!
//! A handler puts the address of its thread's last label into the record of a sample, and marks the
//! label as sampled. The flusher looks there when it empties the lanes. In between the thread may
//! have taken the label off: then, if it or one below it is marked, it goes to the *retired* ones
//! instead of being freed. A turn of the flusher takes those before it empties the lanes and frees
//! them after it. No record can refer to one of them later: records of a label are committed while
//! it is set, since handler and thread take turns.

use std::borrow::Cow;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::slots::{Slot, Slots};
use crate::sys::thread::current_tid;

/// One label, on top of those that were set before it.
#[derive(Debug)]
pub(crate) struct Node {
    /// Tells it from all others, copies of itself excepted.
    pub(super) number: u64,
    pub(super) below: Option<Arc<Node>>,
    pub(super) key: Cow<'static, str>,
    pub(super) value: Cow<'static, str>,
    /// A record may hold its address.
    is_sampled: AtomicBool,
}

static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

impl Node {
    pub(super) fn new(
        below: Option<Arc<Self>>,
        key: Cow<'static, str>,
        value: Cow<'static, str>,
    ) -> Arc<Self> {
        let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed);
        Self::again(number, below, key, value)
    }

    /// A node that stands for another one, in another place.
    pub(super) fn again(
        number: u64,
        below: Option<Arc<Self>>,
        key: Cow<'static, str>,
        value: Cow<'static, str>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            below,
            key,
            value,
            is_sampled: AtomicBool::new(false),
        })
    }
}

impl Drop for Node {
    /// One after the other: a chain that is as long as a program makes it must not take as much
    /// stack.
    fn drop(&mut self) {
        let mut next = self.below.take();
        while let Some(node) = next {
            next = Arc::into_inner(node).and_then(|mut node| node.below.take());
        }
    }
}

/// Keys and values of a node and those below it; of equal keys the one on top.
pub(super) fn visible(top: Option<&Node>) -> Vec<(&str, &str)> {
    let mut labels: Vec<(&str, &str)> = Vec::new();
    let mut next = top;
    while let Some(node) = next {
        if labels.iter().all(|(key, _)| *key != node.key) {
            labels.push((&node.key, &node.value));
        }
        next = node.below.as_deref();
    }
    labels
}

/// What a record of the calling thread says of its labels, which are in `slot` if that is its own;
/// they are marked as sampled. *Async-signal-safe.*
pub(crate) fn mark_sampled(slot: &Slot) -> u64 {
    let node = slot.labels.load(Ordering::Acquire).cast::<Node>();
    // A signal that was on its way when its clock was deleted can find another thread's slot in the
    // place of its own.
    if node.is_null() || !slot.is_of(current_tid()) {
        return 0;
    }
    // SAFETY: a slot's own thread keeps the node while it is there, and that thread is interrupted
    // by this handler.
    unsafe { (*node).is_sampled.store(true, Ordering::Relaxed) };
    node as u64
}

/// A label that was taken off and that a record may refer to.
struct Retired {
    _node: Arc<Node>,
    next: *mut Retired,
}

/// The retired ones since the last turn of the flusher. A stack without a lock, which a fork could
/// leave locked.
static RETIRED: AtomicPtr<Retired> = AtomicPtr::new(null_mut());

/// Lets go of a node that its slot does not refer to any more.
pub(super) fn let_go(node: Option<Arc<Node>>) {
    let Some(node) = node else { return };
    // Any of them can have been on top.
    let chain = std::iter::successors(Some(&node), |node| node.below.as_ref());
    let is_sampled = || {
        chain
            .clone()
            .any(|node| node.is_sampled.load(Ordering::Relaxed))
    };
    if !Slots::get().is_some_and(Slots::is_recording) || !is_sampled() {
        return;
    }
    let retired = Box::into_raw(Box::new(Retired {
        _node: node,
        next: RETIRED.load(Ordering::Relaxed),
    }));
    // SAFETY: `retired` is this call's own until the exchange succeeds.
    unsafe {
        while let Err(now) = RETIRED.compare_exchange_weak(
            (*retired).next,
            retired,
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            (*retired).next = now;
        }
    }
}

/// What was retired up to now, to be freed when this drops: after the lanes have been emptied.
#[derive(Debug)]
pub(crate) struct Taken(*mut Retired);

impl Taken {
    pub(super) fn now() -> Self {
        Self(RETIRED.swap(null_mut(), Ordering::Acquire))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut next = self.0;
        while !next.is_null() {
            // SAFETY: made by `Box::into_raw` in `let_go`, and taken from the stack once, by `now`.
            let retired = unsafe { Box::from_raw(next) };
            next = retired.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampled_label_is_kept_until_the_lanes_were_emptied() {
        let slots = Slots::get_or_make().unwrap();
        let slot = slots.for_labels(current_tid()).unwrap();
        let node = Node::new(None, "key".into(), "value".into());
        let seen = Arc::downgrade(&node);
        slot.labels
            .store(Arc::as_ptr(&node).cast_mut().cast(), Ordering::Release);
        assert_eq!(mark_sampled(slot), Arc::as_ptr(&node) as u64);
        slot.labels.store(null_mut(), Ordering::Release);
        assert_eq!(mark_sampled(slot), 0);
        slots.set_recording(true);
        let_go(Some(node));
        assert!(seen.upgrade().is_some());
        drop(Taken::now());
        assert!(seen.upgrade().is_none());
        let sampled = Node::new(None, "key".into(), "value".into());
        sampled.is_sampled.store(true, Ordering::Relaxed);
        let seen = Arc::downgrade(&sampled);
        let_go(Some(Node::new(Some(sampled), "top".into(), "value".into())));
        assert!(seen.upgrade().is_some(), "below one that was not sampled");
        drop(Taken::now());
        assert!(seen.upgrade().is_none());
        let unsampled = Node::new(None, "key".into(), "value".into());
        let seen = Arc::downgrade(&unsampled);
        let_go(Some(unsampled));
        assert!(seen.upgrade().is_none());
        slots.set_recording(false);
        slot.release_labels();
    }
}
