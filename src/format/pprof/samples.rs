//! The samples of a file, interned as they are met.
//!
//! A file repeats the whole stack in every sample. Equal stacks are equal bytes, so most samples
//! are read by looking their bytes up, and a stack is decoded once.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use prost::Message;

use super::decode::malformed;
use super::ids::Ids;
use super::messages::{self, sample_field};
use super::wire::{Part, part, varint};
use crate::Result;
use crate::format::{charge, invalid};
use crate::profile::{Label, LocationId, Profile, StackId, StackTable};

/// Location ids from here on are numbered as they are met: whatever a file calls its locations has
/// to fit 32 bits.
const FIRST_RENAMED: u32 = 1 << 31;

#[derive(Default)]
pub(super) struct Samples {
    rows: Vec<Row>,
    values: Vec<i64>,
    /// How many values the first sample has.
    width: Option<usize>,
    stacks: Stacks,
    /// The label messages of a sample, each with its length before it.
    label_bytes: ByteTable,
    labels: Vec<Vec<messages::Label>>,
    scratch: Vec<u8>,
}

struct Row {
    stack: StackId,
    labels: u32,
}

/// Stacks whose locations are not known yet: location id n is handle n - 1, or for the largest a
/// new number.
#[derive(Default)]
struct Stacks {
    bytes: ByteTable,
    of_bytes: Vec<StackId>,
    table: StackTable,
    renamed: Vec<u64>,
    index_of_renamed: HashMap<u64, u32>,
    scratch: Vec<LocationId>,
}

impl Samples {
    /// Adds the sample of a `Sample` message.
    pub(super) fn add(&mut self, message: &[u8], memory: &mut u64) -> Result<()> {
        let index = self.rows.len();
        let broken = || malformed("sample", index);
        let values_before = self.values.len();
        let mut locations: &[u8] = &[];
        let mut gathered: Vec<u8> = Vec::new(); // where the ids are not in one packed field
        self.scratch.clear();
        let mut rest = message;
        while !rest.is_empty() {
            match part(&mut rest).ok_or_else(broken)? {
                (sample_field::LOCATION_ID, Part::Bytes(packed))
                    if locations.is_empty() && gathered.is_empty() =>
                {
                    locations = packed;
                }
                (sample_field::LOCATION_ID, ids) => {
                    gathered.extend_from_slice(std::mem::take(&mut locations));
                    match ids {
                        Part::Bytes(packed) => gathered.extend_from_slice(packed),
                        Part::Number(id) => prost::encoding::encode_varint(id, &mut gathered),
                        Part::Fixed => return Err(broken()),
                    }
                }
                (sample_field::VALUE, Part::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        let value = varint(&mut packed).ok_or_else(broken)?;
                        self.values.push(value as i64);
                    }
                }
                (sample_field::VALUE, Part::Number(value)) => self.values.push(value as i64),
                (sample_field::LABEL, Part::Bytes(label)) => {
                    prost::encoding::encode_varint(label.len() as u64, &mut self.scratch);
                    self.scratch.extend_from_slice(label);
                }
                (sample_field::VALUE | sample_field::LABEL, _) => return Err(broken()),
                _ => {} // from a later version of the schema
            }
        }
        if !gathered.is_empty() {
            locations = &gathered;
        }

