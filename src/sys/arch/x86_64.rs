//! x86_64: DWARF's numbers (System V ABI, AMD64 supplement, figure 3.36), and `ucontext_t` as the
//! kernel lays it out on the signal frame.

use super::{InterruptedCall, Registers};
use crate::sys::memory::copy_from;

pub(super) const REGISTERS: usize = 16;
pub(super) const SP: u8 = 7;
pub(super) const FP: u8 = 6;
pub(super) const RETURN_ADDRESS: u16 = 16;
/// System V ABI, 3.2.2.
pub(super) const RED_ZONE: u64 = 128;
pub(super) const CALLEE_SAVED_COUNT: usize = 6;
pub(super) const CALLEE_SAVED: [u8; CALLEE_SAVED_COUNT] = [3, 6, 12, 13, 14, 15];
/// The return address was pushed last before the frame, and the frame pointer next.
pub(super) const FRAME_RECORD_ENDS_FRAME: bool = true;
pub(super) const ELF_MACHINE: u16 = libc::EM_X86_64;

/// Where each register lies in `gregs`, by its DWARF number.
const IN_GREGS: [libc::c_int; REGISTERS] = [
    libc::REG_RAX,
    libc::REG_RDX,
    libc::REG_RCX,
    libc::REG_RBX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

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
            general: IN_GREGS.map(|index| gregs[index as usize] as u64),
        }
    }
}

impl InterruptedCall {
    /// The system call that returns `EINTR` to the interrupted instruction; `None` where that is
    /// not what the signal has interrupted. *Async-signal-safe.*
    ///
    /// The `syscall` instruction leaves its return address in `rcx` and the flags in `r11` (AMD64
    /// Architecture Programmer's Manual, volume 3). No other code has both there by chance.
    ///
    /// # Safety
    ///
    /// `context` is the third argument of an `SA_SIGINFO` handler.
    #[inline]
    pub(crate) unsafe fn from_ucontext(context: *const libc::c_void) -> Option<Self> {
        // SAFETY: the kernel passes a `ucontext_t` there, by the caller's contract.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        let register = |index: libc::c_int| context.uc_mcontext.gregs[index as usize] as u64;
        if register(libc::REG_RAX) != EINTR {
            return None;
        }
        let pc = register(libc::REG_RIP);
        let is_call =
            register(libc::REG_RCX) == pc && register(libc::REG_R11) == register(libc::REG_EFL);
        let mut instruction = [0; SYSCALL.len()];
        let at = pc.wrapping_sub(SYSCALL.len() as u64);
        if !is_call || copy_from(at, &mut instruction).is_none() || instruction != SYSCALL {
            return None;
        }
        Some(Self {
            pc,
            sp: register(libc::REG_RSP),
            arguments: [
                libc::REG_RDI,
                libc::REG_RSI,
                libc::REG_RDX,
                libc::REG_R10,
                libc::REG_R8,
                libc::REG_R9,
            ]
            .map(register),
            // SAFETY: the kernel's set is one word, at the set's beginning.
            blocked: unsafe {
                (&raw const context.uc_sigmask)
                    .cast::<u64>()
                    .read_unaligned()
            },
        })
    }

    /// The address of the call's instruction.
    pub(crate) fn instruction(&self) -> u64 {
        self.pc.wrapping_sub(SYSCALL.len() as u64)
    }

    /// Has the thread make the system call once more when the handler returns: the kernel has left
    /// its arguments where they were. *Async-signal-safe.*
    ///
    /// # Safety
    ///
    /// [`from_ucontext`](Self::from_ucontext) found a call in this context, whose number is
    /// `number`.
    pub(crate) unsafe fn begin_again(context: *mut libc::c_void, number: u32) {
        // SAFETY: the kernel passes a `ucontext_t` there, which is the handler's to change.
        let gregs = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        gregs[libc::REG_RAX as usize] = i64::from(number);
        gregs[libc::REG_RIP as usize] -= SYSCALL.len() as i64;
    }

    /// Has no later signal find the call interrupted, where the thread runs no instruction before
    /// that comes: a call changes `rcx`, so that the program expects nothing there.
    /// *Async-signal-safe.*
    ///
    /// # Safety
    ///
    /// [`from_ucontext`](Self::from_ucontext) found a call in this context.
    pub(crate) unsafe fn let_fail(context: *mut libc::c_void) {
        // SAFETY: the kernel passes a `ucontext_t` there, which is the handler's to change.
        let gregs = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        gregs[libc::REG_RCX as usize] = 0;
    }
}

