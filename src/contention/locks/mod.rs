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
use super::looks::{Look, look, may_any_wait};
use super::wait::Wait;

/// Waits for a lock that could not be had at once. Not inlined, as its frame is where the stack
/// begins.
#[cold]
#[inline(never)]
fn contended<T>(lock: usize, wait: Wait, work: impl FnOnce() -> T) -> T {
    timed(lock, wait, work)
}

/// Lets go of a lock, and answers for that.
#[inline(always)]
fn let_go<T>(lock: usize, work: impl FnOnce() -> T) -> T {
    match look(lock) {
        Look::Never => work(),
        Look::Before => end_waits(lock, work),
        Look::After => {
            let answer = work();
            if may_any_wait(lock) {
                end_waits(lock, || {});
            }
            answer
        }
    }
}

/// Does what ends waits of others, and answers for that. Not inlined either.
#[cold]
#[inline(never)]
fn end_waits<T>(lock: usize, work: impl FnOnce() -> T) -> T {
    let charged = charge(lock);
    let answer = work();
    if let Some(charged) = charged {
        charged.record();
    }
    answer
}
