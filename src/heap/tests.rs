//! The allocator called by hand, so that nothing else is counted.

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

/// Objects and bytes that a profile has of blocks of each size, and how far off the former may be
/// by chance, in standard errors.
fn estimated(sizes: &[(usize, u64)], interval: u64) -> Vec<(f64, f64)> {
    set_sample_interval(interval);
    for &(size, count) in sizes {
        for _ in 0..count {
            free(allocate(size), size);
        }
    }
    let profile = profile().unwrap();
    let of_size = |&(size, count): &(usize, u64)| {
        let samples = profile.samples().filter(|sample| {
            let is_size = |label: &crate::profile::Label| match label.value {
                crate::profile::LabelValue::Num { value, .. } => value as usize == size,
                crate::profile::LabelValue::Str(_) => false,
            };
            sample.labels.iter().any(is_size)
        });
        let objects: i64 = samples.map(|sample| sample.values[0]).sum();
        let chance = -(-(size as f64) / interval as f64).exp_m1();
        let error = (count as f64 * (1.0 - chance) / chance).sqrt();
        (objects as f64, error)
    };
    sizes.iter().map(of_size).collect()
}

#[test]
fn blocks_of_every_size_are_estimated_without_bias() {
    countdown::seed(11);
    let sizes: Vec<(usize, u64)> = [
        (1, 3_000_000),
        (24, 1_000_000),
        (512, 300_000),
        (4096, 100_000),
        (65_536, 20_000),
        (524_288, 3000),
        (4 << 20, 500),
        (64 << 20, 200),
    ]
    .into();
    for (estimate, &(size, count)) in estimated(&sizes, 65_536).into_iter().zip(&sizes) {
        let (objects, error) = estimate;
        let off = (objects - count as f64).abs();
        // Fractions of objects are cut off where the values are made.
        assert!(
            off <= 3.0 * error + 1.0,
            "{size}: {objects} of {count}, ± {error}"
        );
    }
}

#[test]
fn blocks_of_mixed_sizes_are_estimated_without_bias() {
    countdown::seed(12);
    set_sample_interval(10_000);
    let random = Random::of_seed(3);
    let (mut objects, mut bytes, mut variance) = (0_i64, 0_i64, [0.0; 2]);
    for i in 0..2_000_000 {
        // Exponential, with a mean of 300 bytes; some are large.
        let share = (random.nth(2 * i) >> 11) as f64 / (1_u64 << 53) as f64;
        let scale = if random.nth_below(2 * i + 1, 1000) == 0 {
            100.0
        } else {
            1.0
        };
        let size = 1 + (-(1.0 - share).ln() * 300.0 * scale) as usize;
        free(allocate(size), size);
        objects += 1;
        bytes += size as i64;
        let chance = -(-(size as f64) / 10_000.0).exp_m1();
        variance[0] += (1.0 - chance) / chance;
        variance[1] += (1.0 - chance) / chance * (size * size) as f64;
    }
    let [all_objects, all_bytes, ..] = totals();
    let off = [all_objects - objects, all_bytes - bytes].map(|off| off as f64);
    for (off, variance) in off.into_iter().zip(variance) {
        // And less than an object of each size, which is cut off.
        assert!(
            off.abs() <= 3.0 * variance.sqrt() + 4000.0,
            "{off} ± {}",
            variance.sqrt()
        );
    }
}

#[test]
fn no_sample_is_left_when_everything_is_freed_by_others() {
    set_sample_interval(4096);
    let blocks_each = 50_000;
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
    assert!(objects > 100_000, "{objects}");
    assert_eq!([in_use, bytes_in_use], [0, 0]);
}
