//! Heap profiles of a program whose allocator refuses memory, which the program handles.
#![cfg(feature = "heap")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicIsize, Ordering};

use sigprof::heap::{self, Allocator};

/// The system's allocator, up to a number of bytes.
struct Budget;

static LEFT: AtomicIsize = AtomicIsize::new(isize::MAX / 2);

// SAFETY: blocks are the system's.
unsafe impl GlobalAlloc for Budget {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as isize;
        if LEFT.fetch_sub(size, Ordering::Relaxed) < size {
            LEFT.fetch_add(size, Ordering::Relaxed);
            return ptr::null_mut();
        }
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LEFT.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Allocator<Budget> = Allocator::new(Budget);

/// Allocates until blocks of this size are refused, and then frees them, over and over. How often
/// they were.
fn is_refused(size: usize) -> usize {
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(100_000);
    let whole = LEFT.swap(200_000, Ordering::Relaxed);
    let mut refused = 0;
    for _ in 0..100_000 {
        let mut block = Vec::new();
        match block.try_reserve_exact(size) {
            Ok(()) => blocks.push(black_box(block)),
            Err(_) => {
                refused += 1;
                blocks.clear();
            }
        }
    }
    LEFT.fetch_add(whole - 200_000, Ordering::Relaxed);
    refused
}

#[test]
fn a_program_goes_on_whose_first_samples_find_no_memory() {
    for interval in [1, 1000, 512 * 1024] {
        heap::set_sample_interval(interval);
        assert!(is_refused(1000) > 100);
    }
    heap::set_sample_interval(0);
    assert!(heap::profile().unwrap().total(0) > 1000);
}

#[test]
fn a_program_goes_on_whose_later_samples_find_no_memory() {
    heap::set_sample_interval(1);
    for size in [100, 1000, 10_000] {
        (0..1000).for_each(|_| drop(black_box(vec![0_u8; size])));
        assert!(is_refused(size) > 10);
    }
    heap::set_sample_interval(0);
    assert!(heap::profile().unwrap().total(0) > 1000);
}
