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
//!
//! # How the number of a call is known
//!
//! The kernel has put `EINTR` where the number was. A look at a waiting thread carries the number
//! (`/proc/self/task/N/syscall`); else the code before the call tells, which is followed from the
//! beginning of its function. Where that was called with the number, as `syscall` is, so does the
//! code of its caller.

#[cfg(all(test, target_arch = "x86_64"))]
mod against_libc;
#[cfg(all(test, target_arch = "x86_64"))]
mod against_objdump;
#[cfg(all(test, target_arch = "x86_64"))]
mod against_processor;
mod calls;
#[cfg(target_arch = "x86_64")]
mod function;
#[cfg(target_arch = "x86_64")]
mod instruction;
#[cfg(target_arch = "x86_64")]
mod linkage;
#[cfg(target_arch = "x86_64")]
mod number;
mod numbers;
mod repeats;

use std::ops::Range;

use calls::{Mask, waits_with};
pub(crate) use numbers::{Number, Numbers, Sought};
pub(crate) use repeats::Repeats;

use crate::sys::arch::InterruptedCall;
use crate::sys::memory::copy_from;
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

/// The system call that a signal has interrupted, and that returns `EINTR`; `None` where the signal
/// has made no call do so. *Async-signal-safe.*
///
/// # Safety
///
/// `context` is the third argument of an `SA_SIGINFO` handler.
#[inline]
pub(crate) unsafe fn interrupted(context: *const libc::c_void) -> Option<InterruptedCall> {
    // SAFETY: by the caller's contract.
    unsafe { InterruptedCall::from_ucontext(context) }
}

/// Has an interrupted call begin again where that does no harm. `seen` is the call that the
/// signal's sender saw the thread wait in; where that is another one, `number` finds the call's
/// number. *Async-signal-safe* if `number` is.
///
/// # Safety
///
/// `context` is the third argument of an `SA_SIGINFO` handler that runs with all signals blocked
/// but those of faults, and [`interrupted`] found the call there.
pub(crate) unsafe fn restart(
    context: *const libc::c_void,
    call: &InterruptedCall,
    seen: Option<Trace>,
    repeats: Option<&Repeats>,
    number: impl FnOnce() -> Option<u32>,
) -> Outcome {
    let seen = seen.filter(|seen| seen.is_of(call)).map(|seen| seen.number);
    let number = seen.or_else(number);
    let Some(number) = number.filter(|&number| may_begin_again(number, call)) else {
        return Outcome::Fails;
    };
    if repeats.is_some_and(|repeats| !repeats.allow(call)) {
        return Outcome::Fails;
    }
    // SAFETY: the context is the one that the call was read from, and the number is the call's.
    unsafe { InterruptedCall::begin_again(context.cast_mut(), number) };
    Outcome::BeginsAgain
}

/// What is known of the number of a system call in the code of a function.
/// *Async-signal-safe*; takes 12 KiB of stack.
#[cfg(target_arch = "x86_64")]
pub(crate) fn number_in(function: Range<u64>, sought: Sought) -> Number {
    match function::Function::new(function, &copy_from) {
        Some(mut function) => number::number_in(&mut function, sought),
        None => Number::Unknown,
    }
}

/// The place of the call that returns to `return_address`, if that leads to
/// `function`. *Async-signal-safe.*
#[cfg(target_arch = "x86_64")]
pub(crate) fn call_of(function: u64, return_address: u64) -> Option<u64> {
    linkage::call_of(function, return_address, &copy_from)
}

/// No call is found interrupted whose number would be looked for.
#[cfg(not(target_arch = "x86_64"))]
mod nowhere {
    use super::*;

    impl Sought {
        pub(crate) fn at_call(place: u64) -> Self {
            let register = 0;
            Self { place, register }
        }
    }

    pub(crate) fn number_in(_function: Range<u64>, _sought: Sought) -> Number {
        Number::Unknown
    }

    pub(crate) fn call_of(_function: u64, _return_address: u64) -> Option<u64> {
        None
    }
}
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use nowhere::{call_of, number_in};

fn may_begin_again(number: u32, call: &InterruptedCall) -> bool {
    match waits_with(number, &call.arguments, is_socket) {
        None => false,
        Some(Mask::Kept) => !program_handles(call.blocked),
        Some(Mask::Replaced) => !program_handles(0),
    }
}
