//! What `fuzz/` feeds with bytes: there in its builds alone, whose configuration `cargo fuzz` sets.
#![forbid(unsafe_code)]

use crate::format;
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

/// Bytes for a profile.proto, bare or in gzip.
pub fn pprof(data: &[u8]) {
    format::any::pprof(data);
}

/// Bytes for a gperftools CPU profile.
pub fn cpuprofile(data: &[u8]) {
    format::any::cpuprofile(data);
}

/// Bytes for a gmon.out file.
pub fn gmon(data: &[u8]) {
    format::any::gmon(data);
}

/// Bytes for a heap, growth, contention, thread or count profile as text.
pub fn legacy(data: &[u8]) {
    format::any::legacy(data);
}

/// Bytes for collapsed stacks.
pub fn collapsed(data: &[u8]) {
    format::any::collapsed(data);
}
