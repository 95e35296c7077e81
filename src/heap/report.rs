//! What was sampled to a [`Profile`].
#![forbid(unsafe_code)]

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::peak::Reader;
use super::sites::{Blocks, Counted, Site};
use super::{countdown, plumbing, sites, stack};
use crate::aggregate::{NamedFrames, Places, why_truncated};
use crate::format::unsampled;
use crate::profile::{Label, LabelValue, LocationId, Profile, SliceTable, StringId, ValueType};
#[cfg(feature = "symbolize")]
use crate::symbolize;
use crate::sys::clock::Clock;
use crate::unwind::StopReason;

const ALLOCATED: [ValueType; 2] = [
    ValueType::fixed("alloc_objects", "count"),
    ValueType::fixed("alloc_space", "bytes"),
];
const IN_USE: [ValueType; 2] = [
    ValueType::fixed("inuse_objects", "count"),
    ValueType::fixed("inuse_space", "bytes"),
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
        rows.push(stack, site, site.mean, blocks);
    });
    rows.report([ALLOCATED, IN_USE])
}

/// What was in use when that was the most.
pub(super) fn peak() -> Profile {
    let mut rows = Rows::default();
    let reader = Reader::new();
    sites::each(|_, stack, site| {
        let blocks = reader.at_peak(&site.kept, site.in_use());
        rows.push(stack, site, site.mean, [blocks]);
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
        rows.push(stack, site, 1, [growth]);
    });
    rows.report([GROWTH])
}

/// What is known of sites: `N` times objects and bytes.
#[derive(Debug)]
struct Rows<const N: usize> {
    stacks: SliceTable<u64>,
    rows: Vec<(Key, [Blocks; N])>,
}

/// The number of a stack, a class of sizes, and the mean interval that blocks were sampled with.
type Key = (u32, u64, u64);

impl<const N: usize> Default for Rows<N> {
    fn default() -> Self {
        Self {
            stacks: SliceTable::default(),
            rows: Vec::new(),
        }
    }
}

impl<const N: usize> Rows<N> {
    fn push(&mut self, stack: &[u64], site: &Site, mean: u64, blocks: [Blocks; N]) {
        if blocks.iter().any(|blocks| blocks.objects > 0) {
            let key = (self.stacks.intern(stack), site.class, mean);
            self.rows.push((key, blocks));
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
        let stacks = locate(&mut profile, &self.stacks);
        #[cfg(feature = "symbolize")]
        symbolize::add_names(&mut profile);
        let is_plumbing = plumbing::take_off(&mut profile);

        let mut callers = SliceTable::<LocationId>::default();
        let mut order = Vec::new();
        let mut sums: HashMap<Key, [Blocks; N]> = HashMap::new();
        for ((stack, class, mean), blocks) in self.rows {
            let stack = &stacks[stack as usize];
            let leaf = stack.iter().position(|l| !is_plumbing[l.index()]);
            let stack = callers.intern(&stack[leaf.unwrap_or(0)..]);
            let key = (stack, class, mean);
            let sum = match sums.entry(key) {
                Entry::Occupied(sum) => sum.into_mut(),
                Entry::Vacant(place) => {
                    order.push(key);
                    place.insert([Blocks::default(); N])
                }
            };
            for (sum, blocks) in sum.iter_mut().zip(blocks) {
                *sum = sum.plus(blocks);
            }
        }
        let key = profile.intern("bytes");
        for row @ (stack, _, mean) in order {
            let blocks = sums[&row];
            // Of what is in use, if anything is.
            let of_size = blocks.iter().rev().find(|blocks| blocks.objects > 0);
            let value = LabelValue::Num {
                value: of_size.map_or(0, |blocks| blocks.bytes / blocks.objects) as i64,
                unit: StringId::default(),
            };
            let values = blocks
                .map(|blocks| unsampled([blocks.objects as i64, blocks.bytes as i64], mean as i64));
            profile.push_sample(
                callers.get(stack),
                values.as_flattened(),
                &[Label { key, value }],
            );
        }
        profile
    }
}

/// The locations of stacks, by their numbers.
fn locate(profile: &mut Profile, stacks: &SliceTable<u64>) -> Vec<Vec<LocationId>> {
    let layouts = stack::layouts();
    let mut places = Places::new(profile, &layouts);
    let mut ends = NamedFrames::default();
    let mut of_stack = |words: &[u64]| {
        let (&first, addresses) = words.split_first().unwrap_or((&0, &[]));
        let (layout, ended) = (first as u32, StopReason::from_u8((first >> 32) as u8));
        // Return addresses all of them: one less is inside of the call.
        let mut stack: Vec<_> = (addresses.iter())
            .map(|address| places.locate(profile, layout, address.wrapping_sub(1)))
            .collect();
        // So that a part of a stack never looks like a whole one.
        stack.extend(why_truncated(ended).map(|why| ends.of(profile, why)));
        stack
    };
    stacks.iter().map(&mut of_stack).collect()
}
