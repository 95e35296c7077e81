//! What unwinding takes besides room for the chain.

use std::cell::UnsafeCell;
use std::io;

use crate::sys::stack::Stack;
use crate::unwind::Cache;

/// A cache and a stack. It belongs to a lane: whoever holds the lane's claim holds it.
#[derive(Debug)]
pub(crate) struct Workbench {
    cache: UnsafeCell<Cache>,
    stack: Stack,
}

// SAFETY: only the holder of the lane's claim touches the cache (`Workbench::work`), and a claim is
// exclusive.
unsafe impl Sync for Workbench {}

impl Workbench {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            cache: UnsafeCell::new(Cache::new()),
            stack: Stack::new()?,
        })
    }

    /// Runs `work` on the bench's own stack, with its cache. *Async-signal-safe* if `work` is.
    ///
    /// # Safety
    ///
    /// The caller holds the claim of the bench's lane, and `work` returns.
    pub(crate) unsafe fn work(&self, work: impl FnOnce(&mut Cache)) {
        // SAFETY: the claim is exclusive, and with it cache and stack.
        unsafe { self.stack.run(|| work(&mut *self.cache.get())) };
    }

    /// Gives the stack's memory back.
    ///
    /// # Safety
    ///
    /// Nobody works on the bench while this runs.
    pub(super) unsafe fn release_memory(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.stack.release_memory() };
    }
}
