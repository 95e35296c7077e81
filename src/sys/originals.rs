//! What stood in the words that were replaced: kept for the process, without a lock and without the
//! host's heap.
//!
//! The table is changed by one thread at a time, the one that walks the loader's list, and a fork
//! waits for the end of that walk. So a forked child inherits a table that is true, and can put
//! back with it what its parent had replaced.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Places, a power of two: a module that takes locks of every kind has some twenty words. What is
/// not touched takes no memory.
const PLACES: usize = 1 << 15;

/// A word is in one of this many places from its own on; words that find none are left as they are.
const MOST_REACH: usize = 64;

static TABLE: [Original; PLACES] = [const { Original::none() }; PLACES];

/// A word that was replaced. All fields are atomics so that the table can be a static.
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
        places_of(slot).find(|place| place.is_of(slot))
    }

    fn is_of(&self, slot: usize) -> bool {
        self.slot.load(Ordering::Acquire) == slot
    }

    /// Keeps what stands at an address, instead of what was kept for it before: that was another
    /// module's, at the same address. `None` if there is no place.
    pub(super) fn keep(
        slot: usize,
        value: usize,
        stand_in: usize,
        protection: libc::c_int,
    ) -> Option<&'static Self> {
        let place = Self::of(slot).or_else(|| places_of(slot).find(|place| place.is_of(0)))?;
        place.value.store(value, Ordering::Relaxed);
        place.stand_in.store(stand_in, Ordering::Relaxed);
        place.protection.store(protection, Ordering::Relaxed);
        // Release: whoever finds the word, to forget it, finds whose stand-in it has.
        place.slot.store(slot, Ordering::Release);
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

    /// Forgets the words of these stand-ins that a whole walk did not come by: their modules are
    /// gone.
    pub(super) fn forget_unseen(walk: usize, is_stand_in: impl Fn(usize) -> bool) {
        TABLE
            .iter()
            .filter(|place| !place.is_of(0))
            .filter(|place| is_stand_in(place.stand_in.load(Ordering::Relaxed)))
            .filter(|place| place.walk.load(Ordering::Relaxed) != walk)
            .for_each(Self::forget);
    }
}

/// The places that a word may be in.
fn places_of(slot: usize) -> impl Iterator<Item = &'static Original> {
    // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
    let hash = (slot as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = (hash >> (64 - PLACES.ilog2())) as usize;
    (first..first + MOST_REACH).map(|place| &TABLE[place % PLACES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_until_a_walk_does_not_come_by() {
        const WORDS: usize = PLACES / 2;
        let slot = |i: usize| 0x7f00_0000_0000 + 8 * i;
        let kept = |i| Original::keep(slot(i), i, 1 + i % 2, libc::PROT_READ);
        assert!((0..WORDS).all(|i| kept(i).is_some()));
        for i in 0..WORDS {
            let original = Original::of(slot(i)).unwrap();
            assert_eq!(original.value(), i);
            if i % 3 == 0 {
                original.was_seen(7);
            }
        }
        Original::forget_unseen(7, |stand_in| stand_in == 1);
        for i in 0..WORDS {
            let is_kept = i % 3 == 0 || i % 2 == 1;
            assert_eq!(Original::of(slot(i)).is_some(), is_kept, "{i}");
        }
        // A place is used again, and a word of before replaced.
        assert_eq!(kept(2).unwrap().value(), 2);
        let again = Original::keep(slot(2), 5, 1, libc::PROT_READ).unwrap();
        assert_eq!(Original::of(slot(2)).unwrap().value(), 5);
        again.forget();
        assert!(Original::of(slot(2)).is_none());
    }
}
