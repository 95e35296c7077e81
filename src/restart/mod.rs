//! Has a system call begin again that a signal of the profiler's interrupted, so that no call of
//! the program's fails with `EINTR` because it is profiled.
//!
//! The kernel restarts most calls itself after a handler with `SA_RESTART`. Those that wait for a
//! moment (`poll`, `epoll_wait`, `nanosleep`, `recv` with a timeout: signal(7) has the list) it
//! does not: they return `EINTR`. Where the handler of a tick finds that about to happen, it sets
//! the program counter back to the call's instruction, and the call begins again when the handler
//! returns.
//!
//! # Why the program's own signals are not lost
//!
//! A call may begin again only if no handler of the program's has run for its `EINTR`: a program
//! that waits until a handler has said that it may go on would wait for good. The handler of a tick
//! cannot see whether one has: a tick that arrives while the other handler returns finds the very
//! registers, mask and stack that it would find without. So a call begins again only where no
//! signal that the thread could have taken in it has a handler of the program's. A program that
//! has such handlers must bear `EINTR` from its waits anyway; sigprof counts those it adds.

mod calls;

use calls::{Mask, waits_with};

use crate::sys::arch::InterruptedCall;
use crate::sys::signal::program_handles;
use crate::sys::system_call::{Trace, is_socket};

/// What became of a system call that a tick interrupted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// It begins again when the handler returns.
    BeginsAgain,
    /// It returns `EINTR`.
    Fails,
}

/// Has the system call begin again that a signal interrupted, where that does no harm; `None` where
/// the signal did not make a call return `EINTR`. `seen` is the call that the signal's sender saw
/// the thread wait in. *Async-signal-safe.*
///
/// # Safety
///
/// `context` is the third argument of an `SA_SIGINFO` handler that runs with all signals blocked
/// but those of faults.
#[inline]
pub(crate) unsafe fn restart(context: *const libc::c_void, seen: Option<Trace>) -> Option<Outcome> {
    // SAFETY: by the caller's contract.
    let call = unsafe { InterruptedCall::from_ucontext(context) }?;
    // SAFETY: by the caller's contract, and the call was read from the context.
    Some(unsafe { restart_call(context, &call, seen) })
}

/// Out of line: few ticks come here, and the others need not have its stack frame.
#[cold]
#[inline(never)]
unsafe fn restart_call(
    context: *const libc::c_void,
    call: &InterruptedCall,
    seen: Option<Trace>,
) -> Outcome {
    let number = seen.filter(|seen| seen.is_of(call)).map(|seen| seen.number);
    let Some(number) = number.filter(|&number| may_begin_again(number, call)) else {
        return Outcome::Fails;
    };
    // SAFETY: the context is the one that the call was read from, and the number is the call's.
    unsafe { InterruptedCall::begin_again(context.cast_mut(), number) };
    Outcome::BeginsAgain
}

fn may_begin_again(number: u32, call: &InterruptedCall) -> bool {
    match waits_with(number, &call.arguments, is_socket) {
        None => false,
        Some(Mask::Kept) => !program_handles(call.blocked),
        Some(Mask::Replaced) => !program_handles(0),
    }
}
