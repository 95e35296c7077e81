//! What the C library's locks say of themselves.
//!
//! Their layout is part of glibc's ABI: programs have initializers of theirs compiled in, and share
//! them with other processes. (`struct __pthread_mutex_s`, `union sem_t`: glibc's
//! `bits/struct_mutex.h` and `semaphore.h`, for x86_64 and aarch64.) Of another C library's nothing
//! is known.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::contention::wait::Wait;
use crate::sys::thread::current_tid;

/// A mutex of glibc's, as far as it is looked at.
#[repr(C)]
struct Mutex {
    lock: AtomicI32,
    count: AtomicI32,
    owner: AtomicI32,
    users: AtomicI32,
    kind: AtomicI32,
}

const RECURSIVE: i32 = 1;
const ERROR_CHECK: i32 = 2;
const BASIC_KINDS: i32 = 3;
const ROBUST: i32 = 16;

/// A mutex at this address, where its layout is known.
///
/// # Safety
///
/// There is one, for as long as the reference is used.
unsafe fn mutex<'m>(lock: usize) -> Option<&'m Mutex> {
    match cfg!(target_env = "gnu") {
        // SAFETY: the caller's contract; others change it as atomic words.
        true => unsafe { (lock as *const Mutex).as_ref() },
        false => None,
    }
}

/// Whether to try a lock does what taking it does, where it is free. *Async-signal-safe.*
///
/// # Safety
///
/// There is a lock of this kind at the address.
#[inline(always)]
pub(super) unsafe fn can_be_tried(lock: usize, wait: Wait) -> bool {
    if wait as u8 != Wait::Mutex as u8 {
        return true;
    }
    // SAFETY: the caller's contract.
    let mutex = unsafe { mutex(lock) };
    // A try leaves one that is not recoverable locked.
    mutex.is_none_or(|mutex| mutex.kind.load(Ordering::Relaxed) & ROBUST == 0)
}

/// Whether a lock that cannot be tried seems to be held by another thread; not, where nothing is
/// known. *Async-signal-safe.*
///
/// # Safety
///
/// As of [`can_be_tried`].
#[cold]
pub(super) unsafe fn is_held(lock: usize, wait: Wait) -> bool {
    // SAFETY: the caller's contract.
    match unsafe { mutex(lock) } {
        Some(mutex) if wait as u8 == Wait::Mutex as u8 => {
            mutex.lock.load(Ordering::Relaxed) != 0
                && mutex.owner.load(Ordering::Relaxed) != current_tid()
        }
        // Its value comes first.
        Some(semaphore) if wait as u8 == Wait::Semaphore as u8 => {
            semaphore.lock.load(Ordering::Relaxed) == 0
        }
        _ => false,
    }
}

/// Whether the calling thread, which unlocks a lock, lets it go thereby. *Async-signal-safe.*
///
/// # Safety
///
/// As of [`can_be_tried`].
#[inline(always)]
pub(super) unsafe fn may_release(lock: usize, wait: Wait) -> bool {
    if wait as u8 != Wait::Mutex as u8 {
        return true;
    }
    // SAFETY: the caller's contract.
    let Some(mutex) = (unsafe { mutex(lock) }) else {
        return true;
    };
    let kind = mutex.kind.load(Ordering::Relaxed);
    let is_owned = matches!(kind & BASIC_KINDS, RECURSIVE | ERROR_CHECK) || kind & ROBUST != 0;
    let is_inner = kind & BASIC_KINDS == RECURSIVE && mutex.count.load(Ordering::Relaxed) > 1;
    !is_inner && (!is_owned || mutex.owner.load(Ordering::Relaxed) == current_tid())
}

/// Until when a function waits, and what the real one looks at before it takes a lock that is free.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Until {
    /// Nothing.
    Ever,
    /// A time.
    Time,
    /// A clock.
    OfClock,
    /// A clock and a time.
    TimeOfClock,
}

impl Until {
    /// Whether the real function would find the arguments after the lock valid.
    ///
    /// # Safety
    ///
    /// They are those of a call of the function that waits so long.
    #[inline(always)]
    pub(super) unsafe fn is_valid(self, a: usize, b: usize) -> bool {
        // SAFETY: the caller's contract: the real function reads it, too.
        let is_time = |time: usize| unsafe {
            let time = time as *const libc::timespec;
            (0..1_000_000_000).contains(&(*time).tv_nsec)
        };
        let is_clock =
            |clock: usize| matches!(clock as c_int, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC);
        match self {
            Self::Ever => true,
            Self::Time => is_time(a),
            Self::OfClock => is_clock(a),
            Self::TimeOfClock => is_clock(a) && is_time(b),
        }
    }
}
