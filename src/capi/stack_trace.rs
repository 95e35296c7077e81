//! `ProfilerGetStackTrace`.

use std::ffi::{c_int, c_void};

use crate::cpu::backtrace;
use crate::sys::arch::Registers;
use crate::sys::libgcc::{Frame, each_frame};

/// Room for the addresses that a caller asks for.
struct Wanted {
    result: *mut *mut c_void,
    most: usize,
    /// Frames to leave out before the first.
    skip: usize,
    /// Addresses that are stored.
    stored: usize,
}

impl Wanted {
    /// Takes the next frame. Whether another one is wanted.
    fn take(&mut self, pc: u64) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.stored < self.most {
            // SAFETY: within the caller's room, as `most` has it.
            unsafe { self.result.add(self.stored).write(pc as *mut c_void) };
            self.stored += 1;
        }
        self.stored < self.most
    }
}

/// Stores the call chain of the calling thread, innermost first, and returns its length: the pc of
/// the interrupted code where a signal's `ucontext` is given, else the return address in the
/// caller; then return addresses. While a profile is recorded, stacks are followed to 512 frames.
///
/// *Async-signal-safe* while a profile is recorded. Else the C compiler's unwinder is asked, which
/// takes a lock of the loader's before glibc 2.35.
///
/// # Safety
///
/// `result` has room for `max_depth` addresses, and `ucontext` is null or the third argument of an
/// `SA_SIGINFO` handler that runs on the calling thread.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ProfilerGetStackTrace(
    result: *mut *mut c_void,
    max_depth: c_int,
    skip_count: c_int,
    ucontext: *const c_void,
) -> c_int {
    let mut wanted = Wanted {
        result,
        most: max_depth.try_into().unwrap_or(0),
        skip: skip_count.try_into().unwrap_or(0),
        stored: 0,
    };
    if wanted.most == 0 || result.is_null() {
        return 0;
    }
    let registers = if ucontext.is_null() {
        // From here the first frame is this function's own.
        wanted.skip = wanted.skip.saturating_add(1);
        Registers::here()
    } else {
        // SAFETY: the caller's contract.
        unsafe { Registers::from_ucontext(ucontext) }
    };
    let by_tables = backtrace(registers, |frames| frames.iter().all(|&pc| wanted.take(pc)));
    if by_tables.is_none() {
        let mut is_there = false;
        each_frame(&mut |Frame { pc, sp }| {
            is_there |= match ucontext.is_null() {
                true => sp >= registers.sp(),
                false => pc == registers.pc,
            };
            !is_there || wanted.take(pc)
        });
    }
    wanted.stored as c_int
}
