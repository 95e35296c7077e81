//! Where a new thread begins: it is introduced, and then jumps to its start routine, as if nothing
//! had been before.
//!
//! No frame of ours stays on its stack: `pthread_exit` and cancellation unwind the whole stack, by
//! force, which must not pass a frame of Rust's; and samples look as they would without us.

use std::arch::naked_asm;

use super::cells::Cell;
use super::{ending, introduce};

/// What to jump to. As two words it is returned in two registers on both machines.
#[repr(C)]
struct Launch {
    start: usize,
    argument: usize,
}

/// A thread's part before its own: gives the cell back and introduces the thread.
extern "C" fn prepare(cell: *const Cell) -> Launch {
    // SAFETY: the hook passes a cell of its static pool, which it filled for this thread alone.
    let (start, argument, number) = unsafe { &*cell }.take();
    if introduce(number) {
        ending::expect();
    }
    Launch { start, argument }
}

/// A start routine for `pthread_create`; its argument is a claimed [`Cell`].
///
/// The unwind data is exact at every instruction, for a signal that lands here.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) extern "C" fn begin(cell: *mut libc::c_void) -> *mut libc::c_void {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        // The stack is aligned at calls, so it is off by the return address here.
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {prepare}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        prepare = sym prepare,
    )
}

/// A start routine for `pthread_create`; its argument is a claimed [`Cell`].
///
/// The unwind data is exact at every instruction, for a signal that lands here.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(super) extern "C" fn begin(cell: *mut libc::c_void) -> *mut libc::c_void {
    naked_asm!(
        ".cfi_startproc",
        // A landing pad for indirect calls (`bti c`) where the machine wants one, and nothing
        // elsewhere.
        "hint #34",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        "bl {prepare}",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "mov x16, x0",
        "mov x0, x1",
        // A jump through x16 may land where a call may.
        "br x16",
        ".cfi_endproc",
        prepare = sym prepare,
    )
}
