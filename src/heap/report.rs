//! What was sampled to a [`Profile`].
#![forbid(unsafe_code)]

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::peak::Reader;
use super::sites::{Blocks, Counted, Site, SiteId};
use super::{countdown, plumbing, sites, stack};
use crate::aggregate::locate_callers;
use crate::format::unsampled_in_sum;
use crate::profile::{Label, LabelValue, LocationId, Profile, SliceTable, StringId, ValueType};
#[cfg(feature = "symbolize")]
use crate::symbolize;
use crate::sys::clock::Clock;

const ALLOCATED: [ValueType; 2] = [
    ValueType::fixed("alloc_objects", "count"),
    ValueType::fixed("alloc_space", "bytes"),
];
const IN_USE: [ValueType; 2] = [
    ValueType::fixed("inuse_objects", "count"),
    ValueType::fixed("inuse_space", "bytes"),
];
const FREED: [ValueType; 2] = [
    ValueType::fixed("freed_objects", "count"),
    ValueType::fixed("freed_space", "bytes"),
];
const TEMPORARY: [ValueType; 2] = [
    ValueType::fixed("temporary_objects", "count"),
    ValueType::fixed("temporary_space", "bytes"),
];
const GROWTH: [ValueType; 2] = [
    ValueType::fixed("objects", "count"),
    ValueType::fixed("space", "bytes"),
];

/// All allocations after what was counted `before`; and which of all are in use.
pub(super) fn profile(before: &Counted) -> Profile {
    let mut rows = Rows::default();
    sites::each(|id, stack, site| {
        let blocks = [before.allocated_since(id, site), site.in_use()];
        rows.push(id, stack, site, site.mean, blocks);
    });
    rows.report([ALLOCATED, IN_USE])
}

/// What was in use when that was the most.
pub(super) fn peak() -> Profile {
    let mut rows = Rows::default();
    let reader = Reader::new();
    sites::each(|id, stack, site| {
        let blocks = reader.at_peak(&site.kept, site.in_use());
        rows.push(id, stack, site, site.mean, [blocks]);
    });
    drop(reader);
    rows.report([IN_USE])
}

/// What made it more than it had ever been, after what was counted `before`.
pub(super) fn growth(before: &Counted) -> Profile {
    let mut rows = Rows::default();
    sites::each(|id, stack, site| {
        let size = site.allocated.bytes / site.allocated.objects.max(1);
        let bytes = before.growth_since(id, site);
        let growth = Blocks {
            objects: bytes.div_ceil(size.max(1)),
            bytes,
        };
        // They stand for themselves.
        rows.push(id, stack, site, 1, [growth]);
    });
    rows.report([GROWTH])
}

/// What is freed, and what of that was temporary, by how long it lived.
pub(super) fn lifetimes() -> Profile {
    let mut rows = Rows::default();
    sites::each_lifetime(|number, stack, site, class, freed| {
        let values = Values {
            blocks: [freed.all, freed.temporary],
            lifetimes_ns: freed.ns,
            share: share(number),
        };
        rows.push_of_lifetime(stack, site, site.mean, Some(class), values);
    });
    rows.report([FREED, TEMPORARY])
}

/// What is known of sites: `N` times objects and bytes.
#[derive(Debug)]
struct Rows<const N: usize> {
    stacks: SliceTable<u64>,
    rows: Vec<(Key, Values<N>)>,
}

/// What samples have in common that are shown as one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Key {
    /// The number of their stack.
    stack: u32,
    /// The class of their sizes.
    class: u64,
    /// The mean interval that they were sampled with.
    mean: u64,
    /// The class of their lifetimes, if those are told.
    lifetime: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Values<const N: usize> {
    blocks: [Blocks; N],
    /// The sum of the lifetimes of the first blocks, if those are told.
    lifetimes_ns: u64,
    /// Above which fraction what the blocks stand for is rounded up.
    share: f64,
}

/// A share for the blocks of this number, evenly spread above 0 and up to 1: the same each time, so
/// that a value changes from one profile to the next only where its blocks do.
fn share(number: usize) -> f64 {
    countdown::random_of_process().share(number as u64)
}

