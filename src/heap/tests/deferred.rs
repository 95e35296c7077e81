//! Frees that interrupt the profile's own work.

use std::alloc::GlobalAlloc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::interrupted::{has_interrupted_the_profile, interrupted_until};
use super::{ALLOCATOR, allocate, free, layout, totals};
use crate::heap::{deferred, set_sample_interval};

/// Blocks for the handler, which frees each once it has reallocated every third one.
static BLOCKS: [AtomicPtr<u8>; 300] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 300];
static DONE: AtomicUsize = AtomicUsize::new(0);

const SIZE: usize = 40;

extern "C" fn frees(_signal: libc::c_int) {
    let done = DONE.load(Ordering::Relaxed);
    if !has_interrupted_the_profile() || done == BLOCKS.len() {
        return;
    }
    let block = BLOCKS[done].load(Ordering::Relaxed);
    // SAFETY: the blocks have this layout, and each is freed once.
    unsafe {
        match done % 3 {
            0 => {
                let refused = ALLOCATOR.realloc(block, layout(SIZE), isize::MAX as usize - 7);
                assert!(refused.is_null());
                free(block, SIZE);
            }
            1 => free(ALLOCATOR.realloc(block, layout(SIZE), 5000), 5000),
            _ => free(block, SIZE),
        }
    }
    DONE.store(done + 1, Ordering::Relaxed);
}

#[test]
fn what_a_handler_frees_while_the_profile_is_at_work_is_freed() {
    set_sample_interval(1);
    for block in &BLOCKS {
        block.store(allocate(SIZE), Ordering::Relaxed);
    }
    let mut kept = Vec::with_capacity(1 << 20);
    let is_done = || DONE.load(Ordering::Relaxed) == BLOCKS.len();
    // Blocks of the same size, so that some have the addresses of those that were freed.
    interrupted_until(frees, is_done, || match kept.len() {
        0..1000 => kept.push(allocate(SIZE)),
        _ => kept.drain(..).for_each(|block| free(block, SIZE)),
    });
    let in_use = kept.len() as i64;
    assert_eq!(totals()[2..], [in_use, in_use * SIZE as i64]);
    assert!(!deferred::are_any());
    kept.drain(..).for_each(|block| free(block, SIZE));
    assert_eq!(totals()[2..], [0, 0]);
}

#[test]
fn a_realloc_in_a_handler_that_is_refused_leaves_the_block_in_use() {
    static BLOCK: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn tries(_signal: libc::c_int) {
        if has_interrupted_the_profile() {
            let block = BLOCK.load(Ordering::Relaxed);
            // SAFETY: the block has this layout.
            let refused =
                unsafe { ALLOCATOR.realloc(block, layout(SIZE), isize::MAX as usize - 7) };
            assert!(refused.is_null());
            TRIES.fetch_add(1, Ordering::Relaxed);
        }
    }
    set_sample_interval(1);
    BLOCK.store(allocate(SIZE), Ordering::Relaxed);
    let is_done = || TRIES.load(Ordering::Relaxed) >= 20;
    interrupted_until(tries, is_done, || free(allocate(SIZE), SIZE));
    assert_eq!(totals()[2..], [1, SIZE as i64]);
    free(BLOCK.load(Ordering::Relaxed), SIZE);
    assert_eq!(totals()[2..], [0, 0]);
}

#[test]
fn frees_beyond_the_places_are_not_noted() {
    let blocks = (0..5000_usize).map(|i| std::ptr::without_provenance::<u8>((i + 1) << 4));
    blocks.for_each(deferred::add);
    let taken = deferred::all()
        .filter(|_| true)
        .map(deferred::Deferred::take);
    assert_eq!(taken.filter(|&is_there| is_there).count(), 1024);
    assert!(!deferred::are_any());
}
