//! gperftools CPU profile -> `Profile`.

use hashbrown::HashMap;

use super::NO_STACK;
use crate::Result;
use crate::format::mapped_objects::{self, MappedObjects};
use crate::format::{attribution, invalid};
use crate::profile::{Function, Line, Location, LocationId, MappingId, Profile, ValueType};

/// More header slots than any version would have.
const MAX_HEADER_SLOTS: u64 = 1024;

/// The frames that a profiler of this format adds itself: what google/pprof drops from such a file.
const DROP_FRAMES: &str = "ProfileData::Add|ProfileData::prof_handler|CpuProfiler::prof_handler|\
                           __pthread_sighandler|__restore";

/// How the slots of a file are to be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::format) struct Header {
    slot_size: usize,
    is_big_endian: bool,
}

impl Header {
    fn slot(self, bytes: &[u8], index: usize) -> Option<u64> {
        let bytes = bytes.get(index.checked_mul(self.slot_size)?..)?;
        let slot = match (self.slot_size, self.is_big_endian) {
            (4, false) => u32::from_le_bytes(*bytes.first_chunk()?).into(),
            (4, true) => u32::from_be_bytes(*bytes.first_chunk()?).into(),
            (_, false) => u64::from_le_bytes(*bytes.first_chunk()?),
            (_, true) => u64::from_be_bytes(*bytes.first_chunk()?),
        };
        Some(slot)
    }
}

/// Recognizes a file of this format, of any width and byte order, by its first two slots.
pub(in crate::format) fn sniff(bytes: &[u8]) -> Option<Header> {
    let kinds = [(8, false), (8, true), (4, false), (4, true)];
    let headers = kinds.map(|(slot_size, is_big_endian)| Header {
        slot_size,
        is_big_endian,
    });
    headers.into_iter().find(|header| {
        header.slot(bytes, 0) == Some(0)
            && matches!(header.slot(bytes, 1), Some(3..=MAX_HEADER_SLOTS))
    })
}

/// A record: how often a stack was met, and its addresses, leaf first.
struct Record {
    count: i64,
    addresses: Vec<u64>,
}

pub(in crate::format) fn read(bytes: &[u8], header: Header) -> Result<Profile> {
    let slot = |index| {
        header.slot(bytes, index).ok_or_else(|| {
            invalid("the gperftools CPU profile was cut off: it ends inside a record or the header")
        })
    };
    let first_record = 2 + slot(1)? as usize;
    match slot(2)? {
        0 => {}
        1 => {
            return Err(invalid(
                "this is a CPU profile of a Java program, whose frames are no addresses: it is not supported",
            ));
        }
        version => {
            return Err(invalid(format!(
                "the gperftools CPU profile has the unknown version {version}"
            )));
        }
    }
    let period = i64::try_from(slot(3)?)
        .ok()
        .and_then(|us| us.checked_mul(1_000))
        .filter(|&ns| ns > 0)
        .ok_or_else(|| {
            invalid("the gperftools CPU profile has a sampling period of 0, or one out of range")
        })?;
    slot(first_record - 1)?;

    let (mut records, text) = read_records(bytes, header, first_record)?;
    let objects = mapped_objects::parse(text);
    if !objects.is_exact {
        drop_trampolines(&mut records);
    }
    build(records, objects, period)
}

fn read_records(bytes: &[u8], header: Header, mut next: usize) -> Result<(Vec<Record>, &[u8])> {
    let slots = bytes.len() / header.slot_size;
    let mut records = Vec::new();
    loop {
        let damaged = |what: &str| {
            invalid(format!(
                "record {} of the gperftools CPU profile {what}: the file is damaged or was cut off",
                records.len()
            ))
        };
        if next * header.slot_size == bytes.len() {
            return Ok((records, &[])); // a flush leaves neither trailer nor text
        }
        let (count, len) = header
            .slot(bytes, next)
            .zip(header.slot(bytes, next + 1))
            .ok_or_else(|| damaged("ends too early"))?;
        next += 2;
        let len = usize::try_from(len).ok().filter(|&len| len <= slots - next);
        let len = len.ok_or_else(|| damaged("is longer than the file"))?;
        let addresses: Vec<u64> = (next..next + len)
            .filter_map(|i| header.slot(bytes, i))
            .enumerate()
            // Return addresses become addresses of their calls.
            .map(|(depth, pc)| pc.saturating_sub(u64::from(depth > 0)))
            .collect();
        next += len;
        match (count, addresses.as_slice()) {
            (0, [0]) => return Ok((records, &bytes[next * header.slot_size..])),
            (0, _) => return Err(damaged("has the count 0")),
            (_, []) => return Err(damaged("has no addresses")),
            _ => {}
        }
        let count = i64::try_from(count).map_err(|_| damaged("has a count out of range"))?;
        records.push(Record { count, addresses });
    }
}

