//! The program's allocator, with samples taken of what it gives out.

use std::alloc::{GlobalAlloc, Layout, System};

use super::{countdown, filter, samples};
use crate::sys::arch::Registers;

/// A `#[global_allocator]` that has heap profiles taken of what another one, `A`, gives out.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: sigprof::heap::Allocator = sigprof::heap::Allocator::system();
///
/// # fn main() -> sigprof::Result<()> {
/// let buffers: Vec<Vec<u8>> = (0..100).map(|_| vec![0; 1 << 20]).collect();
/// let profile = sigprof::heap::profile()?;
/// # drop(buffers);
/// # let _ = profile;
/// # Ok(())
/// # }
/// ```
///
/// Each block goes to `A` and back as it is: nothing is added to it, and its layout is not changed.
/// An allocation that is not sampled costs a subtraction and a branch more, and a free a look at a
/// word.
#[derive(Debug, Default)]
pub struct Allocator<A = System>(A);

impl Allocator {
    /// Over the system's allocator, `malloc`.
    pub const fn system() -> Self {
        Self(System)
    }
}

impl<A> Allocator<A> {
    /// Over any other.
    pub const fn new(allocator: A) -> Self {
        Self(allocator)
    }
}

impl<A: GlobalAlloc> Allocator<A> {
    /// Allocates a block that may be a sample. Not inlined, since its frame is the one below which
    /// the stack begins; and what it is given fits into registers, so that the allocation of any
    /// other block is a jump to `A`, with nothing to be kept meanwhile.
    #[cold]
    #[inline(never)]
    fn allocate(&self, layout: Layout, allocate: impl FnOnce(&A, Layout) -> *mut u8) -> *mut u8 {
        countdown::put_back(layout.size());
        let registers = Registers::here();
        let block = allocate(&self.0, layout);
        if !block.is_null() {
            samples::allocated(registers, block, layout.size());
        }
        block
    }

    /// Frees a block that may be a sample. Not inlined either, for the same reason.
    ///
    /// # Safety
    ///
    /// As of `GlobalAlloc::dealloc`.
    #[cold]
    #[inline(never)]
    unsafe fn deallocate(&self, block: *mut u8, layout: Layout) {
        // Before another thread can be given the same address.
        samples::free(block);
        // SAFETY: the caller's contract.
        unsafe { self.0.dealloc(block, layout) }
    }

    /// Reallocates a block that may be a sample, or become one.
    ///
    /// # Safety
    ///
    /// As of `GlobalAlloc::realloc`.
    #[cold]
    #[inline(never)]
    unsafe fn reallocate(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        countdown::put_back(new_size);
        let registers = Registers::here();
        // Before another thread can be given the same address.
        let taken = samples::take(block);
        // SAFETY: the caller's contract.
        let moved = unsafe { self.0.realloc(block, layout, new_size) };
        if moved.is_null() {
            samples::put_back(block, taken);
            return moved;
        }
        samples::freed(taken);
        samples::allocated(registers, moved, new_size);
        moved
    }
}

// SAFETY: blocks are `A`'s, with the layouts that the caller has; what is done beside does not
// unwind, and allocates as any code does that an allocator may not be called by: after `A` has
// returned or before it is called.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Allocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if countdown::passes(layout.size()) {
            // SAFETY: the caller's contract.
            return unsafe { self.0.alloc(layout) };
        }
        // SAFETY: the caller's contract.
        self.allocate(layout, |inner, layout| unsafe { inner.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if countdown::passes(layout.size()) {
            // SAFETY: the caller's contract.
            return unsafe { self.0.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's contract.
        self.allocate(layout, |inner, layout| unsafe {
            inner.alloc_zeroed(layout)
        })
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !filter::may_be_sampled(block) {
            // SAFETY: the caller's contract.
            return unsafe { self.0.dealloc(block, layout) };
        }
        // SAFETY: the caller's contract.
        unsafe { self.deallocate(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !filter::may_be_sampled(block) && countdown::passes(new_size) {
            // SAFETY: the caller's contract.
            return unsafe { self.0.realloc(block, layout, new_size) };
        }
        // SAFETY: the caller's contract.
        unsafe { self.reallocate(block, layout, new_size) }
    }
}
