//! Where blocks were allocated, and how many of each size.
#![forbid(unsafe_code)]

use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::lifetimes::{Freed, Lifetime};
use super::peak::{self, Kept};
use crate::format::unsampled;
use crate::profile::SliceTable;
use crate::sys::fork_mutex::{ForkMutex, Held};

/// Parts of the table, by stack: threads that sample different ones seldom wait for each other.
const PARTS: usize = 16;

static SITES: [CachePadded<ForkMutex<Option<Sites>>>; PARTS] =
    [const { CachePadded::new(ForkMutex::new(None)) }; PARTS];

/// A site, by the number of its part and its place there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct SiteId(u32);

impl SiteId {
    /// That of a place in a part, neither of which is more than a number of sites.
    fn new(place: usize, part: usize) -> Self {
        Self((place * PARTS + part) as u32)
    }

    /// A small number, which no other site has.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Sampled blocks and their bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Blocks {
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

impl Blocks {
    pub(super) fn add(&mut self, size: u64) {
        self.objects += 1;
        self.bytes += size;
    }

    pub(super) fn plus(self, others: Self) -> Self {
        Self {
            objects: self.objects + others.objects,
            bytes: self.bytes + others.bytes,
        }
    }

    /// These without those of `others`.
    pub(super) fn minus(self, others: Self) -> Self {
        Self {
            objects: self.objects.saturating_sub(others.objects),
            bytes: self.bytes.saturating_sub(others.bytes),
        }
    }
}

/// What was sampled of one stack and one class of sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// The stack, by its number in the part.
    stack: u32,
    /// The class of the blocks' sizes.
    pub(super) class: u64,
    /// The mean interval that the blocks were sampled with.
    pub(super) mean: u64,
    pub(super) allocated: Blocks,
    freed: Blocks,
    /// By how many bytes, as they stand for all, its blocks raised what was in use over the most
    /// that ever was.
    pub(super) growth: u64,
    pub(super) kept: Kept,
}

/// Part of the table.
#[derive(Debug, Default)]
struct Sites {
    /// Words of stacks.
    stacks: SliceTable<u64>,
    sites: Vec<Site>,
    /// Places in `sites`.
    index: HashTable<u32>,
    /// What is freed, by places in `sites` and classes of lifetimes.
    lifetimes: Vec<((u32, u8), Freed)>,
    /// Places in `lifetimes`.
    lifetimes_index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// The class of a size. Sizes of one class are the same, or above 1 KiB differ by less than 1 in
/// 64, so that a stack has a bounded number of sites, and what samples stand for is the same for
/// one size as for the mean of a class.
pub(super) fn class(size: u64) -> u64 {
    let bits = (u64::BITS - size.leading_zeros()).saturating_sub(7);
    match size < 1024 {
        true => size,
        false => size >> bits << bits,
    }
}

impl Sites {
    /// The place of a site, which is added if it is new; `None` where there is no memory for it.
    fn find_or_add(&mut self, stack: &[u64], size: u64, mean: u64) -> Option<usize> {
        // Without an end of the process where there is no room.
        self.stacks.try_reserve(1, stack.len()).ok()?;
        self.sites.try_reserve(1).ok()?;
        let Self {
            stacks,
            sites,
            index,
            hasher,
            ..
        } = self;
        let hash = |key: &(u32, u64, u64)| hasher.hash_one(key);
        let hash_of = |sites: &[Site], place: u32| hash(&sites[place as usize].key());
        index.try_reserve(1, |&place| hash_of(sites, place)).ok()?;
        let key = (stacks.intern(stack), class(size), mean);
        let known = index.find(hash(&key), |&place| sites[place as usize].key() == key);
        if let Some(&place) = known {
            return Some(place as usize);
        }
        let place = sites.len();
        sites.push(Site {
            stack: key.0,
            class: key.1,
            mean,
            allocated: Blocks::default(),
            freed: Blocks::default(),
            growth: 0,
            kept: Kept::default(),
        });
        index.insert_unique(hash(&key), place as u32, |&place| hash_of(sites, place));
        Some(place)
    }

    /// What is freed of a site's blocks that lived about as long; `None` where there is no memory
    /// for it.
    fn freed_after(&mut self, site: u32, lifetime: Lifetime) -> Option<&mut Freed> {
        let Self {
            lifetimes,
            lifetimes_index: index,
            hasher,
            ..
        } = self;
        lifetimes.try_reserve(1).ok()?;
        let hash = |key: &(u32, u8)| hasher.hash_one(key);
        let hash_of =
            |lifetimes: &[((u32, u8), Freed)], place: u32| hash(&lifetimes[place as usize].0);
        index
            .try_reserve(1, |&place| hash_of(lifetimes, place))
            .ok()?;
        let key = (site, lifetime.class());
        let known = index.find(hash(&key), |&place| lifetimes[place as usize].0 == key);
        let place = match known {
            Some(&place) => place as usize,
            None => {
                let place = lifetimes.len();
                lifetimes.push((key, Freed::default()));
                index.insert_unique(hash(&key), place as u32, |&place| hash_of(lifetimes, place));
                place
            }
        };
        Some(&mut lifetimes[place].1)
    }
}

impl Site {
    fn key(&self) -> (u32, u64, u64) {
        (self.stack, self.class, self.mean)
    }

    /// What is not freed.
    pub(super) fn in_use(&self) -> Blocks {
        self.allocated.minus(self.freed)
    }

    fn count_allocated(&mut self, size: u64) {
        let now = self.in_use();
        let mut in_use = peak::lock();
        in_use.keep(&mut self.kept, now);
        self.allocated.add(size);
        self.growth += in_use.add(stands_for(size, self.mean));
    }

