//! Whether a block may be a sampled one: what each free asks.
//!
//! A counter for each page of memory says how many sampled blocks begin on it. Neighbours in memory
//! are neighbours in the table: 256 KiB of blocks have one cache line of it. Of a page that has a
//! sampled block, another table tells its other blocks, nearly all of them. Both have fewer counters
//! than there are addresses, so that the answer may be "maybe" for a block that is none, and never
//! "no" for one that is.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

/// How many sampled blocks there are.
struct Counter(AtomicU8);

/// By page.
static PAGES: [Counter; 1 << 20] = [const { Counter(AtomicU8::new(0)) }; 1 << 20];
/// By block.
static BLOCKS: [Counter; 1 << 16] = [const { Counter(AtomicU8::new(0)) }; 1 << 16];

impl Counter {
    #[inline(always)]
    fn is_zero(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// At the most that a counter holds it stays, as nobody knows any more how many there are.
    fn add(&self) {
        let next = |count: u8| count.checked_add(1);
        let _ = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn subtract(&self) {
        let next = |count: u8| match count {
            0 | u8::MAX => None,
            count => Some(count - 1),
        };
        let _ = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

/// That of the block's page.
#[inline(always)]
fn page(block: *const u8) -> &'static Counter {
    &PAGES[(block.addr() >> 12) % PAGES.len()]
}

/// That of the block.
fn of_block(block: *const u8) -> &'static Counter {
    // The allocators that there are have blocks at multiples of 16. What is above it and the
    // page's place in memory are mixed.
    &BLOCKS[(block.addr() >> 4 ^ block.addr() >> 20) % BLOCKS.len()]
}

/// Whether a block may be sampled: a few of a thousand others may be as well.
///
/// Whoever frees a block was given it by whoever allocated it, in a way that makes what was done
/// before be seen: the counters as well.
#[inline(always)]
pub(super) fn may_be_sampled(block: *const u8) -> bool {
    !page(block).is_zero()
}

/// Whether a block that [`may_be_sampled`] is likely to be.
pub(super) fn is_likely_sampled(block: *const u8) -> bool {
    !of_block(block).is_zero()
}

/// Counts a sampled block.
pub(super) fn add(block: *const u8) {
    page(block).add();
    of_block(block).add();
}

/// Takes a block from the count.
pub(super) fn remove(block: *const u8) {
    page(block).subtract();
    of_block(block).subtract();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_sampled_until_it_is_removed_as_often_as_it_was_added() {
        let block = std::ptr::without_provenance::<u8>(0x7f12_3456_7010);
        let neighbour = block.wrapping_add(0xfe0);
        let next_page = block.wrapping_add(0x1000);
        assert!(!may_be_sampled(block));
        add(block);
        add(neighbour);
        assert!(may_be_sampled(block) && may_be_sampled(neighbour));
        assert!(!may_be_sampled(next_page));
        assert!(is_likely_sampled(block) && is_likely_sampled(neighbour));
        assert!(!is_likely_sampled(block.wrapping_add(16)));
        remove(block);
        assert!(may_be_sampled(neighbour) && is_likely_sampled(neighbour));
        assert!(!is_likely_sampled(block));
        remove(neighbour);
        assert!(!may_be_sampled(block));
        remove(block);
        assert!(!may_be_sampled(block));
    }

    #[test]
    fn a_page_of_more_blocks_than_are_counted_stays() {
        let block = std::ptr::without_provenance::<u8>(0x7f12_4456_7010);
        (0..300).for_each(|_| add(block));
        (0..300).for_each(|_| remove(block));
        assert!(may_be_sampled(block) && is_likely_sampled(block));
    }
}
