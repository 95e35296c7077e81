//! Whether a block may be a sampled one: what each free asks.
//!
//! A counter for each page of memory says how many sampled blocks begin on it. Pages share
//! counters, so that the answer may be "maybe" for a block that is none, and never "no" for one
//! that is. Neighbours in memory are neighbours in the table: 256 KiB of blocks have one cache line
//! of it.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

/// As a shift.
const PAGE: u32 = 12;
const COUNTERS: usize = 1 << 20;

/// 1 MiB, of which the system gives the parts that are used.
static SAMPLED: [AtomicU8; COUNTERS] = [const { AtomicU8::new(0) }; COUNTERS];

#[inline(always)]
fn counter(block: *const u8) -> &'static AtomicU8 {
    &SAMPLED[(block.addr() >> PAGE) % COUNTERS]
}

/// Whether a block may be sampled.
///
/// Whoever frees a block was given it by whoever allocated it, in a way that makes what was done
/// before be seen: the counter as well.
#[inline(always)]
pub(super) fn may_be_sampled(block: *const u8) -> bool {
    counter(block).load(Ordering::Relaxed) != 0
}

/// Counts a sampled block.
pub(super) fn add(block: *const u8) {
    // At the most that a counter holds it stays, as nobody knows any more how many there are.
    let next = |count: u8| count.checked_add(1);
    let _ = counter(block).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
}

/// Takes a block from the count.
pub(super) fn remove(block: *const u8) {
    let next = |count: u8| match count {
        0 | u8::MAX => None,
        count => Some(count - 1),
    };
    let _ = counter(block).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
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
        remove(block);
        assert!(may_be_sampled(neighbour));
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
        assert!(may_be_sampled(block));
    }
}
