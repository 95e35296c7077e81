//! Registers of an interrupted thread, one file an architecture.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as native;
#[cfg(target_arch = "x86_64")]
use x86_64 as native;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "sigprof supports Linux on x86_64 and aarch64; this target's registers and unwind rules are not known to it"
);

/// How many registers an unwind knows: the general ones and the stack pointer.
pub(crate) const REGISTERS: usize = native::REGISTERS;
/// The DWARF number of the stack pointer.
pub(crate) const SP: u8 = native::SP;
/// The DWARF number of the frame pointer: `rbp` or `x29`.
pub(crate) const FP: u8 = native::FP;
/// The DWARF number that unwind data uses for the return address.
pub(crate) const RETURN_ADDRESS: u16 = native::RETURN_ADDRESS;
/// The DWARF numbers of the registers that a call preserves, without the stack pointer.
pub(crate) const CALLEE_SAVED: [u8; CALLEE_SAVED_COUNT] = native::CALLEE_SAVED;
pub(crate) const CALLEE_SAVED_COUNT: usize = native::CALLEE_SAVED_COUNT;
/// How many bytes below the stack pointer belong to the code that runs: a signal's handler leaves
/// them alone.
pub(crate) const RED_ZONE: u64 = native::RED_ZONE;
/// Whether the caller's stack pointer is right above the two words that a frame pointer leads to.
/// Elsewhere it is somewhere above.
pub(crate) const FRAME_RECORD_ENDS_FRAME: bool = native::FRAME_RECORD_ENDS_FRAME;

/// What the header of an ELF file calls this machine.
pub(crate) const ELF_MACHINE: u16 = native::ELF_MACHINE;

/// What unwinding begins with: all general registers and the stack pointer, by their DWARF numbers,
/// and the program counter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Registers {
    /// Program counter: the instruction that was about to run.
    pub(crate) pc: u64,
    pub(crate) general: [u64; REGISTERS],
}

impl Registers {
    /// The registers as they are where this is inlined. *Async-signal-safe.*
    #[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
    #[inline(always)]
    pub(crate) fn here() -> Self {
        native::here()
    }

    /// Stack pointer.
    pub(crate) fn sp(&self) -> u64 {
        self.general[usize::from(SP)]
    }

    /// Frame pointer: `rbp` or `x29`, whatever the code uses it for.
    pub(crate) fn fp(&self) -> u64 {
        self.general[usize::from(FP)]
    }
}

/// A system call that a signal interrupted, and that returns `EINTR` to the program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct InterruptedCall {
    /// Program counter: the instruction after the call's.
    pub(crate) pc: u64,
    /// Stack pointer.
    pub(crate) sp: u64,
    pub(crate) arguments: [u64; 6],
    /// The signals that the thread blocks otherwise: signal n is bit n - 1.
    pub(crate) blocked: u64,
}

/// The address without what pointer authentication puts into its upper bits. *Async-signal-safe.*
#[inline]
pub(crate) fn without_signature(address: u64) -> u64 {
    native::without_signature(address)
}

/// Where in the vDSO's code handlers return to, which unwind data need not describe.
pub(crate) fn signal_return(code: &[u8]) -> Option<usize> {
    native::signal_return(code)
}

/// Whether `code` begins with what returns from a handler, a system call, or with the second of its
/// two instructions where the first is what `before` ends with. *Async-signal-safe.*
pub(crate) fn returns_from_handler(before: &[u8], code: &[u8]) -> bool {
    native::SIGNAL_RETURNS.iter().any(|(first, second)| {
        let is_at_second = before.ends_with(first) && code.starts_with(second);
        let behind_first = code.strip_prefix(*first);
        is_at_second || behind_first.is_some_and(|rest| rest.starts_with(second))
    })
}

/// Where the kernel has put the registers that a signal interrupted, from the stack pointer of the
/// code that a handler returns to. *Async-signal-safe* if `read` is.
pub(crate) fn interrupted_by_signal(
    sp: u64,
    read: impl FnMut(u64) -> Option<u64>,
) -> Option<Registers> {
    native::interrupted_by_signal(sp, read)
}

/// How far above the stack pointer the caller's frame begins, at a place in the procedure linkage
/// table, of which 16 bytes are given, from a multiple of 16 on; `None` where they are something
/// else. *Async-signal-safe.*
pub(crate) fn linkage_frame_offset(place: u64, code: [u8; 16]) -> Option<i32> {
    native::linkage_frame_offset(place, code)
}
