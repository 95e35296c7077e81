//! The allocator called by hand, so that nothing else is counted.

mod deferred;
mod estimates;
mod forks;
mod interrupted;
mod lifetimes;
mod peaks;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use super::*;
use crate::random::Random;

static ALLOCATOR: Allocator = Allocator::system();

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

fn allocate(size: usize) -> *mut u8 {
    // SAFETY: the size is not 0.
    let block = unsafe { ALLOCATOR.alloc(layout(size)) };
    assert!(!block.is_null());
    block
}

fn free(block: *mut u8, size: usize) {
    // SAFETY: allocated with this size, and freed once.
    unsafe { ALLOCATOR.dealloc(block, layout(size)) };
}

/// Totals of the profile: objects and bytes allocated, and in use.
fn totals() -> [i64; 4] {
    let profile = profile().unwrap();
    [0, 1, 2, 3].map(|index| profile.total(index))
}

#[test]
fn where_all_blocks_are_sampled_all_are_counted() {
    set_sample_interval(1);
    let blocks: Vec<_> = (1..=100).map(allocate).collect();
    assert_eq!(totals(), [100, 5050, 100, 5050]);
    for (block, size) in blocks.iter().zip(1..=50) {
        free(*block, size);
    }
    assert_eq!(totals(), [100, 5050, 50, 3775]);
    // Beyond what is sampled now, blocks are still counted as freed.
    set_sample_interval(0);
    for (block, size) in blocks.iter().zip(1..).skip(50) {
        free(*block, size);
    }
    free(allocate(77), 77);
    assert_eq!(totals(), [100, 5050, 0, 0]);
}

#[test]
fn a_block_that_is_reallocated_is_one_of_its_new_size() {
    set_sample_interval(1);
    let block = allocate(100);
    // SAFETY: the block has this layout, and the new size is not 0.
    let moved = unsafe { ALLOCATOR.realloc(block, layout(100), 1 << 20) };
    assert_eq!(totals(), [2, 100 + (1 << 20), 1, 1 << 20]);
    // SAFETY: as above; no memory is that large.
    let refused = unsafe { ALLOCATOR.realloc(moved, layout(1 << 20), isize::MAX as usize - 7) };
    assert!(refused.is_null());
    assert_eq!(totals(), [2, 100 + (1 << 20), 1, 1 << 20]);
    set_sample_interval(0);
    // SAFETY: as above.
    let moved = unsafe { ALLOCATOR.realloc(moved, layout(1 << 20), 10) };
    assert_eq!(totals(), [2, 100 + (1 << 20), 0, 0]);
    free(moved, 10);
}

#[test]
fn what_the_allocator_refuses_is_not_counted() {
    set_sample_interval(1);
    let huge = layout(isize::MAX as usize - 7);
    // SAFETY: the layout's size is not 0.
    unsafe {
        assert!(ALLOCATOR.alloc(huge).is_null());
        assert!(ALLOCATOR.alloc_zeroed(huge).is_null());
    }
    free(allocate(1), 1);
    assert_eq!(totals(), [1, 1, 0, 0]);
}

#[test]
fn blocks_keep_their_layout_and_content() {
    set_sample_interval(1);
    for align in [1, 16, 4096, 1 << 21] {
        let layout = Layout::from_size_align(3 * align, align).unwrap();
        // SAFETY: the layout's size is not 0; the blocks are as long, and freed once.
        unsafe {
            let zeroed = ALLOCATOR.alloc_zeroed(layout);
            assert_eq!(zeroed.addr() % align, 0);
            assert!((0..layout.size()).all(|i| *zeroed.add(i) == 0));
            ptr::write_bytes(zeroed, 7, layout.size());
            let larger = ALLOCATOR.realloc(zeroed, layout, 5 * align);
            assert_eq!(larger.addr() % align, 0);
            assert!((0..layout.size()).all(|i| *larger.add(i) == 7));
            let layout = Layout::from_size_align(5 * align, align).unwrap();
            ALLOCATOR.dealloc(larger, layout);
        }
    }
    assert_eq!(totals()[2..], [0, 0]);
}

#[test]
fn a_block_that_was_never_seen_can_be_freed() {
    set_sample_interval(1);
    let kept = allocate(64);
    // SAFETY: the sizes are not 0, and blocks of one allocator go back to it.
    unsafe {
        for _ in 0..100 {
            // Some on the page of one that is sampled.
            let foreign = System.alloc(layout(64));
            ALLOCATOR.dealloc(foreign, layout(64));
        }
    }
    assert_eq!(totals(), [1, 64, 1, 64]);
    free(kept, 64);
}

#[test]
fn no_sample_is_left_when_everything_is_freed_by_others() {
    set_sample_interval(65_536);
    let blocks_each = 500_000;
    let (send, receive) = std::sync::mpsc::channel::<(usize, usize)>();
    let receive = &std::sync::Mutex::new(receive);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let send = send.clone();
            scope.spawn(move || {
                let random = Random::of_seed(thread);
                for i in 0..blocks_each {
                    let size = 1 + random.nth_below(i, 2000) as usize;
                    send.send((allocate(size).expose_provenance(), size))
                        .unwrap();
                }
            });
        }
        drop(send);
        for _ in 0..4 {
            scope.spawn(move || {
                loop {
                    let next = receive.lock().unwrap().recv();
                    let Ok((block, size)) = next else { break };
                    free(ptr::with_exposed_provenance_mut(block), size);
                }
            });
        }
    });
    let [objects, _, in_use, bytes_in_use] = totals();
    assert!(objects > 1_500_000, "{objects}");
    assert_eq!([in_use, bytes_in_use], [0, 0]);
}

#[test]
fn memory_that_runs_out_is_counted_as_far_as_it_went() {
    set_sample_interval(1);
    const SIZE: usize = 1 << 20;
    let mut blocks = Vec::with_capacity(1000);
    let limit = |bytes: u64| {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the limit outlives the call.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
        assert_eq!(set, 0);
    };
    let mapped = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = mapped.split(' ').next().unwrap().parse().unwrap();
    limit((pages << 12) + (64 << 20));
    while blocks.len() < 1000 {
        // SAFETY: the size is not 0.
        let block = unsafe { ALLOCATOR.alloc(layout(SIZE)) };
        if block.is_null() {
            break;
        }
        blocks.push(block);
    }
    limit(libc::RLIM_INFINITY);
    let count = blocks.len() as i64;
    assert!((1..1000).contains(&count));
    let [objects, _, in_use, _] = totals();
    // Where there is no memory for a sample, it is left out.
    assert_eq!(objects, in_use);
    assert!((1..=count).contains(&objects), "{objects} of {count}");
    blocks.into_iter().for_each(|block| free(block, SIZE));
    assert_eq!(totals()[2..], [0, 0]);
}

#[test]
fn a_delta_has_what_was_allocated_in_it_and_all_that_is_in_use() {
    set_sample_interval(1);
    let kept = allocate(100);
    free(allocate(7), 7);
    let mark = delta::Mark::now().unwrap();
    let new = allocate(1000);
    free(allocate(10_000), 10_000);
    free(kept, 100);
    let profile = mark.profile().unwrap();
    let totals = [0, 1, 2, 3].map(|index| profile.total(index));
    assert_eq!(totals, [2, 11_000, 1, 1000]);
    assert!(profile.duration_nanos > 0);
    free(new, 1000);
    let nothing = delta(std::time::Duration::ZERO).unwrap();
    assert_eq!(nothing.sample_count(), 0);
}
