//! Whether a block may be a sampled one: what each free asks.
//!
//! A word for each page of 16 KiB says whether sampled blocks begin on it, and where the sampled
//! block begins if there is one alone: so the same word tells the page's other blocks from that
//! block. Neighbours in memory are neighbours in the table: 256 KiB of blocks have one cache line of
//! the table. On a page that has several sampled blocks, another table tells nearly all of the
//! other blocks. Both tables have fewer places than there are addresses, so that the answer may be
//! "maybe" for a block that is not sampled, and never "no" for a sampled one.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// A page has 16 KiB.
const PAGE_SHIFT: u32 = 14;

/// Allocators have blocks at multiples of 16 bytes.
const BLOCK_SHIFT: u32 = 4;

/// How many blocks can begin on a page.
const PLACES: u32 = 1 << (PAGE_SHIFT - BLOCK_SHIFT);

/// By page, the sum of what [`share`] says of each sampled block that begins there. A share is less
/// than twice `PLACES`, so that a word overflows where 2 Mi sampled blocks have the same one: not
/// below 32 TiB of nothing but sampled blocks of 16 bytes.
static PAGES: [AtomicU32; 1 << 18] = [const { AtomicU32::new(0) }; 1 << 18];

/// How many sampled blocks there are, by block.
static BLOCKS: [AtomicU8; 1 << 16] = [const { AtomicU8::new(0) }; 1 << 16];

/// The word of a block's page.
#[inline(always)]
fn page(block: *const u8) -> &'static AtomicU32 {
    &PAGES[(block.addr() >> PAGE_SHIFT) % PAGES.len()]
}

/// What a sampled block adds to the word of its page: one `PLACES`, and below that its place on the
/// page. The word of one block is less than twice `PLACES`, that of more blocks is not.
#[inline(always)]
fn share(block: *const u8) -> u32 {
    PLACES | ((block.addr() >> BLOCK_SHIFT) as u32 % PLACES)
}

/// The counter of a block.
fn of_block(block: *const u8) -> &'static AtomicU8 {
    // The block's place on its page is mixed with the place of the page in memory.
    &BLOCKS[(block.addr() >> BLOCK_SHIFT ^ block.addr() >> 20) % BLOCKS.len()]
}

/// Whether a block may be sampled: some of a thousand others may be as well.
///
/// Whoever frees a block was given it by whoever allocated it, in a way that makes what was done
/// before be seen: the words as well.
#[inline(always)]
pub(super) fn may_be_sampled(block: *const u8) -> bool {
    let word = page(block).load(Ordering::Relaxed);
    word == share(block) || word >= 2 * PLACES
}

/// Whether a block that [`may_be_sampled`] is likely to be.
pub(super) fn is_likely_sampled(block: *const u8) -> bool {
    of_block(block).load(Ordering::Relaxed) != 0
}

/// Counts a sampled block.
pub(super) fn add(block: *const u8) {
    page(block).fetch_add(share(block), Ordering::Relaxed);
    // At the most that a counter holds it stays, as nobody knows any more how many there are.
    let next = |count: u8| count.checked_add(1);
    let _ = of_block(block).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
}

/// Takes a block from the count, which was added.
pub(super) fn remove(block: *const u8) {
    page(block).fetch_sub(share(block), Ordering::Relaxed);
    let next = |count: u8| match count {
        0 | u8::MAX => None,
        count => Some(count - 1),
    };
    let _ = of_block(block).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_sampled_until_it_is_removed_as_often_as_it_was_added() {
        let block = std::ptr::without_provenance::<u8>(0x7f12_3456_4010);
        let neighbour = block.wrapping_add(0x3fe0);
        let between = block.wrapping_add(0x1000);
        let next_page = block.wrapping_add(0x4000);
        assert!(!may_be_sampled(block));
        add(block);
        assert!(may_be_sampled(block) && is_likely_sampled(block));
        assert!(!may_be_sampled(neighbour) && !may_be_sampled(block.wrapping_sub(16)));
        add(neighbour);
        assert!(may_be_sampled(block) && may_be_sampled(neighbour));
        assert!(is_likely_sampled(block) && is_likely_sampled(neighbour));
        assert!(may_be_sampled(between) && !is_likely_sampled(between));
        assert!(!may_be_sampled(next_page));
        remove(block);
        assert!(!may_be_sampled(block) && !is_likely_sampled(block));
        assert!(may_be_sampled(neighbour) && is_likely_sampled(neighbour));
        remove(neighbour);
        assert!(!may_be_sampled(block) && !may_be_sampled(neighbour));
    }

    #[test]
    fn the_first_block_of_a_page_is_told_from_none() {
        let block = std::ptr::without_provenance::<u8>(0x7f12_5456_4000);
        assert!(!may_be_sampled(block));
        add(block);
        assert!(may_be_sampled(block) && !may_be_sampled(block.wrapping_add(16)));
        remove(block);
        assert!(!may_be_sampled(block));
    }

    #[test]
    fn pages_that_share_a_word_hide_none_of_their_blocks() {
        let block = std::ptr::without_provenance::<u8>(0x7f12_6456_4010);
        let others = (1..300_usize).map(|i| block.wrapping_add(i << 32));
        others.clone().for_each(add);
        add(block);
        others.for_each(remove);
        assert!(may_be_sampled(block) && is_likely_sampled(block));
        remove(block);
        assert!(!may_be_sampled(block));
    }

    #[test]
    fn a_block_that_is_counted_too_often_stays_likely() {
        let block = std::ptr::without_provenance::<u8>(0x7f12_4456_7010);
        (0..300).for_each(|_| add(block));
        (0..300).for_each(|_| remove(block));
        assert!(is_likely_sampled(block));
    }
}
