//! aarch64: DWARF's numbers (DWARF for the Arm 64-bit Architecture, 4.1), and `ucontext_t` as the
//! kernel lays it out on the signal frame.

use super::{InterruptedCall, Registers};

/// x0 to x30, and the stack pointer.
pub(super) const REGISTERS: usize = 32;
pub(super) const SP: u8 = 31;
pub(super) const FP: u8 = 29;
/// The link register.
pub(super) const RETURN_ADDRESS: u16 = 30;
/// None in the procedure call standard.
pub(super) const RED_ZONE: u64 = 0;
pub(super) const CALLEE_SAVED_COUNT: usize = 11;
pub(super) const CALLEE_SAVED: [u8; CALLEE_SAVED_COUNT] =
    [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
/// Compilers put it at the lowest address of a frame, or above other registers.
pub(super) const FRAME_RECORD_ENDS_FRAME: bool = false;
pub(super) const ELF_MACHINE: u16 = libc::EM_AARCH64;

impl Registers {
    /// The registers at the interrupted instruction. *Async-signal-safe.*
    ///
    /// # Safety
    ///
    /// `context` is the third argument of an `SA_SIGINFO` handler.
    pub(crate) unsafe fn from_ucontext(context: *const libc::c_void) -> Self {
        // SAFETY: the kernel passes a `ucontext_t` there, by the caller's contract.
        let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        let mut general = [0; REGISTERS];
        let (numbered, sp) = general.split_at_mut(machine.regs.len());
        numbered.copy_from_slice(&machine.regs);
        sp.fill(machine.sp);
        Self {
            pc: machine.pc,
            general,
        }
    }
}

impl InterruptedCall {
    /// None is found: the result has taken the place of the first argument, so that no call can be
    /// made once more.
    ///
    /// # Safety
    ///
    /// None is needed.
    #[inline]
    pub(crate) unsafe fn from_ucontext(_context: *const libc::c_void) -> Option<Self> {
        None
    }

    /// Never called: no call is found.
    pub(crate) fn instruction(&self) -> u64 {
        self.pc
    }

    /// Never called: no call is found.
    ///
    /// # Safety
    ///
    /// None is needed.
    pub(crate) unsafe fn begin_again(_context: *mut libc::c_void, _number: u32) {}

    /// Never called: no call is found.
    ///
    /// # Safety
    ///
    /// None is needed.
    pub(crate) unsafe fn let_fail(_context: *mut libc::c_void) {}
}

/// The registers as they are where this is inlined; of the general ones those that a call
/// preserves. *Async-signal-safe.*
#[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
#[inline(always)]
pub(super) fn here() -> Registers {
    let pc;
    let mut general = [0; REGISTERS];
    // SAFETY: stores into what the pointer leads to.
    unsafe {
        std::arch::asm!(
            "stp x19, x20, [{general}, #8 * 19]",
            "stp x21, x22, [{general}, #8 * 21]",
            "stp x23, x24, [{general}, #8 * 23]",
            "stp x25, x26, [{general}, #8 * 25]",
            "stp x27, x28, [{general}, #8 * 27]",
            "stp x29, x30, [{general}, #8 * 29]",
            "mov {pc}, sp",
            "str {pc}, [{general}, #8 * 31]",
            "adr {pc}, .",
            general = in(reg) general.as_mut_ptr(),
            pc = out(reg) pc,
            options(nostack, preserves_flags),
        );
    }
    Registers { pc, general }
}

/// User space has 48 bits of addresses on Linux, 52 with a hint that stacks and code do not get;
/// what lies above is a tag or a signature.
pub(super) fn without_signature(address: u64) -> u64 {
    address & ((1 << 48) - 1)
}

/// The kernel's vDSO says nothing of it in unwind data since Linux 5.8. It is told by its two
/// instructions, as debuggers tell it, which is why they do not change
/// (arch/arm64/kernel/vdso/sigreturn.S).
pub(super) fn signal_return(code: &[u8]) -> Option<usize> {
    (0..code.len())
        .step_by(4)
        .find(|&at| super::returns_from_handler(&[], &code[at..]))
}

/// `mov x8, #139` (rt_sigreturn), and `svc #0`.
pub(super) const SIGNAL_RETURNS: [(&[u8], &[u8]); 1] =
    [(&[0x68, 0x11, 0x80, 0xd2], &[0x01, 0x00, 0x00, 0xd4])];

/// The stack pointer points to the `siginfo_t` when a handler has returned, and the `ucontext_t`
/// follows (`struct rt_sigframe`, arch/arm64/kernel/signal.c).
pub(super) fn interrupted_by_signal(
    sp: u64,
    mut read: impl FnMut(u64) -> Option<u64>,
) -> Option<Registers> {
    const MACHINE: usize =
        size_of::<libc::siginfo_t>() + std::mem::offset_of!(libc::ucontext_t, uc_mcontext);
    const REGS: usize = MACHINE + std::mem::offset_of!(libc::mcontext_t, regs);
    const PC: usize = MACHINE + std::mem::offset_of!(libc::mcontext_t, pc);
    let mut at = |offset: usize| read(sp.checked_add(offset as u64)?);
    // The stack pointer follows x30.
    let mut general = [0; REGISTERS];
    for (number, register) in general.iter_mut().enumerate() {
        *register = at(REGS + number * 8)?;
    }
    let pc = at(PC)?;
    Some(Registers { pc, general })
}

/// Not looked for: a table's entries leave stack and link register alone.
pub(super) fn linkage_frame_offset(_place: u64, _code: [u8; 16]) -> Option<i32> {
    None
}