        let width = self.values.len() - values_before;
        let expected = *self.width.get_or_insert(width);
        if width == 0 || width != expected {
            return Err(wrong_width(index, width, expected.max(1)));
        }
        charge(memory, size_of::<Row>() + width * size_of::<i64>())?;
        let stack = self.stacks.intern(locations, memory).ok_or_else(broken)??;
        let labels = self.intern_labels(memory).ok_or_else(broken)??;
        self.rows.push(Row { stack, labels });
        Ok(())
    }

    /// The handle of the labels in `scratch`; `None` if they are malformed.
    fn intern_labels(&mut self, memory: &mut u64) -> Option<Result<u32>> {
        let (id, is_new) = self.label_bytes.intern(&self.scratch);
        if is_new {
            let mut labels = Vec::new();
            let mut rest = self.scratch.as_slice();
            while !rest.is_empty() {
                let len = usize::try_from(varint(&mut rest)?).ok()?;
                labels.push(messages::Label::decode(rest.split_off(..len)?).ok()?);
            }
            let size = self.scratch.len()
                + labels.len() * (size_of::<messages::Label>() + 2 * size_of::<Label>());
            if let Err(e) = charge(memory, size) {
                return Some(Err(e));
            }
            self.labels.push(labels);
        }
        Some(Ok(id))
    }

    /// Checks that every sample has one value for each sample type.
    pub(super) fn check_width(&self, sample_types: usize) -> Result<()> {
        match self.width {
            Some(width) if width != sample_types => Err(wrong_width(0, width, sample_types)),
            _ => Ok(()),
        }
    }

    /// The stacks, with handles of locations.
    pub(super) fn take_stacks(&mut self, ids: &Ids) -> Result<StackTable> {
        let stacks = std::mem::take(&mut self.stacks);
        let id_of = |raw: LocationId| match raw.0.checked_sub(FIRST_RENAMED) {
            None => u64::from(raw.0) + 1,
            Some(renamed) => stacks.renamed[renamed as usize],
        };
        if let Some(len) = ids.all_sequential() {
            let beyond = stacks.table.locations().iter().find(|raw| raw.0 >= len);
            return match beyond {
                None => Ok(stacks.table),
                Some(&raw) => Err(ids.unknown(id_of(raw), "a sample")),
            };
        }
        let mut table = StackTable::default();
        let mut resolved = Vec::new();
        for i in 0..stacks.table.len() {
            resolved.clear();
            for &raw in stacks.table.get(StackId(i as u32)) {
                let id = id_of(raw);
                let index = ids.index(id).ok_or_else(|| ids.unknown(id, "a sample"))?;
                resolved.push(LocationId(index));
            }
            table.intern(&resolved);
        }
        Ok(table)
    }

    pub(super) fn for_each_label(&self, mut f: impl FnMut(&messages::Label)) {
        self.labels.iter().flatten().for_each(&mut f);
    }

    /// Adds the samples to the profile that has their stacks.
    pub(super) fn finish(
        &self,
        profile: &mut Profile,
        resolve: impl Fn(&mut Profile, &[messages::Label]) -> Result<Vec<Label>>,
    ) -> Result<()> {
        let mut label_sets = Vec::with_capacity(self.labels.len());
        for raw in &self.labels {
            let labels = resolve(profile, raw)?;
            label_sets.push(profile.intern_labels(&labels));
        }
        let width = profile.sample_types().len();
        profile.reserve_samples(self.rows.len());
        for (row, values) in self.rows.iter().zip(self.values.chunks_exact(width)) {
            profile.push_interned(row.stack, values, label_sets[row.labels as usize]);
        }
        Ok(())
    }
}

impl Stacks {
    /// The handle of a stack given as packed location ids; `None` if they are malformed.
    fn intern(&mut self, packed: &[u8], memory: &mut u64) -> Option<Result<StackId>> {
        let (id, is_new) = self.bytes.intern(packed);
        if !is_new {
            return Some(Ok(self.of_bytes[id as usize]));
        }
        self.scratch.clear();
        let mut rest = packed;
        while !rest.is_empty() {
            let id = varint(&mut rest)?;
            if id == 0 {
                return Some(Err(invalid(
                    "a sample of the profile has the location id 0, which is reserved for none",
                )));
            }
            let raw = match u32::try_from(id - 1) {
                Ok(raw) if raw < FIRST_RENAMED => raw,
                _ => *self.index_of_renamed.entry(id).or_insert_with(|| {
                    self.renamed.push(id);
                    FIRST_RENAMED + (self.renamed.len() - 1) as u32
                }),
            };
            self.scratch.push(LocationId(raw));
        }
        let size = packed.len() + 2 * size_of_val(self.scratch.as_slice()) + size_of::<usize>() * 4;
        if let Err(e) = charge(memory, size) {
            return Some(Err(e));
        }
        let stack = self.table.intern(&self.scratch);
        self.of_bytes.push(stack);
        Some(Ok(stack))
    }
}

/// Byte strings, each once.
#[derive(Default)]
struct ByteTable {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl ByteTable {
    /// The number of this byte string, and whether it is new.
    fn intern(&mut self, string: &[u8]) -> (u32, bool) {
        let Self {
            bytes,
            ends,
            index,
            hasher,
        } = self;
        let get = |i: u32| {
            let start = i.checked_sub(1).map_or(0, |i| ends[i as usize]);
            &bytes[start..ends[i as usize]]
        };
        let entry = index.entry(
            hasher.hash_one(string),
            |&i| get(i) == string,
            |&i| hasher.hash_one(get(i)),
        );
        match entry {
            Entry::Occupied(entry) => (*entry.get(), false),
            Entry::Vacant(entry) => {
                let id = ends.len() as u32;
                entry.insert(id);
                bytes.extend_from_slice(string);
                ends.push(bytes.len());
                (id, true)
            }
        }
    }
}

fn wrong_width(index: usize, width: usize, expected: usize) -> crate::Error {
    invalid(format!(
        "sample[{index}] of the profile has {width} values where {expected} are expected, one for each sample_type"
    ))
}