impl<const N: usize> Default for Rows<N> {
    fn default() -> Self {
        Self {
            stacks: SliceTable::default(),
            rows: Vec::new(),
        }
    }
}

impl<const N: usize> Rows<N> {
    fn push(&mut self, id: SiteId, stack: &[u64], site: &Site, mean: u64, blocks: [Blocks; N]) {
        let values = Values {
            blocks,
            lifetimes_ns: 0,
            share: share(id.index()),
        };
        self.push_of_lifetime(stack, site, mean, None, values);
    }

    fn push_of_lifetime(
        &mut self,
        stack: &[u64],
        site: &Site,
        mean: u64,
        lifetime: Option<u8>,
        values: Values<N>,
    ) {
        if values.blocks.iter().any(|blocks| blocks.objects > 0) {
            let key = Key {
                stack: self.stacks.intern(stack),
                class: site.class,
                mean,
                lifetime,
            };
            self.rows.push((key, values));
        }
    }

    /// The profile with these types of values, the last of which viewers show.
    fn report(self, types: [[ValueType; 2]; N]) -> Profile {
        let mut profile = Profile::new(types.into_iter().flatten().collect());
        profile.period_type = ValueType::new("space", "bytes");
        profile.period = countdown::mean() as i64;
        let shown = profile.sample_types().last();
        profile.default_sample_type = shown.map_or(String::new(), |shown| shown.r#type.to_string());
        profile.time_nanos = Clock::REALTIME.now_ns().unwrap_or(0) as i64;
        // Scrapers refuse a profile that took no time.
        profile.duration_nanos = countdown::age_ns().max(1) as i64;
        profile.drop_frames = plumbing::drop_frames();

        // After the stacks: what they lead through was noticed before they were walked.
        let stacks = locate_callers(&mut profile, &stack::layouts(), &self.stacks);
        #[cfg(feature = "symbolize")]
        symbolize::add_names(&mut profile);
        let is_plumbing = profile.take_off_plumbing(plumbing::is_plumbing);

        let mut callers = SliceTable::<LocationId>::default();
        let mut order = Vec::new();
        let mut sums: HashMap<Key, Values<N>> = HashMap::new();
        for (mut key, values) in self.rows {
            let stack = &stacks[key.stack as usize];
            let leaf = stack.iter().position(|l| !is_plumbing[l.index()]);
            key.stack = callers.intern(&stack[leaf.unwrap_or(0)..]);
            match sums.entry(key) {
                Entry::Occupied(mut sum) => sum.get_mut().add(values),
                Entry::Vacant(place) => {
                    order.push(key);
                    place.insert(values);
                }
            }
        }
        let [bytes, lifetime, nanoseconds] =
            ["bytes", "lifetime", "nanoseconds"].map(|text| profile.intern(text));
        for key in order {
            let Values {
                blocks,
                lifetimes_ns,
                share,
            } = sums[&key];
            // Of what is in use, if anything is.
            let of_size = blocks.iter().rev().find(|blocks| blocks.objects > 0);
            let size = of_size.map_or(0, |blocks| blocks.bytes / blocks.objects);
            let mut labels = vec![label(bytes, size, StringId::default())];
            if key.lifetime.is_some() {
                let mean_ns = lifetimes_ns / blocks[0].objects.max(1);
                labels.push(label(lifetime, mean_ns, nanoseconds));
            }
            let values = blocks.map(|blocks| {
                let sampled = [blocks.objects as i64, blocks.bytes as i64];
                unsampled_in_sum(sampled, key.mean as i64, share)
            });
            profile.push_sample(callers.get(key.stack), values.as_flattened(), &labels);
        }
        profile
    }
}

impl<const N: usize> Values<N> {
    fn add(&mut self, others: Self) {
        for (sum, blocks) in self.blocks.iter_mut().zip(others.blocks) {
            *sum = sum.plus(blocks);
        }
        self.lifetimes_ns = self.lifetimes_ns.saturating_add(others.lifetimes_ns);
    }
}

fn label(key: StringId, value: u64, unit: StringId) -> Label {
    let value = LabelValue::Num {
        value: value as i64,
        unit,
    };
    Label { key, value }
}
