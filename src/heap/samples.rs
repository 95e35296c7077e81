//! What is done when a block is sampled, and when a sampled one is freed.
#![forbid(unsafe_code)]

use super::lifetimes::Birth;
use super::live::{self, Sample};
use super::{countdown, filter, forks, sites, stack, watch};
use crate::sys::arch::Registers;
use crate::sys::clock::Clock;
use crate::sys::signal::ErrnoGuard;

/// Counts a block that was not counted down, on the way back from the allocator's function with
/// these registers.
pub(super) fn allocated(registers: Registers, block: *const u8, size: usize) {
    if !countdown::has_begun() {
        inside(forks::begin);
    }
    let Some(mean) = countdown::due(size) else {
        return;
    };
    let size = size as u64;
    inside(|| {
        if !forks::is_whole() {
            return;
        }
        let now_ns = Clock::MONOTONIC.now_ns().unwrap_or(0);
        let count = |stack: &[u64]| sites::count_allocated(stack, size, mean);
        let Some(site) = stack::walk(registers, now_ns, count).flatten() else {
            return;
        };
        let birth = Birth::at(now_ns);
        put_in(block, Sample { site, size, birth });
    });
    watch::wait_at_last_stop();
}

/// Takes a block that may be sampled out of the live set, before it is freed or reallocated.
pub(super) fn take(block: *const u8) -> Option<Sample> {
    let may_be = filter::may_be_sampled(block) && filter::is_likely_sampled(block);
    // What the profile itself frees, it has allocated without a sample.
    if !may_be || countdown::is_inside() {
        return None;
    }
    inside(|| {
        if !forks::is_whole() {
            return None;
        }
        let sample = live::remove(block)?;
        filter::remove(block);
        Some(sample)
    })
}

/// Puts a block back that could not be reallocated.
pub(super) fn put_back(block: *const u8, sample: Sample) {
    inside(|| put_in(block, sample));
}

/// Puts a block into the live set.
fn put_in(block: *const u8, sample: Sample) {
    match live::insert(block, sample) {
        true => filter::add(block),
        // There is no memory to wait for its end in.
        false => sites::count_freed(sample.site, sample.size, None),
    }
}

/// Counts a block that was taken out and is freed.
pub(super) fn freed(sample: Sample) {
    inside(|| {
        let lifetime = sample.birth.lifetime(sample.size);
        sites::count_freed(sample.site, sample.size, Some(lifetime));
    });
}

/// Counts a block that may be sampled, and is about to be freed.
#[cold]
#[inline(never)]
pub(super) fn free(block: *const u8) {
    if let Some(sample) = take(block) {
        freed(sample);
    }
}

fn inside<T>(work: impl FnOnce() -> T) -> T {
    let _errno = ErrnoGuard::new();
    countdown::without_samples(work)
}
