//! `Profile` -> gperftools CPU profile.

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
    put(&mut out, &records.header)?;
    let mut record = Vec::new();
    for (stack, count) in records.iter() {
        record.clear();
        record.extend([count as u64, stack.len() as u64]);
        for (depth, location) in stack.iter().enumerate() {
            let address = records.addresses.of(*location);
            // Where an address is one of a call, the slot is that of its return.
            record.push(address + u64::from(depth > 0));
        }
        put(&mut out, &record)?;
    }
    put(&mut out, &TRAILER)?;
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
fn records(profile: &Profile) -> Result<Records, WriteError> {
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
struct Records {
    header: [u64; HEADER_SLOTS],
    stacks: StackTable,
    /// Of each stack.
    counts: Vec<i64>,
    addresses: WrittenAddresses,
}

impl Records {
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
fn sum(
    profile: &Profile,
    index: usize,
    addresses: &mut WrittenAddresses,
) -> Result<(StackTable, Vec<i64>), WriteError> {
    let mut by_stack = vec![0i64; profile.stacks().len()];
    for sample in profile.samples() {
        let count = &mut by_stack[sample.stack_id.index()];
        *count = count.saturating_add(sample.values[index]);
    }
    // Stacks that differ may have equal addresses, as those of locations that differ in their
    // lines.
    let mut stacks = StackTable::default();
    let mut counts: Vec<i64> = Vec::new();
    let mut canonical = Vec::new();
    for (i, count) in by_stack.into_iter().enumerate() {
        if count == 0 {
            continue;
        }
        canonical.clear();
        match profile.stacks().get(StackId(i as u32)) {
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
    match counts.iter().any(|&count| count < 0) {
        false => Ok((stacks, counts)),
        true => Err(WriteError::unfit(
            "a gperftools CPU profile holds positive counts, and this profile has negative ones: \
             write it as .pb.gz",
        )),
    }
}

fn put<W: Write>(out: &mut Chunks<W>, slots: &[u64]) -> Result<(), WriteError> {
    for slot in slots {
        out.buffer.extend_from_slice(&slot.to_ne_bytes());
    }
    out.drain()
}
