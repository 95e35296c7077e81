//! What is done when a block is sampled, and when a sampled one is freed.
#![forbid(unsafe_code)]

use std::sync::atomic::{Ordering, compiler_fence};

use super::lifetimes::Birth;
use super::live::{self, Sample};
use super::{countdown, deferred, filter, forks, sites, stack, watch};
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

/// What was taken out of the live set before a block was freed or reallocated.
pub(super) enum Taken {
    /// Nothing: the block is not sampled.
    Nothing,
    /// Nothing yet: the block is taken out when the work is done that a signal's handler, which
    /// frees the block, has interrupted.
    Later,
    /// What was known of the block.
    Sample(Sample),
}

/// Takes a block that may be sampled out of the live set, before it is freed or reallocated.
pub(super) fn take(block: *const u8) -> Taken {
    if !filter::may_be_sampled(block) || !filter::is_likely_sampled(block) {
        return Taken::Nothing;
    }
    if countdown::is_inside() {
        // Also what the profile itself frees, which it has allocated without a sample: where that
        // is likely to be sampled and is not, nothing is found in its place later.
        deferred::add(block);
        return Taken::Later;
    }
    inside(|| {
        if !forks::is_whole() {
            return Taken::Nothing;
        }
        match live::remove(block) {
            Some(sample) => {
                filter::remove(block);
                Taken::Sample(sample)
            }
            None => Taken::Nothing,
        }
    })
}

/// Puts a block back that could not be reallocated.
pub(super) fn put_back(block: *const u8, taken: Taken) {
    match taken {
        Taken::Nothing => {}
        // Another thread may have taken the block out, which is then freed for the profile.
        Taken::Later => {
            let noted = deferred::all().find(|deferred| deferred.block() == block);
            noted.map(deferred::Deferred::take);
        }
        Taken::Sample(sample) => inside(|| put_in(block, sample)),
    }
}

/// Puts a block into the live set.
fn put_in(block: *const u8, sample: Sample) {
    // The block may have the address of one of those.
    catch_up();
    match live::insert(block, sample) {
        true => filter::add(block),
        // There is no memory to wait for its end in.
        false => sites::count_freed(sample.site, sample.size, None),
    }
}

/// Counts a block that was taken out and is freed.
pub(super) fn freed(taken: Taken) {
    if let Taken::Sample(sample) = taken {
        inside(|| count_freed(sample));
    }
}

fn count_freed(sample: Sample) {
    let lifetime = sample.birth.lifetime(sample.size);
    sites::count_freed(sample.site, sample.size, Some(lifetime));
}

/// Counts a block that may be sampled, and is about to be freed.
#[cold]
#[inline(never)]
pub(super) fn free(block: *const u8) {
    freed(take(block));
}

/// Takes blocks out of the live set that could not be when they were freed. Whether there were any.
fn catch_up() -> bool {
    if !deferred::are_any() {
        return false;
    }
    let mut were_any = false;
    for deferred in deferred::all() {
        were_any = true;
        let block = deferred.block();
        // Whoever is given the block's address next comes through here before adding it, and finds
        // it gone from its place or waits for the mutex of this part of the live set.
        if let Some(sample) = live::remove_if(block, || deferred.take()) {
            filter::remove(block);
            count_freed(sample);
        }
    }
    were_any
}

/// Does what was left for later, if the calling thread is not at work for the profile.
pub(super) fn settle() {
    // What a handler leaves for later until the end of the work is found here.
    compiler_fence(Ordering::SeqCst);
    if !deferred::are_any() || countdown::is_inside() || !forks::is_whole() {
        return;
    }
    let _errno = ErrnoGuard::new();
    while countdown::without_samples(catch_up) {
        compiler_fence(Ordering::SeqCst);
    }
}

fn inside<T>(work: impl FnOnce() -> T) -> T {
    let _errno = ErrnoGuard::new();
    let result = countdown::without_samples(work);
    settle();
    result
}
