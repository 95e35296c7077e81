//! aarch64: `ucontext_t` as the kernel lays it out on the signal frame.

use super::Registers;

impl Registers {
    /// The registers at the interrupted instruction. *Async-signal-safe.*
    ///
    /// # Safety
    ///
    /// `context` is the third argument of an `SA_SIGINFO` handler.
    pub(crate) unsafe fn from_ucontext(context: *const libc::c_void) -> Self {
        // SAFETY: the kernel passes a `ucontext_t` there, by the caller's contract.
        let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        Self {
            pc: machine.pc,
            sp: machine.sp,
            fp: machine.regs[29],
            lr: machine.regs[30],
        }
    }
}
