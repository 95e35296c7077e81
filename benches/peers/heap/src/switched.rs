//! A profiler's allocator and the one beneath it, in one program: what the profiler adds to a piece
//! of work is far less than what two processes differ by, or a process from itself a second later.
#![cfg_attr(
    feature = "counted",
    allow(dead_code, reason = "all that is counted is profiled")
)]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the profiler's allocator is called.
static IS_PROFILED: AtomicBool = AtomicBool::new(true);

/// Has the profiler's allocator called, or the one beneath it. Each frees what the other gave out:
/// the profilers here leave blocks as the allocator beneath has made them.
pub fn set_profiled(is_profiled: bool) {
    IS_PROFILED.store(is_profiled, Relaxed);
}

/// Calls `P`, which calls an `A`; or an `A`.
pub struct Switched<P, A> {
    profiled: P,
    alone: A,
}

impl<P, A> Switched<P, A> {
    pub const fn new(profiled: P, alone: A) -> Self {
        Self { profiled, alone }
    }
}

/// Calls an allocator the way that a program calls its only one: out of line.
macro_rules! out_of_line {
    ($allocator:expr, $type:ident, $call:ident($($name:ident: $of:ty),*) -> $result:ty) => {{
        #[inline(never)]
        unsafe fn call<$type: GlobalAlloc>(allocator: &$type, $($name: $of),*) -> $result {
            // SAFETY: the caller's contract, which is the called function's.
            unsafe { allocator.$call($($name),*) }
        }
        // SAFETY: as above.
        unsafe { call($allocator, $($name),*) }
    }};
}

/// Calls the allocator that is switched to.
macro_rules! switched {
    ($self:ident.$call:ident($($name:ident: $of:ty),*) -> $result:ty) => {
        match IS_PROFILED.load(Relaxed) {
            true => out_of_line!(&$self.profiled, T, $call($($name: $of),*) -> $result),
            false => out_of_line!(&$self.alone, T, $call($($name: $of),*) -> $result),
        }
    };
}

// SAFETY: blocks are `A`'s, with the layouts that the caller has, whichever way they come and go.
unsafe impl<P: GlobalAlloc, A: GlobalAlloc> GlobalAlloc for Switched<P, A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        switched!(self.alloc(layout: Layout) -> *mut u8)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        switched!(self.alloc_zeroed(layout: Layout) -> *mut u8)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        switched!(self.dealloc(block: *mut u8, layout: Layout) -> ())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        switched!(self.realloc(block: *mut u8, layout: Layout, size: usize) -> *mut u8)
    }
}
