//! Mutexes.

use std::ptr;
use std::time::{Duration, Instant};

use parking_lot::lock_api::{self, RawMutex as _, RawMutexFair, RawMutexTimed};

use super::super::wait::Wait;
use super::{contended, let_go};

/// parking_lot's [`Mutex`](parking_lot::Mutex), whose waits are in the profile.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// Its guard.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// The guard of a part of what a mutex protects.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

/// parking_lot's [`ReentrantMutex`](parking_lot::ReentrantMutex), whose waits are in the profile.
pub type ReentrantMutex<T> = lock_api::ReentrantMutex<RawMutex, parking_lot::RawThreadId, T>;
/// Its guard.
pub type ReentrantMutexGuard<'a, T> =
    lock_api::ReentrantMutexGuard<'a, RawMutex, parking_lot::RawThreadId, T>;
/// The guard of a part of what a reentrant mutex protects.
pub type MappedReentrantMutexGuard<'a, T> =
    lock_api::MappedReentrantMutexGuard<'a, RawMutex, parking_lot::RawThreadId, T>;

/// A mutex for a `static`, as [`Mutex::new`] makes it.
pub const fn const_mutex<T>(value: T) -> Mutex<T> {
    Mutex::const_new(<RawMutex as lock_api::RawMutex>::INIT, value)
}

/// A reentrant mutex for a `static`, as [`ReentrantMutex::new`] makes it.
pub const fn const_reentrant_mutex<T>(value: T) -> ReentrantMutex<T> {
    ReentrantMutex::const_new(
        <RawMutex as lock_api::RawMutex>::INIT,
        <parking_lot::RawThreadId as lock_api::GetThreadId>::INIT,
        value,
    )
}

/// What [`Mutex`] and [`ReentrantMutex`] are made of, for other locks of [`lock_api`].
#[derive(Debug)]
pub struct RawMutex {
    /// A whole mutex, of which a condition variable needs a guard.
    pub(super) inner: parking_lot::Mutex<()>,
}

impl RawMutex {
    #[inline(always)]
    fn raw(&self) -> &parking_lot::RawMutex {
        // SAFETY: it is unlocked by whoever has locked it, as the contract of `unlock` says.
        unsafe { self.inner.raw() }
    }

    pub(super) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Does what unlocks, and has the calling thread answer for those who wait.
    #[inline(always)]
    pub(super) fn unlocking<T>(&self, unlock: impl FnOnce(&parking_lot::RawMutex) -> T) -> T {
        let_go(self.address(), || unlock(self.raw()))
    }
}

// SAFETY: it is locked and unlocked as parking_lot's is.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: Self = Self {
        inner: parking_lot::Mutex::new(()),
    };

    type GuardMarker = <parking_lot::RawMutex as lock_api::RawMutex>::GuardMarker;

    #[inline]
    fn lock(&self) {
        if !self.raw().try_lock() {
            contended(self.address(), Wait::Mutex, || self.raw().lock());
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.raw().try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.unlock() });
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.raw().is_locked()
    }
}

// SAFETY: as above.
unsafe impl RawMutexFair for RawMutex {
    #[inline]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.unlock_fair() });
    }

    #[inline]
    unsafe fn bump(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.bump() });
    }
}

// SAFETY: as above.
unsafe impl RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.raw().try_lock()
            || contended(self.address(), Wait::Mutex, || {
                self.raw().try_lock_for(timeout)
            })
    }

    #[inline]
    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.raw().try_lock()
            || contended(self.address(), Wait::Mutex, || {
                self.raw().try_lock_until(timeout)
            })
    }
}
