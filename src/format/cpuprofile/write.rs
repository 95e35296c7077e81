//! `Profile` -> gperftools CPU profile.

use std::io::Write;

use hashbrown::{HashMap, HashSet};

use super::NO_ADDRESS;
use crate::format::chunks::Chunks;
use crate::format::mapped_objects::{
    self, FIRST_PLACEHOLDER, PLACEHOLDER_LIMIT, Placeholder, is_placeholder_name,
};
use crate::format::{NO_STACK, WriteError};
use crate::profile::{Location, LocationId, Profile, StackId, StackTable};

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
            let address = records.addresses.of_location[location.index()];
            // Where an address is one of a call, the slot is that of its return.
            record.push(address + u64::from(depth > 0));
        }
        put(&mut out, &record)?;
    }
    put(&mut out, &TRAILER)?;
    let placeholders = &records.addresses.placeholders;
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
        let types = profile.sample_types().iter();
        let types: Vec<String> = types.map(|t| format!("{}/{}", t.r#type, t.unit)).collect();
        WriteError::unfit(format!(
            "a gperftools CPU profile holds counts of samples, and this profile has no samples/count (it has {}): \
             write it as .pb.gz",
            match types.is_empty() {
                true => "no sample types".to_owned(),
                false => types.join(", "),
            }
        ))
    })?;
    let period_us = period_us(profile)?;
    let mut addresses = Addresses::new(profile);
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
    addresses: Addresses,
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
    addresses: &mut Addresses,
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
                canonical.push(addresses.canonical[leaf.index()]);
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

/// The addresses that locations are written with.
struct Addresses {
    /// By location; behind the profile's own come those of placeholders.
    of_location: Vec<u64>,
    /// The first location with the same address, which stands for all of them.
    canonical: Vec<LocationId>,
    placeholders: Vec<Placeholder>,
    location_of_placeholder: HashMap<String, LocationId>,
    taken: HashSet<u64>,
    next_free: u64,
}

impl Addresses {
    fn new(profile: &Profile) -> Self {
        let locations = profile.locations();
        let reserved = FIRST_PLACEHOLDER..=PLACEHOLDER_LIMIT;
        let own = locations.iter().map(|l| l.address);
        let mut addresses = Self {
            of_location: locations.iter().map(|l| l.address).collect(),
            canonical: Vec::with_capacity(locations.len()),
            placeholders: Vec::new(),
            location_of_placeholder: HashMap::new(),
            taken: own.filter(|a| reserved.contains(a)).collect(),
            next_free: FIRST_PLACEHOLDER,
        };
        let mut first: HashMap<u64, LocationId> = HashMap::with_capacity(locations.len());
        for (i, location) in locations.iter().enumerate() {
            let id = LocationId(i as u32);
            let canonical = match location.address {
                0 => addresses.placeholder(name_of(profile, location)),
                address => *first.entry(address).or_insert(id),
            };
            addresses.canonical.push(canonical);
        }
        addresses
    }

    /// The location that stands for a caller: the last address of all has no return address after
    /// it.
    fn as_caller(&mut self, id: LocationId) -> LocationId {
        match self.of_location[id.index()] {
            u64::MAX => self.placeholder(NO_ADDRESS),
            _ => self.canonical[id.index()],
        }
    }

    fn no_stack(&mut self) -> LocationId {
        self.placeholder(NO_STACK)
    }

    /// The location that stands for a name.
    fn placeholder(&mut self, name: &str) -> LocationId {
        if let Some(&id) = self.location_of_placeholder.get(name) {
            return id;
        }
        while self.taken.contains(&self.next_free) {
            self.next_free += 2;
        }
        // The last place is kept for all names that there is no room for.
        let is_last = self.next_free + 2 >= PLACEHOLDER_LIMIT;
        if is_last && name != NO_ADDRESS {
            return self.placeholder(NO_ADDRESS);
        }
        let id = LocationId(self.of_location.len() as u32);
        self.of_location.push(self.next_free);
        self.placeholders.push(Placeholder {
            address: self.next_free,
            name: name.to_owned(),
        });
        self.location_of_placeholder.insert(name.to_owned(), id);
        self.next_free += 2;
        id
    }
}

/// The name to write for a location without an address.
fn name_of<'p>(profile: &'p Profile, location: &Location) -> &'p str {
    let function = location.lines.last().map(|l| profile.function(l.function));
    match function.map(|f| profile.string(f.name)) {
        Some(name) if is_placeholder_name(name) => name,
        _ => NO_ADDRESS,
    }
}

fn put<W: Write>(out: &mut Chunks<W>, slots: &[u64]) -> Result<(), WriteError> {
    for slot in slots {
        out.buffer.extend_from_slice(&slot.to_ne_bytes());
    }
    out.drain()
}
