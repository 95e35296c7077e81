//! What stood in the words that were replaced: kept for the process, without a lock and without the
//! host's heap.
//!
//! The table is changed by one thread at a time, the one that walks the loader's list, and a fork
//! waits for the end of that walk. So a forked child inherits a table that is true, and can put
//! back with it what its parent had replaced.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// More modules than most programs have; words beyond that are left as they are.
const PLACES: usize = 2048;

static TABLE: [Original; PLACES] = [const { Original::none() }; PLACES];
/// Places from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A word that was replaced. All fields are atomics so that the table can be a static; they order
/// nothing.
#[derive(Debug)]
pub(super) struct Original {
    /// Where the word is; 0 in a place that is free.
    slot: AtomicUsize,
    value: AtomicUsize,
    /// What stands there instead.
    stand_in: AtomicUsize,
    /// What its page's protection was.
    protection: AtomicI32,
    /// The walk that came by last.
    walk: AtomicUsize,
}

impl Original {
    const fn none() -> Self {
        Self {
            slot: AtomicUsize::new(0),
            value: AtomicUsize::new(0),
            stand_in: AtomicUsize::new(0),
            protection: AtomicI32::new(0),
            walk: AtomicUsize::new(0),
        }
    }

    /// The one at an address.
    pub(super) fn of(slot: usize) -> Option<&'static Self> {
        places().find(|p| p.slot.load(Ordering::Relaxed) == slot)
    }

    /// Keeps what stands at an address, instead of what was kept for it before: that was another
    /// module's, at the same address. `None` if the table is full.
    pub(super) fn keep(
        slot: usize,
        value: usize,
        stand_in: usize,
        protection: libc::c_int,
    ) -> Option<&'static Self> {
        let place = Self::of(slot).or_else(|| Self::of(0)).or_else(|| {
            let next = TABLE.get(USED.load(Ordering::Relaxed))?;
            USED.fetch_add(1, Ordering::Relaxed);
            Some(next)
        })?;
        place.value.store(value, Ordering::Relaxed);
        place.stand_in.store(stand_in, Ordering::Relaxed);
        place.protection.store(protection, Ordering::Relaxed);
        place.slot.store(slot, Ordering::Relaxed);
        Some(place)
    }

    pub(super) fn value(&self) -> usize {
        self.value.load(Ordering::Relaxed)
    }

    pub(super) fn protection(&self) -> libc::c_int {
        self.protection.load(Ordering::Relaxed)
    }

    /// Notes that a walk found the word still replaced.
    pub(super) fn was_seen(&self, walk: usize) {
        self.walk.store(walk, Ordering::Relaxed);
    }

    pub(super) fn forget(&self) {
        self.slot.store(0, Ordering::Relaxed);
    }

    /// Forgets the words of this stand-in that a whole walk did not come by: their modules are
    /// gone.
    pub(super) fn forget_unseen(walk: usize, stand_in: usize) {
        places()
            .filter(|p| p.stand_in.load(Ordering::Relaxed) == stand_in)
            .filter(|p| p.walk.load(Ordering::Relaxed) != walk)
            .for_each(Self::forget);
    }
}

fn places() -> impl Iterator<Item = &'static Original> {
    TABLE.iter().take(USED.load(Ordering::Relaxed))
}
