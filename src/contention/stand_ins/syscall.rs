//! What stands in for the C library's `syscall`, through which Rust's locks wait.

use std::arch::naked_asm;
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::StandIn;
use crate::contention::recorder::Recorder;
use crate::sys::arch::Registers;
use crate::sys::signal::ErrnoGuard;

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

static REAL: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

pub(super) fn stand_in() -> StandIn {
    StandIn {
        name: "syscall",
        real: &REAL,
        address: syscall as *const () as usize,
        attempt: None,
    }
}

/// Stands in for `syscall`: a futex call goes to [`futex`], with the address that it returns to in
/// the place of its number, and every other call to the real function as it is.
/// *Async-signal-safe.*
///
/// The function that makes the call may have been left by a jump into this one, and be missing in
/// the stack: `Condvar::notify_one` of the standard library is. So what ended a wait is told by
/// where the waiter waits.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "cmp rdi, {number}",
        "jne 2f",
        "mov rdi, [rsp]",
        "jmp {futex}",
        "2:",
        "jmp qword ptr [rip + {real}]",
        ".cfi_endproc",
        number = const libc::SYS_futex,
        futex = sym futex,
        real = sym REAL,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        // A landing pad for indirect calls (`bti c`), as calls through a word are.
        "hint #34",
        "cmp x0, #{number}",
        "b.ne 2f",
        "mov x0, x30",
        "b {futex}",
        "2:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        ".cfi_endproc",
        number = const libc::SYS_futex,
        futex = sym futex,
        real = sym REAL,
    )
}

/// Makes a futex call, which returns to `caller`. It reads one argument from the stack that few
/// callers pass, as the C library's own does. It leaves errno as the system call does.
/// *Async-signal-safe.*
unsafe extern "C-unwind" fn futex(
    caller: libc::c_long,
    a: libc::c_long,
    b: libc::c_long,
    c: libc::c_long,
    d: libc::c_long,
    e: libc::c_long,
    f: libc::c_long,
) -> libc::c_long {
    // SAFETY: a word leads here only once the real function is known, and that has this signature.
    let real = unsafe { transmute::<*mut (), Syscall>(REAL.load(Ordering::Acquire)) };
    let arguments = [a, b, c, d, e, f];
    // SAFETY: the caller's own calls.
    unsafe {
        match Operation::of(b) {
            Operation::Wait => wait(real, arguments, caller as u64),
            Operation::Wake => wake(real, arguments),
            Operation::Other => real(libc::SYS_futex, a, b, c, d, e, f),
        }
    }
}

/// What a futex call does.
enum Operation {
    /// It may keep its thread waiting.
    Wait,
    /// It may end the waits of others.
    Wake,
    Other,
}

impl Operation {
    fn of(operation: libc::c_long) -> Self {
        const OPTIONS: libc::c_int = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
        match operation as libc::c_int & !OPTIONS {
            libc::FUTEX_WAIT
            | libc::FUTEX_WAIT_BITSET
            | libc::FUTEX_LOCK_PI
            | libc::FUTEX_LOCK_PI2 => Self::Wait,
            libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => Self::Wake,
            _ => Self::Other,
        }
    }
}

/// Waits, and records that.
///
/// Inlined, so that the stack begins with the frame of the stand-in, which is left out.
///
/// # Safety
///
/// As of the futex call.
#[inline(always)]
unsafe fn wait(real: Syscall, [a, b, c, d, e, f]: [libc::c_long; 6], caller: u64) -> libc::c_long {
    let Some(recorder) = Recorder::of_watched() else {
        // SAFETY: the caller's own call.
        return unsafe { real(libc::SYS_futex, a, b, c, d, e, f) };
    };
    let mut timed = recorder.time(a as u64);
    let waiting = (timed.is_entered())
        .then(|| timed.enter(a as u64, caller))
        .flatten();
    timed.begin(waiting.as_ref());
    // SAFETY: the caller's own call.
    let result = unsafe { real(libc::SYS_futex, a, b, c, d, e, f) };
    timed.end(waiting.as_ref());
    // Kept as the system call has left it.
    let errno = ErrnoGuard::new();
    drop(waiting);
    // The word was not what the caller had seen: it did not wait.
    if result == -1 && errno.value() == libc::EAGAIN {
        return result;
    }
    if let Some(sample) = timed.sample(caller) {
        sample.record(Registers::here());
    }
    result
}

/// Ends the waits of others, and records for how long they have waited for that.
///
/// Inlined, as above.
///
/// # Safety
///
/// As of the futex call.
#[inline(always)]
unsafe fn wake(real: Syscall, [a, b, c, d, e, f]: [libc::c_long; 6]) -> libc::c_long {
    // Before the call: those who are woken leave.
    let charged =
        Recorder::of_watched().and_then(|recorder| Some((recorder, recorder.charge(a as u64)?)));
    // SAFETY: the caller's own call.
    let woken = unsafe { real(libc::SYS_futex, a, b, c, d, e, f) };
    if let (Some((recorder, charge)), 1..) = (charged, woken)
        && let Some(sample) = recorder.answer(charge)
    {
        sample.record(Registers::here());
    }
    woken
}