    fn count_freed(&mut self, size: u64) {
        let now = self.in_use();
        let mut in_use = peak::lock();
        in_use.keep(&mut self.kept, now);
        self.freed.add(size);
        in_use.subtract(stands_for(size, self.mean));
    }
}

/// Bytes that a sampled block of this size stands for.
fn stands_for(size: u64, mean: u64) -> u64 {
    unsampled([1, size as i64], mean as i64)[1] as u64
}

/// Counts a sampled block, allocated by a stack of these words. `None` where there is no memory to
/// count it in.
pub(super) fn count_allocated(stack: &[u64], size: u64, mean: u64) -> Option<SiteId> {
    let part = part_of(stack);
    let mut sites = SITES[part].lock();
    let sites = sites.get_or_insert_default();
    let place = sites.find_or_add(stack, size, mean)?;
    let id = u32::try_from(place * PARTS + part).ok()?;
    sites.sites[place].count_allocated(size);
    Some(SiteId(id))
}

/// Counts that a sampled block of a site was freed, and after which lifetime if that is known.
pub(super) fn count_freed(SiteId(id): SiteId, size: u64, lifetime: Option<Lifetime>) {
    let (place, part) = (id as usize / PARTS, id as usize % PARTS);
    let mut sites = SITES[part].lock();
    let Some(sites) = &mut *sites else { return };
    sites.sites[place].count_freed(size);
    if let Some(lifetime) = lifetime
        && let Some(freed) = sites.freed_after(place as u32, lifetime)
    {
        freed.add(size, lifetime);
    }
}

fn part_of(stack: &[u64]) -> usize {
    let mix =
        |hash: u64, word: &u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    (stack.iter().fold(0, mix) >> 32) as usize % PARTS
}

/// Calls `see` with all sites and the words of their stacks.
pub(super) fn each(mut see: impl FnMut(SiteId, &[u64], &Site)) {
    let copy = |sites: &Sites, place: usize| sites.sites.get(place).copied();
    copy_each(
        |sites, place| copy(sites, place).map(|site| (site.stack, site)),
        |id, stack, site| see(id, stack, site),
    );
}

/// Calls `see` with what is freed of each site and class of lifetimes, a number that stays that of
/// the two, and the words of the site's stack.
pub(super) fn each_lifetime(mut see: impl FnMut(usize, &[u64], &Site, u8, &Freed)) {
    copy_each(
        |sites, place| {
            let &((site, class), freed) = sites.lifetimes.get(place)?;
            let site = sites.sites[site as usize];
            Some((site.stack, (site, class, freed)))
        },
        |place, stack, (site, class, freed)| see(place.index(), stack, site, *class, freed),
    );
}

/// Calls `see` with all that `copy` has of a part's places, and with the words of the stack that
/// `copy` says. Some are copied at a time: whoever allocates meanwhile waits for microseconds.
fn copy_each<T>(
    copy: impl Fn(&Sites, usize) -> Option<(u32, T)>,
    mut see: impl FnMut(SiteId, &[u64], &T),
) {
    /// Places that are copied at once, and words of their stacks, so that allocating threads wait
    /// for some 20 µs.
    const AT_ONCE: usize = 256;
    const WORDS_AT_ONCE: usize = 16 * 1024;
    let mut words: Vec<u64> = Vec::with_capacity(2 * WORDS_AT_ONCE);
    let mut copied: Vec<(usize, T)> = Vec::with_capacity(AT_ONCE);
    for (number, part) in SITES.iter().enumerate() {
        let mut next = 0;
        loop {
            words.clear();
            copied.clear();
            super::countdown::without_samples(|| {
                let sites = part.lock();
                let Some(sites) = &*sites else { return };
                while copied.len() < AT_ONCE
                    && words.len() < WORDS_AT_ONCE
                    && let Some((stack, row)) = copy(sites, next + copied.len())
                {
                    words.extend_from_slice(sites.stacks.get(stack));
                    copied.push((words.len(), row));
                }
            });
            if copied.is_empty() {
                break;
            }
            let mut begin = 0;
            for &(end, ref row) in &copied {
                see(SiteId::new(next, number), &words[begin..end], row);
                next += 1;
                begin = end;
            }
        }
    }
}

/// What was counted until some moment, by site, and is not taken back.
#[derive(Debug, Default)]
pub(super) struct Counted(Vec<(Blocks, u64)>);

impl Counted {
    /// What is there now.
    pub(super) fn now() -> Self {
        let mut sites = Vec::new();
        each(|id, _, site| {
            sites.resize(sites.len().max(id.index() + 1), Default::default());
            sites[id.index()] = (site.allocated, site.growth);
        });
        Self(sites)
    }

    /// What a site has allocated after that.
    pub(super) fn allocated_since(&self, id: SiteId, site: &Site) -> Blocks {
        site.allocated.minus(self.of(id).0)
    }

    /// By how many bytes it has grown after that.
    pub(super) fn growth_since(&self, id: SiteId, site: &Site) -> u64 {
        site.growth - self.of(id).1
    }

    fn of(&self, id: SiteId) -> (Blocks, u64) {
        self.0.get(id.index()).copied().unwrap_or_default()
    }
}

/// The table's mutexes, which a fork holds.
pub(super) fn mutexes() -> impl Iterator<Item = &'static dyn Held> {
    SITES.iter().map(|part| &**part as &dyn Held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_a_class_are_nearly_the_same() {
        let mut classes = 0;
        let mut last = 0;
        for size in 1..1_000_000 {
            let class = class(size);
            assert!(
                class <= size && size - class <= size / 64,
                "{size}: {class}"
            );
            classes += u64::from(class != last);
            last = class;
        }
        assert!(classes < 1024 + 10 * 64, "{classes}");
        assert_eq!(class(u64::MAX), 127 << 57);
        assert_eq!(class(1), 1);
    }
}
