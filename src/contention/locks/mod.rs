//! Locks whose waits are seen wherever nothing can be put into the way to the C library: those of
//! parking_lot, with its own work around them.

mod condvar;
mod mutex;
mod rwlock;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{
    MappedMutexGuard, MappedReentrantMutexGuard, Mutex, MutexGuard, RawMutex, ReentrantMutex,
    ReentrantMutexGuard,
};
pub use rwlock::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RawRwLock, RwLock, RwLockReadGuard,
    RwLockUpgradableReadGuard, RwLockWriteGuard,
};

use super::at_lock::{Ends, charge, timed};
use super::wait::Wait;

/// Waits for a lock that could not be had at once. Not inlined, as its frame is where the stack
/// begins.
#[cold]
#[inline(never)]
fn contended<T>(lock: usize, wait: Wait, work: impl FnOnce() -> T) -> T {
    timed(lock, wait, work)
}

/// Answers for others that have waited for a lock, which is about to be let go. Not inlined either.
#[cold]
#[inline(never)]
fn let_go(lock: usize, wait: Wait, ends: Ends) {
    charge(lock, wait, ends);
}
