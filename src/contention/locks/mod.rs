//! Locks whose waits are seen wherever nothing can be put into the way to the C library: those of
//! parking_lot, with its own work around them.

mod condvar;
mod mutex;
mod rwlock;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{
    MappedMutexGuard, MappedReentrantMutexGuard, Mutex, MutexGuard, RawMutex, ReentrantMutex,
    ReentrantMutexGuard, const_mutex, const_reentrant_mutex,
};
pub use parking_lot::{RawThreadId, lock_api};

pub use rwlock::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RawRwLock, RwLock, RwLockReadGuard,
    RwLockUpgradableReadGuard, RwLockWriteGuard, const_rwlock,
};

use super::at_lock::{charge, timed};
use super::looks::{Look, may_any_wait};
use super::wait::Wait;

/// Waits for a lock that could not be had at once. Not inlined, as its frame is where the stack
/// begins.
#[cold]
#[inline(never)]
fn contended<T>(lock: usize, wait: Wait, work: impl FnOnce() -> T) -> T {
    timed(lock, wait, work)
}

/// Lets go of a lock that others may wait for, and answers for that. Not inlined either.
#[cold]
#[inline(never)]
fn let_go<T>(lock: usize, look: Look, work: impl FnOnce() -> T) -> T {
    let mut charged = match look {
        Look::Before => charge(lock),
        Look::Never | Look::After => None,
    };
    let answer = work();
    if look == Look::After && may_any_wait(lock) {
        charged = charge(lock);
    }
    if let Some(charged) = charged {
        charged.record();
    }
    answer
}
