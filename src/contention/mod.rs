//! Who waits for locks, for how long: of a whole program, with no change to its source.
//!
//! ```
//! fn main() -> sigprof::Result<()> {
//!     let watch = sigprof::contention::watch_process()?;
//!     // … the program's work …
//!     let profile = sigprof::contention::profile()?;
//!     println!("{}", profile.top(5));
//!     drop(watch);
//!     Ok(())
//! }
//! ```
//!
//! [`profile_to`] does so for a file, and [`from_env`] where `CONTENTIONPROFILE` names one.
//!
//! # What is seen
//!
//! The locks of Rust's standard library, of parking_lot and of tokio wait through the C library's
//! `syscall` function when they cannot be had at once; programs in C and C++ call the C library's
//! own: `pthread_mutex_lock`, `pthread_rwlock_rdlock`, `pthread_cond_wait`, `sem_wait` and their
//! relatives. While the process is watched, the words through which each loaded module calls those
//! functions lead to sigprof's, which time the waits. A lock that is free costs nothing more in
//! Rust, where nobody calls `syscall` for it, and some 3 ns in C, where it is tried before anything
//! is timed.
//!
//! What is waited for is in the label `wait`: `mutex`, `rwlock`, `condvar`, `semaphore`, `park` or
//! `other`. It is told by the names of the functions that wait, so that another crate's lock is
//! what that crate has made it of: one of dashmap's is `rwlock`, a cell of once_cell's `other`.
//!
//! A wait that its lock's owner has ended before it began is none. A thread that is woken and finds
//! the lock taken again waits twice in Rust, and once in C.
//!
//! # What is not seen
//!
//! - A task that waits in `lock().await`, for tokio's locks or any other's of that kind: no thread
//!   waits. `blocking_lock` is seen, and so are threads that wait for tasks.
//! - The time in which a lock spins before it calls the system: [`Mutex`] and its relatives, below,
//!   have it.
//! - Calls within the C library itself, and those through an address that a program has from
//!   `dlsym` or keeps in its data; `pthread_join`, barriers, and C11's locks.
//! - Waits by `futex_waitv` and `FUTEX_WAIT_REQUEUE_PI`; and the holder of a lock who ends a wait
//!   by `FUTEX_CMP_REQUEUE`, `FUTEX_WAKE_OP` or `FUTEX_UNLOCK_PI`.
//!
//! # Locks that are seen anywhere
//!
//! [`Mutex`], [`RwLock`], [`ReentrantMutex`] and [`Condvar`] are parking_lot's, with the same
//! functions, and need nothing in the way to the C library: [`watch_locks`] sees them in a program
//! that is linked statically, too. A wait for one takes from the first try that failed to the lock,
//! with the time in which the thread spins.
//!
//! # What the values mean
//!
//! `contentions` counts waits, `delay` is how long they took in all. A wait of `t` nanoseconds is
//! sampled with probability `t / interval`, or certainly where `t` is more than the
//! [interval](sample_interval), and counts as so many that sums are right on average, as Go's block
//! profile has it. Where more than 5,000 waits a second come, only some of those for the locks that
//! most of them are for are looked at, and where more than 2,500 stacks would be recorded, the
//! interval is raised; sums stay right.

mod at_lock;
mod collector;
mod counted;
mod environment;
mod guard;
mod locks;
mod looks;
mod pace;
mod rates;
mod recorder;
mod report;
mod sampling;
mod shares;
mod stand_ins;
mod wait;
mod waiters;
mod watch;

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::profile::Profile;
pub(crate) use crate::ring::Role;
use crate::sys::own_threads::as_own;
pub(crate) use counted::Mark;
pub(crate) use report::View;
#[cfg(feature = "http")]
pub(crate) use watch::was_watched;

pub use environment::from_env;
pub use guard::{Guard, profile_to};
pub use locks::{
    Condvar, MappedMutexGuard, MappedReentrantMutexGuard, MappedRwLockReadGuard,
    MappedRwLockWriteGuard, Mutex, MutexGuard, RawMutex, RawRwLock, RawThreadId, ReentrantMutex,
    ReentrantMutexGuard, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
    WaitTimeoutResult, const_mutex, const_reentrant_mutex, const_rwlock, lock_api,
};
pub use watch::{Watch, watch_locks, watch_process};

/// The wait of which each is sampled, and of which shorter ones are in proportion: 100 µs unless it
/// was set.
pub fn sample_interval() -> Duration {
    Duration::from_nanos(sampling::mean_ns())
}

/// Sets that: 1 ns for each wait, 0 for none.
pub fn set_sample_interval(interval: Duration) {
    sampling::set_mean_ns(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
}

/// Who has waited for locks since the process was first watched, by stack: the sample types are
/// `contentions`/`count` and `delay`/`nanoseconds`, the latter of which viewers show.
///
/// Waits for condition variables, and those of parked threads, are left out, since most of them are
/// of threads that have nothing to do; a comment says how many ([`all_waits`] has them).
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] where the process was never [watched](watch_process).
pub fn profile() -> Result<Profile> {
    of(Role::Waiter, View::Busy, None)
}

/// As [`profile`], with the waits for condition variables, and those of parked threads.
///
/// The C library takes the mutex of a condition variable again before it returns, and so does
/// [`Condvar`]: a wait for that mutex is in the condition variable's. The standard library and
/// parking_lot wait for it apart.
///
/// # Errors
///
/// As of [`profile`].
pub fn all_waits() -> Result<Profile> {
    of(Role::Waiter, View::All, None)
}

/// Who has kept others waiting, by the stack that let the lock go: with the time that others have
/// waited for it since somebody else had let it go, or since they began to. What passes from there
/// until a woken thread runs is in [`profile`], and nobody's here.
///
/// # Errors
///
/// As of [`profile`].
pub fn holders() -> Result<Profile> {
    of(Role::Holder, View::Busy, None)
}

/// What was recorded since a moment, or ever.
///
/// # Errors
///
/// As of [`profile`].
pub(crate) fn of(role: Role, view: View, since: Option<&Mark>) -> Result<Profile> {
    as_own(|| watch::profile(role, view, since)).ok_or_else(not_watched)
}

impl Mark {
    /// This moment.
    ///
    /// # Errors
    ///
    /// As of [`profile`].
    #[cfg(feature = "http")]
    pub(crate) fn now() -> Result<Self> {
        watch::mark().ok_or_else(not_watched)
    }
}

/// Why there is no profile where the process was never watched.
pub(crate) const NOT_WATCHED: &str =
    "this process does not watch its locks (sigprof::contention::watch_process)";

fn not_watched() -> Error {
    let message = format!("there is no contention profile: {NOT_WATCHED}");
    Error::new(ErrorKind::Unsupported, message)
}
