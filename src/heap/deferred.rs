//! Blocks that a signal's handler freed while it had interrupted the profile's own work, which may
//! hold a mutex: they stay in the live set until that work is done.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

/// Blocks that one time of the profile's own work can leave for later. A block beyond them stays in
/// use for ever, as far as the profile knows.
const PLACES: usize = 1024;

/// Addresses of freed blocks; 0 where a place is free.
static BLOCKS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

/// How many places are taken, or about to be.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Notes a block, before it is freed. *Async-signal-safe.*
pub(super) fn add(block: *const u8) {
    TAKEN.fetch_add(1, Ordering::Relaxed);
    let take = |place: &AtomicUsize| {
        place
            .compare_exchange(0, block.addr(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    };
    if !BLOCKS.iter().any(take) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether any block is noted.
#[inline]
pub(super) fn are_any() -> bool {
    TAKEN.load(Ordering::Relaxed) != 0
}

/// Goes on in a forked child, without threads that were about to take a place.
pub(super) fn begin_in_child() {
    TAKEN.store(all().count(), Ordering::Relaxed);
}

/// A block that is noted, in its place.
pub(super) struct Deferred {
    place: &'static AtomicUsize,
    block: usize,
}

impl Deferred {
    pub(super) fn block(&self) -> *const u8 {
        std::ptr::without_provenance(self.block)
    }

    /// Takes the block from its place. Whether nobody else has.
    pub(super) fn take(self) -> bool {
        let is_there = self
            .place
            .compare_exchange(self.block, 0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if is_there {
            TAKEN.fetch_sub(1, Ordering::Relaxed);
        }
        is_there
    }
}

/// The blocks that are noted.
pub(super) fn all() -> impl Iterator<Item = Deferred> {
    BLOCKS.iter().filter_map(|place| {
        let block = place.load(Ordering::Relaxed);
        (block != 0).then_some(Deferred { place, block })
    })
}
