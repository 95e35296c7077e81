//! A value that handlers read while ordinary code replaces it.

use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// An immutable value behind one atomic pointer, and the epoch it belongs to.
///
/// A reader takes [`epoch`](Self::epoch), makes it visible (it claims a lane of the rack with it),
/// and then [gets](Self::get) the value. Whoever replaces the value gets the old one back and frees
/// it once no reader is in its epoch or an older one (`Rack::oldest_epoch`).
#[derive(Debug)]
pub(crate) struct Published<T> {
    value: AtomicPtr<T>,
    epoch: AtomicU32,
}

impl<T> Published<T> {
    /// Nothing, in the first epoch.
    pub(crate) fn new() -> Self {
        Self {
            value: AtomicPtr::new(std::ptr::null_mut()),
            epoch: AtomicU32::new(1),
        }
    }

    /// The current epoch; never 0. *Async-signal-safe.*
    pub(crate) fn epoch(&self) -> u32 {
        // Acquire, and the value is replaced before the epoch is: a reader that sees an epoch sees
        // at least its value.
        self.epoch.load(Ordering::Acquire)
    }

    /// The epoch that the next value will be published in.
    pub(crate) fn next_epoch(&self) -> u32 {
        // 0 says "free" in a lane.
        self.epoch().checked_add(1).unwrap_or(1)
    }

    /// The current value. *Async-signal-safe.*
    ///
    /// # Safety
    ///
    /// The caller has read the epoch before, has made it visible to whoever frees values with a
    /// sequentially consistent fence after that, and keeps it visible while it uses the answer.
    pub(crate) unsafe fn get(&self) -> Option<&T> {
        // Acquire: the value was built before it was published. SAFETY: the pointer is null or came
        // from a `Box`, and is not freed while the caller's epoch is visible.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes `value` in a new epoch; gives back the old value and the last epoch it can be read
    /// in.
    ///
    /// # Safety
    ///
    /// One caller at a time, which keeps the old value until no reader is in an epoch up to the one
    /// given back.
    pub(crate) unsafe fn replace(&self, value: Box<T>) -> Option<(Box<T>, u32)> {
        // SAFETY: the caller's contract.
        unsafe { self.swap(Box::into_raw(value)) }
    }

    /// Like [`replace`](Self::replace) with nothing.
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn take(&self) -> Option<(Box<T>, u32)> {
        // SAFETY: the caller's contract.
        unsafe { self.swap(std::ptr::null_mut()) }
    }

    unsafe fn swap(&self, value: *mut T) -> Option<(Box<T>, u32)> {
        // Release: the new value is built before it can be seen.
        let old = self.value.swap(value, Ordering::AcqRel);
        let epoch = self.epoch();
        self.epoch.store(self.next_epoch(), Ordering::Release);
        // SAFETY: made by `Box::into_raw` in an earlier call, and given back once.
        (!old.is_null()).then(|| (unsafe { Box::from_raw(old) }, epoch))
    }
}
