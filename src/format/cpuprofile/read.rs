//! gperftools CPU profile -> `Profile`.

use std::fmt::Display;

use crate::format::address_table::AddressTable;
use crate::format::cursor::Layout;
use crate::format::mapped_objects::{self, MappedObjects};
use crate::format::{NO_STACK, charge, invalid, too_large};
use crate::profile::{LocationId, Profile, ValueType};
use crate::{Error, Result};

/// More header slots than any version would have.
const MAX_HEADER_SLOTS: u64 = 1024;

/// The frames that a profiler of this format adds itself: what google/pprof drops from such a file.
pub(in crate::format) const DROP_FRAMES: &str = "ProfileData::Add|ProfileData::prof_handler|CpuProfiler::prof_handler|\
                           __pthread_sighandler|__restore";

/// The slots that a file consists of, each the size of an address.
#[derive(Clone, Copy, Debug)]
pub(in crate::format) struct Slots<'b> {
    bytes: &'b [u8],
    layout: Layout,
}

impl<'b> Slots<'b> {
    fn get(self, index: usize) -> Option<u64> {
        let offset = index.checked_mul(self.layout.address_size)?;
        self.layout.address(self.bytes.get(offset..)?)
    }

    /// So many from a slot on, as far as they are there.
    fn iter(self, index: usize, count: usize) -> impl Iterator<Item = u64> {
        let size = self.layout.address_size;
        let bytes = self.rest(index).chunks_exact(size).take(count);
        bytes.map(move |bytes| self.layout.address(bytes).unwrap_or_default())
    }

    /// How many there are, whole ones.
    fn count(self) -> usize {
        self.bytes.len() / self.layout.address_size
    }

    /// What begins in the place of a slot.
    fn rest(self, index: usize) -> &'b [u8] {
        let offset = index.saturating_mul(self.layout.address_size);
        self.bytes.get(offset..).unwrap_or_default()
    }

    /// The error of what begins with a slot: `reason` goes on after "at byte N".
    fn refuse(self, index: usize, reason: impl Display) -> Error {
        let offset = index.saturating_mul(self.layout.address_size);
        invalid(format!(
            "the gperftools CPU profile has at byte {offset} {reason}"
        ))
    }
}

/// Recognizes a file of this format, of any width and byte order, by its first two slots.
pub(in crate::format) fn sniff(bytes: &[u8]) -> Option<Slots<'_>> {
    let kinds = Layout::ALL.map(|layout| Slots { bytes, layout });
    kinds
        .into_iter()
        .find(|slots| slots.get(0) == Some(0) && matches!(slots.get(1), Some(3..=MAX_HEADER_SLOTS)))
}

/// Bytes of memory that a record takes until it is a sample of a stack of its own.
const RECORD_MEMORY: usize = 64;
/// Bytes of memory that each address of a record takes, as read and in its stack.
const ADDRESS_MEMORY: usize = 12;
/// The records of a file, with their addresses in one buffer: there may be millions of either.
#[derive(Default)]
struct Records {
    records: Vec<Record>,
    addresses: Vec<u64>,
}

/// How often a stack was met, and where its addresses are, leaf first.
struct Record {
    count: i64,
    start: u32,
    end: u32,
}

