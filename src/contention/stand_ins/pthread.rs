//! What stands in for the locks of the C library, which wait through its own system calls.
//!
//! A lock is tried first, by the function that is there for it; one that can be had is had by that,
//! and its thread has not waited. Where that function would not do what the real one does, the real
//! one is called: what a stand-in answers is what the real function would.
//!
//! Waits for a condition variable and for a semaphore can end with the thread, which is cancelled:
//! it unwinds through the stand-in, and a cleanup handler takes back what that has noted. So the
//! functions on that way have the C ABI that unwinds, and nothing to drop.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit, transmute};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::objects::{Until, can_be_tried, is_held, may_release};
use super::{Attempt, StandIn};
use crate::contention::at_lock::{Entered, charge, record_wait};
use crate::contention::looks::{Look, look, may_any_wait};
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
type Try = unsafe extern "C" fn(lock: usize) -> c_int;

unsafe extern "C" {
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
    ($($name:ident: $does:ident($($how:expr),*) $(, $attempt:literal)?;)+) => {
        $(
            mod $name {
                use super::*;

                pub(super) static REAL: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
                /// Null where there is none.
                pub(super) static TRY: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

                /// *Async-signal-safe* where the real one is.
                pub(super) unsafe extern "C-unwind" fn stand_in(
                    lock: usize,
                    a: usize,
                    b: usize,
                    c: usize,
                ) -> c_int {
                    // SAFETY: a word leads here only once the real function is known, and what is
                    // passed to that is the caller's. Both are functions of these kinds, or null.
                    unsafe {
                        let real = REAL.load(Ordering::Acquire);
                        let functions = Functions {
                            real: transmute::<*mut (), Function>(real),
                            attempt: transmute::<*mut (), Option<Try>>(TRY.load(Ordering::Relaxed)),
                        };
                        $does(functions, Arguments([lock, a, b, c]), $($how),*)
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
                    attempt: None$(.or(Some(Attempt {
                        name: $attempt,
                        function: &$name::TRY,
                    })))?,
                },
            )+]
        }
    };
}

/// What a stand-in calls.
#[derive(Clone, Copy)]
#[repr(C)]
struct Functions {
    real: Function,
    attempt: Option<Try>,
}

stand_ins! {
    pthread_mutex_lock: lock(Wait::Mutex, Until::Ever), "pthread_mutex_trylock";
    pthread_mutex_timedlock: lock(Wait::Mutex, Until::Ever), "pthread_mutex_trylock";
    pthread_mutex_clocklock: lock(Wait::Mutex, Until::OfClock), "pthread_mutex_trylock";
    pthread_mutex_unlock: release(Wait::Mutex);
    pthread_rwlock_rdlock: lock(Wait::RwLock, Until::Ever), "pthread_rwlock_tryrdlock";
    pthread_rwlock_timedrdlock: lock(Wait::RwLock, Until::Time), "pthread_rwlock_tryrdlock";
    pthread_rwlock_clockrdlock: lock(Wait::RwLock, Until::TimeOfClock), "pthread_rwlock_tryrdlock";
    pthread_rwlock_wrlock: lock(Wait::RwLock, Until::Ever), "pthread_rwlock_trywrlock";
    pthread_rwlock_timedwrlock: lock(Wait::RwLock, Until::Time), "pthread_rwlock_trywrlock";
    pthread_rwlock_clockwrlock: lock(Wait::RwLock, Until::TimeOfClock), "pthread_rwlock_trywrlock";
    pthread_rwlock_unlock: release(Wait::RwLock);
    pthread_cond_wait: wait_on(Wait::Condvar);
    pthread_cond_timedwait: wait_on(Wait::Condvar);
    pthread_cond_clockwait: wait_on(Wait::Condvar);
    pthread_cond_signal: release(Wait::Condvar);
    pthread_cond_broadcast: release(Wait::Condvar);
    sem_wait: take(Wait::Semaphore, Until::Ever), "sem_trywait";
    sem_timedwait: take(Wait::Semaphore, Until::Time), "sem_trywait";
    sem_clockwait: take(Wait::Semaphore, Until::TimeOfClock), "sem_trywait";
    sem_post: release(Wait::Semaphore);
}

