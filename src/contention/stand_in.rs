//! What stands in for the C library's `syscall` while the process is watched.

use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::recorder::Recorder;
use crate::sys::arch::Registers;
use crate::sys::clock::Clock;
use crate::sys::got::{self, Outcome, Replacement};
use crate::sys::maps::Maps;
use crate::sys::modules::Generation;
use crate::sys::signal::ErrnoGuard;

const NAME: &[u8] = b"syscall";

/// `syscall`, with as many arguments as any system call has. It takes them in C's way for functions
/// with a variable number of them, which is, for numbers and addresses, the way for all others, on
/// x86_64 and aarch64.
type Syscall = unsafe extern "C-unwind" fn(
    number: libc::c_long,
    a: libc::c_long,
    b: libc::c_long,
    c: libc::c_long,
    d: libc::c_long,
    e: libc::c_long,
    f: libc::c_long,
) -> libc::c_long;

/// The real `syscall`: set before any word leads to the stand-in, and never cleared.
static REAL: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Whether there is a function to stand in for.
pub(super) fn is_possible() -> bool {
    got::definition(NAME).is_some()
}

/// Has modules that were loaded since call the stand-in. `generation` was taken before `maps` were
/// read. `None` if modules have come or gone since.
pub(super) fn put_in(generation: Generation, maps: &Maps) -> Option<Outcome> {
    let function = got::definition(NAME)?;
    REAL.store(function as *mut (), Ordering::Release);
    let what = Replacement {
        name: NAME,
        function,
        stand_in: stand_in(),
    };
    got::replace(what, generation, maps)
}

/// Has all modules call the real function again.
pub(super) fn take_out() {
    got::restore(NAME, stand_in());
}

fn stand_in() -> usize {
    (syscall as Syscall) as usize
}

/// Stands in for `syscall`. It reads one argument from the stack that few callers pass, as the C
/// library's own does. *Async-signal-safe*, and leaves errno as the system call does.
unsafe extern "C-unwind" fn syscall(
    number: libc::c_long,
    a: libc::c_long,
    b: libc::c_long,
    c: libc::c_long,
    d: libc::c_long,
    e: libc::c_long,
    f: libc::c_long,
) -> libc::c_long {
    // SAFETY: a word leads here only once the real function is known, and that has this signature.
    let real = unsafe { transmute::<*mut (), Syscall>(REAL.load(Ordering::Acquire)) };
    if number == libc::SYS_futex && is_wait(b) {
        // SAFETY: the caller's own call.
        return unsafe { wait(real, [a, b, c, d, e, f]) };
    }
    // SAFETY: as above.
    unsafe { real(number, a, b, c, d, e, f) }
}

/// Whether a thread that makes this futex call may be kept waiting.
fn is_wait(operation: libc::c_long) -> bool {
    const OPTIONS: libc::c_int = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
    matches!(
        operation as libc::c_int & !OPTIONS,
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI
    )
}

/// Waits, and records that.
///
/// Inlined, so that the stack begins with the frame of the stand-in, which is left out.
///
/// # Safety
///
/// As of the futex call.
#[inline(always)]
unsafe fn wait(real: Syscall, [a, b, c, d, e, f]: [libc::c_long; 6]) -> libc::c_long {
    let recorder = Recorder::of_watched();
    let begin_ns = Clock::MONOTONIC.now_ns();
    // SAFETY: the caller's own call.
    let result = unsafe { real(libc::SYS_futex, a, b, c, d, e, f) };
    let (Some(recorder), Ok(begin_ns)) = (recorder, begin_ns) else {
        return result;
    };
    // Kept as the system call has left it.
    let errno = ErrnoGuard::new();
    // The word was not what the caller had seen: it did not wait.
    if result == -1 && errno.value() == libc::EAGAIN {
        return result;
    }
    if let Ok(end_ns) = Clock::MONOTONIC.now_ns() {
        recorder.waited(Registers::here(), begin_ns, end_ns);
    }
    result
}