impl Record {
    fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl Records {
    fn addresses_of(&self, record: &Record) -> &[u64] {
        &self.addresses[record.range()]
    }

    fn seconds(&self) -> impl Iterator<Item = u64> {
        let records = self.records.iter();
        records.filter_map(|r| self.addresses_of(r).get(1).copied())
    }

    /// Removes the second address of the records where it and the leaf are as asked for.
    fn remove_seconds(&mut self, is_one: impl Fn(u64, u64) -> bool) {
        for record in &mut self.records {
            if let [leaf, second, ..] = &mut self.addresses[record.range()]
                && is_one(*leaf, *second)
            {
                *second = *leaf;
                record.start += 1;
            }
        }
    }
}

pub(in crate::format) fn read(slots: Slots, mut memory: u64) -> Result<Profile> {
    let slot = |index| {
        let cut_off = || slots.refuse(slots.count(), "its end, inside the header: it was cut off");
        slots.get(index).ok_or_else(cut_off)
    };
    let first_record = 2 + slot(1)? as usize;
    match slot(2)? {
        0 => {}
        1 => {
            return Err(slots.refuse(
                2,
                "the version of a Java program's, whose frames are no addresses: such a profile is \
                 not supported",
            ));
        }
        version => {
            return Err(slots.refuse(2, format_args!("the unknown version {version}")));
        }
    }
    let period = i64::try_from(slot(3)?)
        .ok()
        .and_then(|us| us.checked_mul(1_000))
        .filter(|&ns| ns > 0)
        .ok_or_else(|| slots.refuse(3, "a sampling period of 0, or one out of range"))?;
    slot(first_record - 1)?;

    let (mut records, text) = read_records(slots, first_record, &mut memory)?;
    let objects = mapped_objects::parse(text, &mut memory)?;
    if !objects.is_exact {
        drop_trampolines(&mut records);
    }
    build(records, objects, period, &mut memory)
}

fn read_records<'b>(
    slots: Slots<'b>,
    mut next: usize,
    memory: &mut u64,
) -> Result<(Records, &'b [u8])> {
    let mut read = Records::default();
    loop {
        let damaged = |reason: &str| {
            let what = "a record that";
            let why = "the file is damaged or was cut off";
            slots.refuse(next, format_args!("{what} {reason}: {why}"))
        };
        if slots.rest(next).is_empty() {
            return Ok((read, &[])); // a flush leaves neither trailer nor text
        }
        let (count, len) = slots
            .get(next)
            .zip(slots.get(next + 1))
            .ok_or_else(|| damaged("ends too early"))?;
        let stack = next + 2;
        let left = slots.count() - stack;
        let len = usize::try_from(len).ok().filter(|&len| len <= left);
        let len = len.ok_or_else(|| damaged("is longer than the file"))?;
        let end = stack + len;
        match (count, len) {
            (0, 1) if slots.get(stack) == Some(0) => return Ok((read, slots.rest(end))),
            (0, _) => return Err(damaged("has the count 0")),
            (_, 0) => return Err(damaged("has no addresses")),
            _ => {}
        }
        let count = i64::try_from(count).map_err(|_| damaged("has a count out of range"))?;
        next = end;
        charge(memory, RECORD_MEMORY + len * ADDRESS_MEMORY)?;
        let start = read.addresses.len();
        read.addresses.extend(slots.iter(stack, len));
        // Return addresses become addresses of their calls.
        for address in &mut read.addresses[start + 1..] {
            *address = address.saturating_sub(1);
        }
        let position = |index| u32::try_from(index).map_err(|_| too_large());
        read.records.push(Record {
            count,
            start: position(start)?,
            end: position(read.addresses.len())?,
        });
    }
}

/// Removes what google/pprof takes for traces of the profiler itself (`cpuProfile` and
/// `cleanupDuplicateLocations` in `profile/legacy_profile.go`): up to twice, a second frame that is
/// the same in 31 of 32 records, the signal trampoline of old unwinders; and a second frame that
/// repeats the leaf.
fn drop_trampolines(records: &mut Records) {
    let needed = records.records.len() - records.records.len() / 32;
    for _ in 0..2 {
        let Some(trampoline) = majority(records.seconds()) else {
            break;
        };
        if records.seconds().filter(|&s| s == trampoline).count() < needed {
            break;
        }
        records.remove_seconds(|_, second| second == trampoline);
    }
    records.remove_seconds(|leaf, second| second.checked_add(1) == Some(leaf));
}

/// The value that more than half of all are, if one is; else any.
/// Source: Boyer and Moore, "MJRTY: A Fast Majority Vote Algorithm", 1991.
fn majority(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut candidate = None;
    let mut votes = 0usize;
    for value in values {
        if votes == 0 {
            candidate = Some(value);
        }
        match candidate == Some(value) {
            true => votes += 1,
            false => votes -= 1,
        }
    }
    candidate
}

fn build(
    mut read: Records,
    objects: MappedObjects,
    period: i64,
    memory: &mut u64,
) -> Result<Profile> {
    let mut profile = Profile::new(vec![
        ValueType::new("samples", "count"),
        ValueType::new("cpu", "nanoseconds"),
    ]);
    profile.period_type = ValueType::new("cpu", "nanoseconds");
    profile.period = period;
    let mut placeholders = objects.placeholders.iter();
    if let Some(no_stack) = placeholders.find(|p| p.name == NO_STACK) {
        for record in &mut read.records {
            if read.addresses[record.range()] == [no_stack.address] {
                record.end = record.start;
            }
        }
    }
    if !objects.is_exact {
        profile.drop_frames = DROP_FRAMES.to_owned();
    }

    // The numbers of addresses take the places of the addresses.
    let mut table = AddressTable::default();
    for record in &read.records {
        for address in &mut read.addresses[record.range()] {
            *address = table.intern(*address, memory)?.0.into();
        }
    }
    table.locate(objects, &mut profile);
    profile.reserve_samples(read.records.len());
    let addresses = read.records.iter().map(|record| record.range().len());
    profile.reserve_stacks(read.records.len(), addresses.sum());
    let mut stack = Vec::new();
    for record in &read.records {
        stack.clear();
        let ids = read.addresses_of(record).iter();
        stack.extend(ids.map(|&id| LocationId(id as u32)));
        let time = record.count.checked_mul(period).ok_or_else(|| {
            invalid("the gperftools CPU profile holds more time than 64 bits of nanoseconds")
        })?;
        profile.push_sample(&stack, &[record.count, time], &[]);
    }
    Ok(profile)
}
