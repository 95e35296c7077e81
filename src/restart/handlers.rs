//! Handlers of the program's that run for an interrupted call.

use super::calls::Mask;
use crate::sys::arch::InterruptedCall;
use crate::sys::signal::{handled_by_program, pending};
use crate::sys::signal_frame::{Returned, handler_returned};

/// Whether a handler of the program's may have run for the `EINTR` of a call, or is about to, so
/// that the program must see it. *Async-signal-safe.*
///
/// A handler may have run that blocks the tick's signal, or while whose return the signal came:
/// registers and mask are then as if none had. What tells is the frame that it has left on the
/// thread's stack, where the handler of the tick has another one to run on.
///
/// # Safety
///
/// `context` is the third argument of an `SA_SIGINFO` handler that runs with all signals blocked
/// but those of faults, and `call` was found there. It does not begin again once this is true.
pub(super) unsafe fn may_have_run(
    context: *const libc::c_void,
    call: &InterruptedCall,
    mask: Mask,
) -> bool {
    let handled = handled_by_program(match mask {
        Mask::Kept => call.blocked,
        Mask::Replaced => 0,
    });
    if handled.signals == 0 {
        return false;
    }
    if handled.is_on_alternate_stack {
        return true;
    }
    // SAFETY: by the caller's contract.
    match unsafe { handler_returned(context, call) } {
        // Those that only the call's own mask admits come when it has begun again.
        Returned::No => pending() & handled.signals & !call.blocked != 0,
        Returned::Maybe | Returned::Unknown => true,
    }
}
