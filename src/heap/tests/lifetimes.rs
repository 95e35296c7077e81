//! How long blocks lived, and which were temporary.

use std::time::Duration;

use super::*;
use crate::profile::LabelValue;
use crate::sys::clock::Clock;

/// Objects and bytes that are freed, and those of them that were temporary.
fn freed() -> [i64; 4] {
    let profile = lifetimes().unwrap();
    [0, 1, 2, 3].map(|index| profile.total(index))
}

/// Outlives what is temporary for the time alone.
fn outlive() {
    std::thread::sleep(Duration::from_micros(1001));
}

/// Blocks are sent as addresses, for which threads need no leave.
fn free_on_another_thread(block: *mut u8, size: usize) {
    let block = block.expose_provenance();
    let other = std::thread::spawn(move || free(ptr::with_exposed_provenance_mut(block), size));
    other.join().unwrap();
}

#[test]
fn a_block_is_temporary_until_its_thread_has_allocated_as_much_again() {
    set_sample_interval(1);
    let block = allocate(1000);
    outlive();
    free(block, 1000);
    assert_eq!(freed(), [1, 1000, 1, 1000]);

    let block = allocate(1000);
    let others: Vec<_> = [400, 500, 99].map(|size| (allocate(size), size)).into();
    outlive();
    free(block, 1000);
    assert_eq!(freed(), [2, 2000, 2, 2000]);

    let block = allocate(1000);
    let next = allocate(1000);
    outlive();
    free(block, 1000);
    assert_eq!(freed(), [3, 3000, 2, 2000]);
    // Another thread allocates as its own.
    let on_another = std::thread::spawn(|| free(allocate(5000), 5000));
    on_another.join().unwrap();
    free(next, 1000);
    assert_eq!(freed(), [5, 9000, 4, 8000]);

    free_on_another_thread(allocate(1 << 20), 1 << 20);
    outlive();
    let block = allocate(100);
    outlive();
    free_on_another_thread(block, 100);
    let [objects, _, temporary, _] = freed();
    // The thread may take longer to begin than what is temporary in any thread.
    assert!(objects == 7 && (4..=5).contains(&temporary), "{temporary}");
    for (block, size) in others {
        free(block, size);
    }
}

#[test]
fn a_thread_that_samples_nothing_any_more_is_still_counted() {
    set_sample_interval(1);
    let block = allocate(100_000);
    let longer = allocate(200_000);
    set_sample_interval(0);
    for _ in 0..99 {
        free(allocate(1001), 1001);
    }
    outlive();
    free(block, 100_000);
    // 200,000 + 99 × 1001 bytes have been allocated after the first, 99 × 1001 after the second.
    assert_eq!(freed(), [1, 100_000, 0, 0]);
    for _ in 0..99 {
        free(allocate(1001), 1001);
    }
    set_sample_interval(0);
    free(longer, 200_000);
    assert_eq!(freed(), [2, 300_000, 1, 200_000]);
}

#[test]
fn lifetimes_are_those_of_the_clock() {
    set_sample_interval(1);
    let now = || Clock::MONOTONIC.now_ns().unwrap();
    for (size, micros) in [(10, 0), (20, 50), (30, 3000), (40, 40_000)] {
        let begin = now();
        let block = allocate(size);
        let lives = now();
        std::thread::sleep(Duration::from_micros(micros));
        let frees = now();
        // A block that is reallocated has ended.
        // SAFETY: the block has this layout, and the new size is not 0.
        let moved = unsafe { ALLOCATOR.realloc(block, layout(size), 8 << 20) };
        let end = now();
        let profile = lifetimes().unwrap();
        let labels = |of: &str| {
            let value = move |label: &crate::profile::Label| match label.value {
                LabelValue::Num { value, .. } => value as u64,
                LabelValue::Str(_) => 0,
            };
            let profile = &profile;
            let label = profile.samples().map(move |sample| {
                let of_key = |label: &&crate::profile::Label| profile.string(label.key) == of;
                sample.labels.iter().find(of_key).map_or(0, value)
            });
            label.collect::<Vec<_>>()
        };
        let place = labels("bytes")
            .iter()
            .position(|&bytes| bytes == size as u64);
        let lifetime = labels("lifetime")[place.unwrap()];
        assert!(
            (frees - lives..=end - begin).contains(&lifetime),
            "{lifetime}"
        );
        set_sample_interval(0);
        free(moved, 8 << 20);
        set_sample_interval(1);
    }
}

#[test]
fn what_is_freed_and_what_is_in_use_are_all() {
    crate::heap::countdown::seed(11);
    set_sample_interval(4096);
    let random = Random::of_seed(3);
    let mut kept = Vec::with_capacity(20_000);
    for i in 0..20_000 {
        let size = 1 + random.nth(i) as usize % 2048;
        kept.push((allocate(size), size));
        if !random.nth(i).is_multiple_of(3) {
            let (block, size) = kept.swap_remove(random.nth(!i) as usize % kept.len());
            free(block, size);
        }
    }
    let [_, allocated, _, in_use] = totals();
    let [_, freed, _, temporary] = freed();
    // Sizes of one class are scaled by their mean.
    let difference = (allocated - in_use - freed).abs() as f64;
    assert!(difference / (allocated as f64) < 1e-3, "{difference}");
    assert!((1..freed).contains(&temporary), "{temporary} of {freed}");
    for (block, size) in kept {
        free(block, size);
    }
}