/// Takes a lock; and records it if it has waited.
///
/// Inlined, as all of these are, so that the stack begins with the frame of the stand-in.
#[inline(always)]
unsafe extern "C-unwind" fn lock(
    Functions { real, attempt }: Functions,
    arguments: Arguments,
    wait: Wait,
    until: Until,
) -> c_int {
    let Arguments([lock, a, b, c]) = arguments;
    // SAFETY: the caller's own call.
    unsafe {
        let answer = match attempt.filter(|_| can_be_tried(lock, wait) && until.is_valid(a, b)) {
            Some(attempt) => attempt(lock),
            None if is_held(lock, wait) => libc::EBUSY,
            None => real(lock, a, b, c),
        };
        match answer {
            libc::EBUSY => timed(real, arguments, wait),
            answer => answer,
        }
    }
}

/// Takes a semaphore.
#[inline(always)]
unsafe extern "C-unwind" fn take(
    Functions { real, attempt }: Functions,
    arguments: Arguments,
    wait: Wait,
    until: Until,
) -> c_int {
    let Arguments([semaphore, a, b, c]) = arguments;
    // SAFETY: the caller's own call. It is a point of cancellation whether or not it waits.
    unsafe {
        let Some(attempt) = attempt.filter(|_| until.is_valid(a, b)) else {
            return match is_held(semaphore, wait) {
                true => timed(real, arguments, wait),
                false => real(semaphore, a, b, c),
            };
        };
        pthread_testcancel();
        let errno = ErrnoGuard::new();
        let answer = attempt(semaphore);
        drop(errno);
        match answer {
            0 => 0,
            _ => timed(real, arguments, wait),
        }
    }
}

/// Waits on a condition variable, and lets go of a mutex meanwhile.
#[inline(always)]
unsafe extern "C-unwind" fn wait_on(
    functions: Functions,
    arguments: Arguments,
    wait: Wait,
) -> c_int {
    // Recorded before it is let go, which is within the wait.
    let mutex = arguments.0[1];
    if look(mutex) != Look::Never
        && let Some(charged) = charge(mutex)
    {
        charged.record();
    }
    // SAFETY: the caller's own call.
    unsafe { timed(functions.real, arguments, wait) }
}

/// Lets go of a lock, or ends waits for another reason.
#[inline(always)]
unsafe extern "C-unwind" fn release(
    functions: Functions,
    Arguments([lock, a, b, c]): Arguments,
    wait: Wait,
) -> c_int {
    // SAFETY: the caller's own calls.
    unsafe {
        let look = match look(lock) {
            Look::Never => Look::Never,
            _ if !may_release(lock, wait) => Look::Never,
            Look::After if wait as u8 == Wait::Condvar as u8 => Look::Before,
            look => look,
        };
        let mut charged = match look {
            Look::Before => charge(lock),
            _ => None,
        };
        let answer = (functions.real)(lock, a, b, c);
        if answer != 0 {
            return answer;
        }
        if look == Look::After && may_any_wait(lock) {
            charged = charge(lock);
        }
        if let Some(charged) = charged {
            charged.record();
        }
        answer
    }
}

/// Makes a call that waits, and records it.
#[inline(always)]
unsafe extern "C-unwind" fn timed(
    real: Function,
    Arguments([lock, a, b, c]): Arguments,
    wait: Wait,
) -> c_int {
    let Some(recorder) = Recorder::of_watched() else {
        // SAFETY: the caller's own call.
        return unsafe { real(lock, a, b, c) };
    };
    let mut timed = recorder.time(lock as u64);
    let mut entered = ManuallyDrop::new(Entered::new(&timed, lock, wait));
    let mut buffer = MaybeUninit::uninit();
    // SAFETY: buffer and value stay where they are until the handler is taken off, or has run.
    unsafe {
        _pthread_cleanup_push(&raw mut buffer, leave, (&raw mut entered).cast());
    }
    let waiting = entered.as_ref().and_then(Entered::waiting);
    timed.begin(waiting);
    // SAFETY: the caller's own call.
    let answer = unsafe { real(lock, a, b, c) };
    timed.end(waiting);
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
    unsafe { ptr::drop_in_place(entered.cast::<Option<Entered>>()) };
}
