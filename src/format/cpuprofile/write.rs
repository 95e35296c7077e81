//! `Profile` -> gperftools CPU profile.

use std::borrow::Cow;
use std::io::Write;

use crate::format::chunks::Chunks;
use crate::format::written_addresses::WrittenAddresses;
use crate::format::{WriteError, mapped_objects};
use crate::profile::{LocationId, Profile, StackId, StackTable};

const HEADER_SLOTS: usize = 5;
/// The record that ends the records.
const TRAILER: [u64; 3] = [0, 1, 0];

pub(in crate::format) fn write(profile: &Profile, out: &mut impl Write) -> Result<(), WriteError> {
    let records = records(profile)?;
    let mut out = Chunks::new(out);
    put(&mut out, records.header.into_iter())?;
    for (stack, count) in records.iter() {
        put(&mut out, [count as u64, stack.len() as u64].into_iter())?;
        // Where an address is one of a call, the slot is that of its return.
        let slot = |(depth, location): (usize, &LocationId)| {
            records.addresses.of(*location) + u64::from(depth > 0)
        };
        put(&mut out, stack.iter().enumerate().map(slot))?;
    }
    put(&mut out, TRAILER.into_iter())?;
    let placeholders = records.addresses.placeholders();
    let text = mapped_objects::print(profile.mappings(), placeholders);
    out.buffer.extend_from_slice(text.as_bytes());
    out.flush()
}

/// The size of a profile's file without the text at its end, in bytes.
#[cfg(feature = "capi")]
pub(in crate::format) fn size_before_text(profile: &Profile) -> Result<usize, WriteError> {
    let records = records(profile)?;
    let slots = records.iter().map(|(stack, _)| 2 + stack.len());
    Ok((HEADER_SLOTS + slots.sum::<usize>() + TRAILER.len()) * size_of::<u64>())
}

/// The profile as the format has it.
fn records(profile: &Profile) -> Result<Records<'_>, WriteError> {
    let is_count = |t: &crate::profile::ValueType| t.r#type == "samples" && t.unit == "count";
    let index = profile.sample_types().iter().position(is_count);
    let index = index.ok_or_else(|| {
        let holds = "a gperftools CPU profile holds counts of samples";
        WriteError::lacks(profile, holds, "samples/count")
    })?;
    let period_us = period_us(profile)?;
    let mut addresses = WrittenAddresses::new(profile);
    let (stacks, counts) = sum(profile, index, &mut addresses)?;
    Ok(Records {
        header: [0, HEADER_SLOTS as u64 - 2, 0, period_us, 0],
        stacks,
        counts,
        addresses,
    })
}

/// What a file holds before its text.
struct Records<'p> {
    header: [u64; HEADER_SLOTS],
    /// Stacks that have no addresses in common with another one.
    stacks: Cow<'p, StackTable>,
    /// Of each stack.
    counts: Vec<i64>,
    addresses: WrittenAddresses,
}

impl Records<'_> {
    /// Stacks and their counts.
    fn iter(&self) -> impl Iterator<Item = (&[LocationId], i64)> {
        let counts = self.counts.iter().enumerate();
        counts
            .filter(|&(_, &count)| count != 0)
            .map(|(i, &count)| (self.stacks.get(StackId(i as u32)), count))
    }
}

/// The period in microseconds, cut off as gperftools does it, but never 0, which readers refuse.
fn period_us(profile: &Profile) -> Result<u64, WriteError> {
    let unit = &profile.period_type.unit;
    let nanoseconds = match unit.as_ref() {
        "nanoseconds" => Some(profile.period),
        "microseconds" => profile.period.checked_mul(1_000),
        "milliseconds" => profile.period.checked_mul(1_000_000),
        "seconds" => profile.period.checked_mul(1_000_000_000),
        _ => None,
    };
    match nanoseconds {
        Some(ns) if ns > 0 => Ok((ns as u64 / 1_000).max(1)),
        _ => Err(WriteError::unfit(format!(
            "a gperftools CPU profile has a sampling period in time, and this profile's is {} {unit}: \
             write it as .pb.gz",
            profile.period
        ))),
    }
}

/// Sums the samples of equal chains of addresses.
fn sum<'p>(
    profile: &'p Profile,
    index: usize,
    addresses: &mut WrittenAddresses,
) -> Result<(Cow<'p, StackTable>, Vec<i64>), WriteError> {
    let mut by_stack = vec![0i64; profile.stacks().len()];
    for (stack, values) in profile.stack_values() {
        let count = &mut by_stack[stack.index()];
        *count = count.saturating_add(values[index]);
    }
    let has_empty = (0..by_stack.len()).any(|i| stack_of(profile, i).is_empty());
    let (stacks, counts) = match addresses.tell_stacks_apart() && !has_empty {
        true => (Cow::Borrowed(profile.stacks()), by_stack),
        false => {
            let (stacks, counts) = unite(profile, &by_stack, addresses);
            (Cow::Owned(stacks), counts)
        }
    };
    match counts.iter().any(|&count| count < 0) {
        false => Ok((stacks, counts)),
        true => Err(WriteError::unfit(
            "a gperftools CPU profile holds positive counts, and this profile has negative ones: \
             write it as .pb.gz",
        )),
    }
}

fn stack_of(profile: &Profile, index: usize) -> &[LocationId] {
    profile.stacks().get(StackId(index as u32))
}

/// Stacks that differ may have equal addresses, as those of locations that differ in their lines:
/// makes them one.
fn unite(
    profile: &Profile,
    by_stack: &[i64],
    addresses: &mut WrittenAddresses,
) -> (StackTable, Vec<i64>) {
    let mut stacks = StackTable::default();
    let mut counts: Vec<i64> = Vec::new();
    let mut canonical = Vec::new();
    for (i, &count) in by_stack.iter().enumerate() {
        if count == 0 {
            continue;
        }
        canonical.clear();
        match stack_of(profile, i) {
            [] => canonical.push(addresses.no_stack()),
            [leaf, callers @ ..] => {
                canonical.push(addresses.canonical(*leaf));
                canonical.extend(callers.iter().map(|c| addresses.as_caller(*c)));
            }
        }
        let stack = stacks.intern(&canonical).index();
        if stack == counts.len() {
            counts.push(0);
        }
        counts[stack] = counts[stack].saturating_add(count);
    }
    (stacks, counts)
}

/// Puts slots behind what is there.
fn put<W: Write>(
    out: &mut Chunks<W>,
    slots: impl ExactSizeIterator<Item = u64>,
) -> Result<(), WriteError> {
    let begin = out.buffer.len();
    let size = size_of::<u64>();
    out.buffer.resize(begin + slots.len() * size, 0);
    let places = out.buffer[begin..].chunks_exact_mut(size);
    for (place, slot) in places.zip(slots) {
        place.copy_from_slice(&slot.to_ne_bytes());
    }
    out.drain()
}
