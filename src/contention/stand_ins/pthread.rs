//! What stands in for the locks of the C library, which wait through its own system calls.
//!
//! A lock is tried first, by the function that is there for it; one that can be had is had by that,
//! and its thread has not waited. What a stand-in answers is what the real function would.
//!
//! Waits for a condition variable and for a semaphore can end with the thread, which is cancelled:
//! it unwinds through the stand-in, and a cleanup handler takes back what that has noted. So the
//! functions on that way have the C ABI that unwinds, and nothing to drop.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit, transmute};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::StandIn;
use crate::contention::at_lock::{Ends, Entered, charge, record_wait};
use crate::contention::recorder::Recorder;
use crate::contention::wait::Wait;
use crate::sys::signal::ErrnoGuard;

/// What is locked, and up to three more arguments: as many as any of these functions has, all of
/// which C passes in registers, and none of which a function misses or minds.
#[derive(Clone, Copy)]
#[repr(C)]
struct Arguments([usize; 4]);

type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> c_int;

/// A function that tries what another one waits for.
type Attempt = unsafe extern "C" fn(lock: usize) -> c_int;

unsafe extern "C" {
    fn pthread_mutex_trylock(lock: usize) -> c_int;
    fn pthread_rwlock_tryrdlock(lock: usize) -> c_int;
    fn pthread_rwlock_trywrlock(lock: usize) -> c_int;
    fn sem_trywait(semaphore: usize) -> c_int;
    fn _pthread_cleanup_push(
        buffer: *mut MaybeUninit<CleanupBuffer>,
        routine: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut MaybeUninit<CleanupBuffer>, execute: c_int);
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// What the C library keeps of a cleanup handler while it stands: four words in glibc, three in
/// musl.
type CleanupBuffer = [usize; 4];

macro_rules! stand_ins {
    ($($name:ident: $does:ident($($how:expr),+);)+) => {
        $(
            mod $name {
                use super::*;

                pub(super) static REAL: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

                /// *Async-signal-safe* where the real one is.
                pub(super) unsafe extern "C-unwind" fn stand_in(
                    lock: usize,
                    a: usize,
                    b: usize,
                    c: usize,
                ) -> c_int {
                    // SAFETY: a word leads here only once the real function is known, and what is
                    // passed to that is the caller's.
                    unsafe {
                        let real = REAL.load(Ordering::Acquire);
                        let real = transmute::<*mut (), Function>(real);
                        $does(real, Arguments([lock, a, b, c]), $($how),+)
                    }
                }
            }
        )+

        pub(super) fn stand_ins() -> Vec<StandIn> {
            vec![$(
                StandIn {
                    name: stringify!($name),
                    real: &$name::REAL,
                    address: $name::stand_in as Function as usize,
                },
            )+]
        }
    };
}

stand_ins! {
    pthread_mutex_lock: lock(pthread_mutex_trylock, Wait::Mutex);
    pthread_mutex_timedlock: lock(pthread_mutex_trylock, Wait::Mutex);
    pthread_mutex_clocklock: lock(pthread_mutex_trylock, Wait::Mutex);
    pthread_mutex_unlock: release(Wait::Mutex, Ends::One);
    pthread_rwlock_rdlock: lock(pthread_rwlock_tryrdlock, Wait::RwLock);
    pthread_rwlock_timedrdlock: lock(pthread_rwlock_tryrdlock, Wait::RwLock);
    pthread_rwlock_clockrdlock: lock(pthread_rwlock_tryrdlock, Wait::RwLock);
    pthread_rwlock_wrlock: lock(pthread_rwlock_trywrlock, Wait::RwLock);
    pthread_rwlock_timedwrlock: lock(pthread_rwlock_trywrlock, Wait::RwLock);
    pthread_rwlock_clockwrlock: lock(pthread_rwlock_trywrlock, Wait::RwLock);
    pthread_rwlock_unlock: release(Wait::RwLock, Ends::Unknown);
    pthread_cond_wait: wait_on(Wait::Condvar);
    pthread_cond_timedwait: wait_on(Wait::Condvar);
    pthread_cond_clockwait: wait_on(Wait::Condvar);
    pthread_cond_signal: release(Wait::Condvar, Ends::One);
    pthread_cond_broadcast: release(Wait::Condvar, Ends::All);
    sem_wait: take(Wait::Semaphore);
    sem_timedwait: take(Wait::Semaphore);
    sem_clockwait: take(Wait::Semaphore);
    sem_post: release(Wait::Semaphore, Ends::One);
}

/// Takes a lock; and records it if it has waited.
///
/// Inlined, as all of these are, so that the stack begins with the frame of the stand-in.
#[inline(always)]
unsafe extern "C-unwind" fn lock(
    real: Function,
    arguments: Arguments,
    attempt: Attempt,
    wait: Wait,
) -> c_int {
    // SAFETY: the caller's own call.
    unsafe {
        match attempt(arguments.0[0]) {
            libc::EBUSY => timed(real, arguments, wait),
            answer => answer,
        }
    }
}

/// Takes a semaphore.
#[inline(always)]
unsafe extern "C-unwind" fn take(real: Function, arguments: Arguments, wait: Wait) -> c_int {
    // SAFETY: the caller's own call. It is a point of cancellation whether or not it waits.
    unsafe {
        pthread_testcancel();
        let errno = ErrnoGuard::new();
        let answer = sem_trywait(arguments.0[0]);
        drop(errno);
        match answer {
            0 => 0,
            _ => timed(real, arguments, wait),
        }
    }
}

/// Waits on a condition variable, and lets go of a mutex meanwhile.
#[inline(always)]
unsafe extern "C-unwind" fn wait_on(real: Function, arguments: Arguments, wait: Wait) -> c_int {
    let mutex = arguments.0[1];
    charge(mutex, Wait::Mutex, Ends::One);
    // SAFETY: the caller's own call.
    unsafe { timed(real, arguments, wait) }
}

/// Lets go of a lock, or ends waits for another reason.
#[inline(always)]
unsafe extern "C-unwind" fn release(
    real: Function,
    Arguments([lock, a, b, c]): Arguments,
    wait: Wait,
    ends: Ends,
) -> c_int {
    charge(lock, wait, ends);
    // SAFETY: the caller's own call.
    unsafe { real(lock, a, b, c) }
}

/// Makes a call that waits, and records it.
#[inline(always)]
unsafe extern "C-unwind" fn timed(
    real: Function,
    Arguments([lock, a, b, c]): Arguments,
    wait: Wait,
) -> c_int {
    let Some(mut timed) = Recorder::of_watched().and_then(|r| r.time(lock as u64)) else {
        // SAFETY: the caller's own call.
        return unsafe { real(lock, a, b, c) };
    };
    let mut entered = ManuallyDrop::new(Entered::new(&timed, lock, wait));
    let mut buffer = MaybeUninit::uninit();
    // SAFETY: buffer and value stay where they are until the handler is taken off, or has run.
    unsafe {
        _pthread_cleanup_push(&raw mut buffer, leave, (&raw mut entered).cast());
    }
    entered.begin(&mut timed);
    // SAFETY: the caller's own call.
    let answer = unsafe { real(lock, a, b, c) };
    timed.end();
    let errno = ErrnoGuard::new();
    // SAFETY: the handler that was put on, which is run.
    unsafe { _pthread_cleanup_pop(&raw mut buffer, 1) };
    // Semaphores answer as system calls do.
    let error = match answer {
        -1 => errno.value(),
        error => error,
    };
    let has_waited = !matches!(
        error,
        libc::EINVAL | libc::EDEADLK | libc::EAGAIN | libc::EPERM
    );
    if has_waited {
        record_wait(timed, wait);
    }
    answer
}

/// The thread waits no longer.
unsafe extern "C" fn leave(entered: *mut c_void) {
    // SAFETY: `timed` passes a value of its own, and calls this once.
    unsafe { ptr::drop_in_place(entered.cast::<Entered>()) };
}
