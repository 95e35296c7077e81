//! A mutex that a fork holds, so that the child finds what it guards whole.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};

/// A mutex of the C library's, the kind that may be unlocked in a forked child by the thread that
/// locked it, and what it guards.
///
/// Whoever holds it waits for nothing else than another such mutex.
#[derive(Debug)]
pub(crate) struct ForkMutex<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, that which holds the mutex.
unsafe impl<T: Send> Sync for ForkMutex<T> {}

thread_local! {
    /// The calling thread is about to fork, and holds all mutexes of this kind.
    static HOLDS_ALL: Cell<bool> = const { Cell::new(false) };
}

/// The value of a [`ForkMutex`] that is held.
#[derive(Debug)]
pub(crate) struct Guard<'m, T> {
    mutex: &'m ForkMutex<T>,
    is_held_by_fork: bool,
}

impl<T> ForkMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the mutex and holds it.
    ///
    /// A thread that holds several such mutexes locks them in the order in which a fork does.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let is_held_by_fork = HOLDS_ALL.get();
        if !is_held_by_fork {
            // SAFETY: an initialized mutex, which is where it is for ever: it is a static's.
            unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        }
        Guard {
            mutex: self,
            is_held_by_fork,
        }
    }

    fn unlock(&self) {
        // SAFETY: as above; the calling thread has locked it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the calling thread holds the mutex, and this guard is the only way to the value.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if !self.is_held_by_fork {
            self.mutex.unlock();
        }
    }
}

/// Mutexes that a fork holds.
pub(crate) trait Held: Sync {
    /// Locks it for a fork.
    fn hold(&self);
    /// Unlocks it after the fork, in the parent or in the child.
    fn let_go(&self);
}

impl<T: Send> Held for ForkMutex<T> {
    fn hold(&self) {
        std::mem::forget(self.lock());
    }

    fn let_go(&self) {
        self.unlock();
    }
}

/// Locks these mutexes for a fork of the calling thread, which holds none of them. Until
/// [`let_go_of_all`] it may use them: other functions that the C library calls around a fork do.
pub(crate) fn hold_all<'m>(mutexes: impl Iterator<Item = &'m dyn Held>) {
    mutexes.for_each(Held::hold);
    HOLDS_ALL.set(true);
}

/// Unlocks them, in the parent or in the child.
pub(crate) fn let_go_of_all<'m>(mutexes: impl Iterator<Item = &'m dyn Held>) {
    HOLDS_ALL.set(false);
    mutexes.for_each(Held::let_go);
}
