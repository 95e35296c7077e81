//! The live set: sampled blocks that are not freed.
#![forbid(unsafe_code)]

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;

use super::lifetimes::Birth;
use super::sites::SiteId;
use crate::sys::fork_mutex::{ForkMutex, Held};

/// Parts of the set, by address.
const PARTS: usize = 64;

/// Addresses of blocks, and what is known of them.
type Part = ForkMutex<HashTable<(usize, Sample)>>;

static LIVE: [CachePadded<Part>; PARTS] =
    [const { CachePadded::new(ForkMutex::new(HashTable::new())) }; PARTS];

/// What is known of a sampled block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Sample {
    pub(super) site: SiteId,
    pub(super) size: u64,
    pub(super) birth: Birth,
}

// A program with a million of them shall not need more.
const _: () = assert!(size_of::<(usize, Sample)>() == 40);

/// Addresses are hashed as they are: a table of the set's own has no need to be safe from whoever
/// chooses them.
fn hash(block: usize) -> u64 {
    (block as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn part(block: usize) -> &'static Part {
    // The table takes the lowest bits and the seven highest.
    &LIVE[(hash(block) >> 50) as usize % PARTS]
}

/// Adds a block. Whether there was memory for it.
pub(super) fn insert(block: *const u8, sample: Sample) -> bool {
    let block = block.addr();
    let mut live = part(block).lock();
    if live.try_reserve(1, |&(block, _)| hash(block)).is_err() {
        return false;
    }
    live.insert_unique(hash(block), (block, sample), |&(block, _)| hash(block));
    true
}

/// Takes a block out, if it is there.
pub(super) fn remove(block: *const u8) -> Option<Sample> {
    remove_if(block, || true)
}

/// Takes a block out, if it is there and this is so while nobody else can take it out or add it.
pub(super) fn remove_if(block: *const u8, is_so: impl FnOnce() -> bool) -> Option<Sample> {
    let block = block.addr();
    let mut live = part(block).lock();
    if !is_so() {
        return None;
    }
    let entry = live
        .find_entry(hash(block), |&(known, _)| known == block)
        .ok()?;
    let ((_, sample), _) = entry.remove();
    Some(sample)
}

/// The set's mutexes, which a fork holds.
pub(super) fn mutexes() -> impl Iterator<Item = &'static dyn Held> {
    LIVE.iter().map(|part| &**part as &dyn Held)
}
