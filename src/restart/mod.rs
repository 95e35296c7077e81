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
//! A call may begin again only if no handler of the program's has run for its `EINTR`, and none is
//! about to: a program that waits until a handler has said that it may go on would wait for good
//! ([`handlers`] says how that is known). A signal that comes later comes as if just before the
//! call, which every program must bear. Where it cannot be known, `EINTR` stays and is counted.
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
mod handlers;
#[cfg(target_arch = "x86_64")]
mod instruction;
#[cfg(target_arch = "x86_64")]
mod linkage;
#[cfg(target_arch = "x86_64")]
mod number;
mod numbers;
mod repeats;

use std::ops::Range;

use calls::waits_with;
use handlers::may_have_run;
pub(crate) use numbers::{Number, Numbers, Sought};
pub(crate) use repeats::Repeats;

use crate::sys::arch::InterruptedCall;
use crate::sys::memory::copy_from;
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
    // SAFETY: by the caller's contract.
    let number = unsafe { may_begin_again(context, call, seen, repeats, number) };
    let context = context.cast_mut();
    // SAFETY: the context is the one that the call was read from, and the number is the call's.
    unsafe {
        match number {
            Some(number) => InterruptedCall::begin_again(context, number),
            // Not by the next tick either: it would not find what has kept this one from it.
            None => InterruptedCall::let_fail(context),
        }
    }
    match number {
        Some(_) => Outcome::BeginsAgain,
        None => Outcome::Fails,
    }
}

/// The number of a call that may begin again.
///
/// # Safety
///
/// As for [`restart`].
unsafe fn may_begin_again(
    context: *const libc::c_void,
    call: &InterruptedCall,
    seen: Option<Trace>,
    repeats: Option<&Repeats>,
    number: impl FnOnce() -> Option<u32>,
) -> Option<u32> {
    let seen = seen.filter(|seen| seen.is_of(call)).map(|seen| seen.number);
    let number = seen.or_else(number)?;
    let mask = waits_with(number, &call.arguments, is_socket)?;
    if repeats.is_some_and(|repeats| !repeats.allow(call)) {
        return None;
    }
    // Last, because signals go on coming. SAFETY: by the caller's contract.
    let may_have_run = unsafe { may_have_run(context, call, mask) };
    (!may_have_run).then_some(number)
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
