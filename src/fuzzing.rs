//! What `fuzz/` feeds with bytes: there in its builds alone, whose configuration `cargo fuzz` sets.
#![forbid(unsafe_code)]

use crate::sys::elf::read_any;
use crate::unwind::any;

/// Bytes for an ELF file.
pub fn elf(data: &[u8]) {
    read_any(data);
}

/// Bytes for `.eh_frame` and its search table.
pub fn eh_frame(data: &[u8]) {
    any::eh_frame(data);
}

/// Bytes for `.debug_frame`, with some `.eh_frame`.
pub fn debug_frame(data: &[u8]) {
    any::debug_frame(data);
}

/// Bytes for registers, a stack, and unwind data.
pub fn unwind(data: &[u8]) {
    any::unwind(data);
}
