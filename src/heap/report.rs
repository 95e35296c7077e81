//! What was sampled to a [`Profile`].
#![forbid(unsafe_code)]

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::sites::{Allocated, Blocks};
use super::{countdown, plumbing, sites, stack};
use crate::aggregate::{NamedFrames, Places, why_truncated};
use crate::format::unsampled;
use crate::profile::{Label, LabelValue, LocationId, Profile, SliceTable, StringId, ValueType};
#[cfg(feature = "symbolize")]
use crate::symbolize;
use crate::sys::clock::Clock;
use crate::unwind::StopReason;

const TYPES: [ValueType; 4] = [
    ValueType::fixed("alloc_objects", "count"),
    ValueType::fixed("alloc_space", "bytes"),
    ValueType::fixed("inuse_objects", "count"),
    ValueType::fixed("inuse_space", "bytes"),
];

/// Blocks that were sampled with one mean interval by a stack.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    allocated: Blocks,
    in_use: Blocks,
}

/// All allocations since the start, or those after what was `earlier` allocated; and which of all
/// are in use.
pub(super) fn profile(earlier: Option<&Allocated>) -> Profile {
    let mut profile = Profile::new(TYPES.to_vec());
    profile.period_type = ValueType::new("space", "bytes");
    profile.period = countdown::mean() as i64;
    profile.default_sample_type = "inuse_space".to_owned();
    profile.time_nanos = Clock::REALTIME.now_ns().unwrap_or(0) as i64;
    // Scrapers refuse a profile that took no time.
    profile.duration_nanos = countdown::age_ns().max(1) as i64;
    profile.drop_frames = plumbing::drop_frames();

    let mut words = SliceTable::<u64>::default();
    let mut found: Vec<(u32, u64, u64, Row)> = Vec::new();
    sites::each(|id, stack, site| {
        let earlier = earlier.map(|earlier| earlier.of(id)).unwrap_or_default();
        let row = Row {
            allocated: site.allocated.minus(earlier),
            in_use: site.allocated.minus(site.freed),
        };
        if row.allocated.objects > 0 || row.in_use.objects > 0 {
            found.push((words.intern(stack), site.class, site.mean, row));
        }
    });
    // After the stacks: what they lead through was noticed before they were walked.
    let stacks = locate(&mut profile, &words);
    #[cfg(feature = "symbolize")]
    symbolize::add_names(&mut profile);
    let is_plumbing = plumbing::take_off(&mut profile);

    let mut callers = SliceTable::<LocationId>::default();
    let mut order = Vec::new();
    let mut rows: HashMap<(u32, u64, u64), Row> = HashMap::new();
    for (stack, class, mean, of_site) in found {
        let stack = &stacks[stack as usize];
        let leaf = stack.iter().position(|l| !is_plumbing[l.index()]);
        let stack = callers.intern(&stack[leaf.unwrap_or(0)..]);
        let key = (stack, class, mean);
        let row = match rows.entry(key) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(place) => {
                order.push(key);
                place.insert(Row::default())
            }
        };
        row.allocated = row.allocated.plus(of_site.allocated);
        row.in_use = row.in_use.plus(of_site.in_use);
    }
    let key = profile.intern("bytes");
    for row_of @ (stack, _, mean) in order {
        let Row { allocated, in_use } = rows[&row_of];
        let of_size = if in_use.objects > 0 {
            in_use
        } else {
            allocated
        };
        let value = LabelValue::Num {
            value: (of_size.bytes / of_size.objects.max(1)) as i64,
            unit: StringId::default(),
        };
        let values = [allocated, in_use]
            .map(|blocks| unsampled([blocks.objects as i64, blocks.bytes as i64], mean as i64));
        profile.push_sample(
            callers.get(stack),
            values.as_flattened(),
            &[Label { key, value }],
        );
    }
    profile
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
