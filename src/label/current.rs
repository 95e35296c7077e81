//! The labels of the calling thread, and the slot through which its handler reads them.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::node::{Node, let_go};
use crate::slots::{Slot, Slots, User};
use crate::sys::thread::current_tid;

thread_local! {
    /// For ordinary code alone: a handler reads the slot.
    static MINE: Mine = const {
        Mine {
            top: RefCell::new(None),
            slot: Cell::new(None),
        }
    };
}

/// What a thread knows of its labels.
struct Mine {
    /// The one that was set last.
    top: RefCell<Option<Arc<Node>>>,
    slot: Cell<Option<(i32, &'static Slot)>>,
}

impl Mine {
    /// Makes `top` what the handler sees, and lets go of what it saw.
    fn set(&self, top: Option<Arc<Node>>) -> Option<Arc<Node>> {
        let pointer = top
            .as_ref()
            .map_or(null_mut(), |node| Arc::as_ptr(node).cast_mut());
        // Without a slot (there are more threads than slots) samples have no labels.
        if let Some(slot) = self.slot(top.is_some()) {
            slot.labels.store(pointer.cast(), Ordering::Release);
        }
        // A handler that runs on this thread from here on sees the new one; whether an earlier one saw the old one is looked at
        // after that.
        compiler_fence(Ordering::SeqCst);
        self.top.replace(top)
    }

    fn slot(&self, make: bool) -> Option<&'static Slot> {
        if let Some((tid, slot)) = self.slot.get()
            // In a forked child all slots are zero, and the thread has another id.
            && slot.is_of(tid)
        {
            return Some(slot);
        }
        if !make {
            return None;
        }
        let tid = current_tid();
        let (_, slot) = Slots::get_or_make().ok()?.claim(tid, User::Labels)?;
        self.slot.set(Some((tid, slot)));
        Some(slot)
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        let_go(self.set(None));
        if let Some(slot) = self.slot(false) {
            slot.release(User::Labels);
        }
    }
}

/// The label that was set last, with those below it. `None` also on a thread that is about to be gone.
pub(super) fn get() -> Option<Arc<Node>> {
    MINE.try_with(|mine| mine.top.borrow().clone()).ok()?
}

/// Sets one more label; the answer is its number.
pub(super) fn push(key: Cow<'static, str>, value: Cow<'static, str>) -> u64 {
    let below = get();
    let node = Node::new(below, key, value);
    let number = node.number;
    // The one below is kept by the new one.
    let _ = MINE.try_with(|mine| mine.set(Some(node)));
    number
}

/// Replaces all labels; the answer is what was there.
pub(super) fn replace(top: Option<Arc<Node>>) -> Option<Arc<Node>> {
    let before = MINE.try_with(|mine| mine.set(top)).ok()?;
    // Kept by whoever gets the answer, and by the retired ones in case that they let go of it.
    let_go(before.clone());
    before
}

/// Takes off the label of a number, wherever it is; one that is not there was taken off with others.
pub(super) fn remove(number: u64) {
    let Some(top) = get() else { return };
    let mut above = Vec::new();
    let mut next = Some(top);
    while let Some(node) = next {
        next = node.below.clone();
        if node.number == number {
            let without = above
                .into_iter()
                .rev()
                .fold(next, |below, node: Arc<Node>| {
                    Some(Node::again(
                        node.number,
                        below,
                        node.key.clone(),
                        node.value.clone(),
                    ))
                });
            replace(without);
            return;
        }
        above.push(node);
    }
}