/// What a system call returns that a signal interrupted.
const EINTR: u64 = (-libc::EINTR as i64).cast_unsigned();
/// The instruction of that name.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The registers as they are where this is inlined; of the general ones those that a call
/// preserves. *Async-signal-safe.*
#[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
#[inline(always)]
pub(super) fn here() -> Registers {
    // The registers lie in the array by their DWARF numbers.
    let pc;
    let mut general = [0; REGISTERS];
    // SAFETY: stores into what the pointer leads to.
    unsafe {
        std::arch::asm!(
            "mov [{general} + 8 * 3], rbx",
            "mov [{general} + 8 * 6], rbp",
            "mov [{general} + 8 * 7], rsp",
            "mov [{general} + 8 * 12], r12",
            "mov [{general} + 8 * 13], r13",
            "mov [{general} + 8 * 14], r14",
            "mov [{general} + 8 * 15], r15",
            "lea {pc}, [rip]",
            general = in(reg) general.as_mut_ptr(),
            pc = out(reg) pc,
            options(nostack, preserves_flags),
        );
    }
    Registers { pc, general }
}

pub(super) fn without_signature(address: u64) -> u64 {
    address
}

/// Here it is the C library's, which describes it in its unwind data.
pub(super) fn signal_return(_code: &[u8]) -> Option<usize> {
    None
}

/// `mov $15, %rax` (rt_sigreturn), or `%eax`, and `syscall`. Debuggers know signals' frames by them
/// where nothing else tells, so that C libraries do not change them.
pub(super) const SIGNAL_RETURNS: [(&[u8], &[u8]); 2] = [
    (&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0], &[0x0f, 0x05]),
    (&[0xb8, 0x0f, 0, 0, 0], &[0x0f, 0x05]),
];

/// The stack pointer points to the `ucontext_t` when a handler has returned (`struct rt_sigframe`,
/// arch/x86/kernel/signal.c).
pub(super) fn interrupted_by_signal(
    sp: u64,
    mut read: impl FnMut(u64) -> Option<u64>,
) -> Option<Registers> {
    const GREGS: usize = std::mem::offset_of!(libc::ucontext_t, uc_mcontext)
        + std::mem::offset_of!(libc::mcontext_t, gregs);
    let mut greg = |index: libc::c_int| {
        read(
            sp.checked_add(GREGS as u64)?
                .checked_add(index as u64 * 8)?,
        )
    };
    let pc = greg(libc::REG_RIP)?;
    let mut general = [0; REGISTERS];
    for (register, index) in general.iter_mut().zip(IN_GREGS) {
        *register = greg(index)?;
    }
    Some(Registers { pc, general })
}

/// The entries of System V ABI 5.2 and, with `endbr64` before them, of its extension for control
/// flow protection.
pub(super) fn linkage_frame_offset(place: u64, code: [u8; 16]) -> Option<i32> {
    const RETURN_ADDRESS: i32 = 8;
    let at = place & 15;
    // The place from which on a word lies above the return address, and whether another one does
    // from the beginning.
    let (pushed_from, has_another) = match code {
        // The first entry: push [link map]; jmp [resolver].
        [0xff, 0x35, _, _, _, _, 0xff, 0x25, ..] => (6, true),
        // jmp [function]; push index; jmp first.
        [0xff, 0x25, _, _, _, _, 0x68, _, _, _, _, 0xe9, ..] => (11, false),
        // endbr64; push index; jmp first.
        [0xf3, 0x0f, 0x1e, 0xfa, 0x68, _, _, _, _, 0xe9, ..] => (9, false),
        // endbr64; jmp [function].
        [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, ..] => (16, false),
        _ => return None,
    };
    let words = i32::from(at >= pushed_from) + i32::from(has_another);
    Some(RETURN_ADDRESS + words * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_returns_from_handlers_is_known_at_both_instructions() {
        use crate::sys::arch::returns_from_handler;
        for (first, second) in SIGNAL_RETURNS {
            let code = [first, second, &[0xcc]].concat();
            assert!(returns_from_handler(&[], &code));
            assert!(returns_from_handler(&code[..first.len()], second));
            assert!(!returns_from_handler(&code[..first.len() - 1], second));
            assert!(!returns_from_handler(&[], &code[..first.len() + 1]));
            assert!(!returns_from_handler(&[], second));
        }
    }

    #[test]
    fn entries_of_the_linkage_table_are_known_by_their_code() {
        let entry = [
            0xff, 0x25, 0x92, 0x54, 0, 0, 0x68, 1, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff,
        ];
        let first = [
            0xff, 0x35, 0x92, 0x54, 0, 0, 0xff, 0x25, 0x94, 0x54, 0, 0, 0x0f, 0x1f, 0x40, 0,
        ];
        let offset = |place: u64, code| linkage_frame_offset(0x1230 + place, code);
        assert_eq!([0, 6, 11].map(|at| offset(at, entry)), [8, 8, 16].map(Some));
        assert_eq!([0, 6].map(|at| offset(at, first)), [16, 24].map(Some));
        assert_eq!(offset(0, [0x90; 16]), None);
    }
}
