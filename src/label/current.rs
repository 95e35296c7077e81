//! The labels of the calling thread, and the slot through which its handler reads them.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::node::{Node, let_go};
use crate::slots::{Slot, Slots};
use crate::sys::thread::current_tid;

thread_local! {
    /// For ordinary code alone: a handler reads the slot.
    static MINE: Mine = const {
        Mine {
            top: RefCell::new(None),
            scopes: RefCell::new(Vec::new()),
            last_scope: Cell::new(0),
            slot: Cell::new(None),
        }
    };
}

/// What a thread knows of its labels.
struct Mine {
    /// The one that was set last.
    top: RefCell<Option<Arc<Node>>>,
    /// What was set when other labels were entered, by a number.
    scopes: RefCell<Vec<(u64, Option<Arc<Node>>)>>,
    last_scope: Cell<u64>,
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
        // A handler that runs on this thread from here on sees the new one; whether an earlier one
        // saw the old one is looked at after that.
        compiler_fence(Ordering::SeqCst);
        self.top.replace(top)
    }

    /// As [`set`](Self::set); what was there is kept for the records that may refer to it.
    fn swap(&self, top: Option<Arc<Node>>) -> Option<Arc<Node>> {
        let before = self.set(top);
        let_go(before.clone());
        before
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
        let slot = Slots::get_or_make().ok()?.for_labels(tid)?;
        self.slot.set(Some((tid, slot)));
        Some(slot)
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        drop(self.swap(None));
        for (_, before) in self.scopes.take() {
            let_go(before);
        }
        if let Some(slot) = self.slot(false) {
            slot.release_labels();
        }
    }
}

/// The label that was set last, with those below it. `None` also on a thread that is about to be
/// gone.
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

/// Replaces all labels until [`leave`](leave); the answer is a number for that.
pub(super) fn enter(top: Option<Arc<Node>>) -> u64 {
    let enter = |mine: &Mine| {
        let number = mine.last_scope.get() + 1;
        mine.last_scope.set(number);
        let before = mine.swap(top);
        mine.scopes.borrow_mut().push((number, before));
        number
    };
    MINE.try_with(enter).unwrap_or(0)
}

/// Puts the labels back that were there before [`enter`]. Out of turn, they are there once all have
/// left that entered since.
pub(super) fn leave(number: u64) {
    let leave = |mine: &Mine| {
        let mut scopes = mine.scopes.borrow_mut();
        let Some(index) = scopes.iter().rposition(|&(scope, _)| scope == number) else {
            return;
        };
        let (_, before) = scopes.remove(index);
        match scopes.get_mut(index) {
            Some((_, next)) => let_go(std::mem::replace(next, before)),
            None => {
                drop(scopes);
                mine.swap(before);
            }
        }
    };
    // A thread that is about to be gone has none.
    let _ = MINE.try_with(leave);
}

/// Takes off the label of a number, wherever it is: among those that are set, or those that
/// [`leave`] will put back.
pub(super) fn remove(number: u64) {
    let remove = |mine: &Mine| {
        let top = mine.top.borrow().clone();
        if let Some(without) = without(top, number) {
            mine.swap(without);
            return;
        }
        for (_, before) in mine.scopes.borrow_mut().iter_mut().rev() {
            if let Some(without) = without(before.clone(), number) {
                let_go(std::mem::replace(before, without));
                return;
            }
        }
    };
    let _ = MINE.try_with(remove);
}

/// A chain without the label of a number; `None` where it is not in it.
fn without(top: Option<Arc<Node>>, number: u64) -> Option<Option<Arc<Node>>> {
    let mut above = Vec::new();
    let mut next = top;
    while let Some(node) = next {
        next = node.below.clone();
        if node.number == number {
            return Some(
                above
                    .into_iter()
                    .rev()
                    .fold(next, |below, node: Arc<Node>| {
                        Some(Node::again(
                            node.number,
                            below,
                            node.key.clone(),
                            node.value.clone(),
                        ))
                    }),
            );
        }
        above.push(node);
    }
    None
}
