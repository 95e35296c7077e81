//! x86_64: `ucontext_t` as the kernel lays it out on the signal frame.

use super::Registers;

impl Registers {
    /// The registers at the interrupted instruction. *Async-signal-safe.*
    ///
    /// # Safety
    ///
    /// `context` is the third argument of an `SA_SIGINFO` handler.
    pub(crate) unsafe fn from_ucontext(context: *const libc::c_void) -> Self {
        // SAFETY: the kernel passes a `ucontext_t` there, by the caller's contract.
        let gregs = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        Self {
            pc: gregs[libc::REG_RIP as usize] as u64,
            sp: gregs[libc::REG_RSP as usize] as u64,
            fp: gregs[libc::REG_RBP as usize] as u64,
        }
    }
}
