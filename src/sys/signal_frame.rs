//! What the kernel has written on a thread's stack for handlers that have returned.

use super::arch::InterruptedCall;

/// Whether a handler of the program's has returned to the end of an interrupted call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Returned {
    No,
    /// Or one had returned to the end of the same call before it was made again.
    Maybe,
    /// It cannot be told.
    Unknown,
}

/// Whether a handler without `SA_ONSTACK` has run and returned for an interrupted call, before the
/// handler of this signal. That is told once: a second answer is [`Returned::No`].
/// *Async-signal-safe.*
///
/// The kernel puts the registers on a handler's stack, and the handler's return takes them from
/// there: they stay where they were, below the interrupted stack pointer. The kernel chooses the
/// place by the stack pointer and by the size of what else it writes. Both are the same for the
/// frame of the calling handler, but for the stack that it is on: that one must be the alternate
/// stack, since it would have overwritten the other frame else.
///
/// # Safety
///
/// `context` is the third argument of an `SA_SIGINFO` handler, in which `call` was found.
pub(crate) unsafe fn handler_returned(
    context: *const libc::c_void,
    call: &InterruptedCall,
) -> Returned {
    // SAFETY: by the caller's contract.
    unsafe { native::handler_returned(context, call) }
}

/// `struct rt_sigframe` and what lies above (`get_sigframe`, arch/x86/kernel/signal.c).
#[cfg(target_arch = "x86_64")]
mod native {
    use std::mem::offset_of;

    use super::{InterruptedCall, Returned};
    use crate::sys::arch::RED_ZONE;
    use crate::sys::memory::copy_from;

    pub(super) unsafe fn handler_returned(
        context: *const libc::c_void,
        call: &InterruptedCall,
    ) -> Returned {
        // SAFETY: the kernel passes a `ucontext_t` there, by the caller's contract.
        let own = unsafe { &*context.cast::<libc::ucontext_t>() };
        // SAFETY: the same context.
        let Some(frame) = (unsafe { Frame::of(own) }) else {
            return Returned::Unknown;
        };
        let gregs = frame.context_below(call.sp.wrapping_sub(RED_ZONE)) + GREGS as u64;
        let mut left = [0; size_of::<libc::greg_t>() * REGISTERS];
        if copy_from(gregs, &mut left).is_none() {
            // A handler's frame would be memory.
            return Returned::No;
        }
        let left = left.chunks_exact(size_of::<libc::greg_t>());
        let now = &own.uc_mcontext.gregs[..REGISTERS];
        let is_same = left
            .zip(now)
            .all(|(left, now)| left == now.to_ne_bytes().as_slice());
        if !is_same {
            return Returned::No;
        }
        // The next one is to find what a handler after this one has left.
        // SAFETY: these are the registers of a handler's frame, which has returned: they lie below
        // the stack pointer and its red zone, where any signal may write.
        unsafe {
            let pc = gregs as *mut libc::greg_t;
            pc.add(libc::REG_RIP as usize).write_volatile(0);
        }
        Returned::Maybe
    }

    const GREGS: usize =
        offset_of!(libc::ucontext_t, uc_mcontext) + offset_of!(libc::mcontext_t, gregs);
    /// The general registers, the program counter and the flags, which lie first.
    const REGISTERS: usize = libc::REG_EFL as usize + 1;

    /// The sizes of what the kernel writes for a handler, from above.
    #[derive(Debug, Eq, PartialEq)]
    struct Frame {
        /// State of the floating point unit, which begins at a multiple of [`ALIGNMENT`].
        state_size: u64,
        /// From the beginning of the context to that of the state.
        context_to_state: u64,
    }

    /// Of the state, as the processor's instructions want it (`fpu__alloc_mathframe`).
    const ALIGNMENT: u64 = 64;

    impl Frame {
        /// The frame of a handler that runs on the thread's alternate stack; `None` where it runs
        /// on another one.
        ///
        /// # Safety
        ///
        /// The kernel has passed the context to a handler that runs now.
        unsafe fn of(own: &libc::ucontext_t) -> Option<Self> {
            let stack = own.uc_stack;
            let state = own.uc_mcontext.fpregs;
            if stack.ss_sp.is_null() || state.is_null() {
                return None;
            }
            // SAFETY: the context has a state, whose first part is as large as these fields need.
            let reserved = unsafe { state.byte_add(RESERVED).cast::<Reserved>().read_unaligned() };
            if reserved.magic != FP_XSTATE_MAGIC1 {
                return None;
            }
            let state = state as u64;
            let frame = Self {
                state_size: reserved.extended_size.into(),
                context_to_state: state.checked_sub(std::ptr::from_ref(own) as u64)?,
            };
            let top = stack.ss_sp as u64 + stack.ss_size as u64;
            (frame.state_below(top) == state).then_some(frame)
        }

        /// Where the state lies of a frame that is put below an address.
        fn state_below(&self, top: u64) -> u64 {
            top.wrapping_sub(self.state_size) & !(ALIGNMENT - 1)
        }

        /// Where the context lies.
        fn context_below(&self, top: u64) -> u64 {
            self.state_below(top).wrapping_sub(self.context_to_state)
        }
    }

    /// `struct _fpx_sw_bytes`, arch/x86/include/uapi/asm/sigcontext.h.
    #[repr(C)]
    struct Reserved {
        magic: u32,
        /// Of the whole state.
        extended_size: u32,
    }

    /// Where it lies in the state.
    const RESERVED: usize = 464;
    const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
}

/// No call is found interrupted.
#[cfg(not(target_arch = "x86_64"))]
mod native {
    use super::{InterruptedCall, Returned};

    pub(super) unsafe fn handler_returned(
        _context: *const libc::c_void,
        _call: &InterruptedCall,
    ) -> Returned {
        Returned::Unknown
    }
}