/// Removes what google/pprof takes for traces of the profiler itself (`cpuProfile` and `cleanupDuplicateLocations` in
/// `profile/legacy_profile.go`): up to twice, a second frame that is the same in 31 of 32 records, the signal
/// trampoline of old unwinders; and a second frame that repeats the leaf.
fn drop_trampolines(records: &mut [Record]) {
    let margin = records.len() / 32;
    for _ in 0..2 {
        let mut seconds: HashMap<u64, usize> = HashMap::new();
        for second in records.iter().filter_map(|r| r.addresses.get(1)) {
            *seconds.entry(*second).or_default() += 1;
        }
        let needed = records.len() - margin;
        let trampoline = seconds.iter().find(|&(_, &count)| count >= needed);
        let Some((&trampoline, _)) = trampoline else {
            break;
        };
        for record in records.iter_mut() {
            if record.addresses.get(1) == Some(&trampoline) {
                record.addresses.remove(1);
            }
        }
    }
    for record in records {
        if let [leaf, second, ..] = record.addresses[..]
            && second.checked_add(1) == Some(leaf)
        {
            record.addresses.remove(1);
        }
    }
}

fn build(records: Vec<Record>, objects: MappedObjects, period: i64) -> Result<Profile> {
    let mut profile = Profile::new(vec![
        ValueType::new("samples", "count"),
        ValueType::new("cpu", "nanoseconds"),
    ]);
    profile.period_type = ValueType::new("cpu", "nanoseconds");
    profile.period = period;
    let mut mappings = objects.mappings;
    let names: HashMap<u64, String> = objects
        .placeholders
        .into_iter()
        .map(|p| (p.address, p.name))
        .collect();
    let is_no_stack = |record: &Record| matches!(record.addresses[..], [only] if names.get(&only).is_some_and(|n| n == NO_STACK));

    let mut addresses = Vec::new();
    let mut of_address: HashMap<u64, LocationId> = HashMap::new();
    for record in records.iter().filter(|r| !is_no_stack(r)) {
        for &address in &record.addresses {
            of_address.entry(address).or_insert_with(|| {
                addresses.push(address);
                LocationId(addresses.len() as u32 - 1)
            });
        }
    }
    let mapping_of = match objects.is_exact {
        true => attribution::first_holding(&mappings, &addresses),
        false => {
            profile.drop_frames = DROP_FRAMES.to_owned();
            attribution::as_pprof_guesses(&mut mappings, &addresses)
        }
    };
    for mapping in mappings {
        profile.push_mapping(mapping);
    }
    for (&address, mapping) in addresses.iter().zip(mapping_of) {
        let location = match names.get(&address) {
            None => Location {
                mapping: mapping.map(MappingId),
                address,
                ..Location::default()
            },
            Some(name) => nameplate(&mut profile, name),
        };
        profile.push_location(location);
    }
    let mut stack = Vec::new();
    for record in &records {
        stack.clear();
        if !is_no_stack(record) {
            stack.extend(record.addresses.iter().map(|a| of_address[a]));
        }
        let time = record.count.checked_mul(period).ok_or_else(|| {
            invalid("the gperftools CPU profile holds more time than 64 bits of nanoseconds")
        })?;
        profile.push_sample(&stack, &[record.count, time], &[]);
    }
    Ok(profile)
}

/// A location that is a name and no code.
fn nameplate(profile: &mut Profile, name: &str) -> Location {
    let name = profile.intern(name);
    let function = profile.push_function(Function {
        name,
        system_name: name,
        ..Function::default()
    });
    let line = Line {
        function,
        line: 0,
        column: 0,
    };
    Location {
        lines: vec![line],
        ..Location::default()
    }
}
