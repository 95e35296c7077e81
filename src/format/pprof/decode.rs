//! profile.proto -> `Profile`, a field at a time, with everything checked that google/pprof's
//! reader insists on.
//!
//! Fields may come in any order, and in practice the strings come last. So [`Tables`] keeps the
//! messages as they are, with the samples interned by [`Samples`], and [`Tables::finish`] resolves
//! ids and strings when all is there.

use std::io::BufRead;

use hashbrown::HashSet;
use prost::Message;

use super::ids::Ids;
use super::messages::{self, field};
use super::samples::Samples;
use super::strings::Strings;
use super::wire::{Fields, Value, not_a_profile, varint};
use crate::format::{charge, invalid};
use crate::profile::{
    Function, FunctionId, Label, LabelValue, Line, Location, Mapping, MappingId, Profile, StringId,
    ValueType,
};
use crate::{Error, Result};

/// Bytes of memory that a comment takes beside its text: an index, in a list that grows by doubling,
/// and a string with a block of its own.
const COMMENT_MEMORY: usize = 3 * size_of::<i64>() + size_of::<String>() + 16;
/// The same of a sample type: its message, two strings, and an entry of a set.
const TYPE_MEMORY: usize = 128;

pub(super) fn read(reader: &mut impl BufRead, limit: u64) -> Result<Profile> {
    let mut tables = Tables {
        memory: limit,
        ..Tables::default()
    };
    let mut fields = Fields::new(reader, limit);
    loop {
        let begin = fields.offset();
        let mut add_next = || {
            let Some((number, value)) = fields.next()? else {
                return Ok(false);
            };
            tables.add(number, value, fields.payload())?;
            Ok(true)
        };
        if !add_next().map_err(|error: Error| error.at_byte(begin))? {
            return tables.finish();
        }
    }
}

/// The messages of a profile as they were read.
#[derive(Default)]
struct Tables {
    /// How many bytes of memory the tables may still take: some messages of a few bytes become a
    /// hundred.
    memory: u64,
    sample_types: Vec<messages::ValueType>,
    /// Types and units so far.
    known_types: HashSet<(i64, i64)>,
    samples: Samples,
    mappings: Vec<messages::Mapping>,
    locations: Vec<messages::Location>,
    functions: Vec<messages::Function>,
    strings: Strings,
    comments: Vec<i64>,
    drop_frames: Option<i64>,
    keep_frames: Option<i64>,
    time_nanos: Option<i64>,
    duration_nanos: Option<i64>,
    period_type: Option<messages::ValueType>,
    period: Option<i64>,
    default_sample_type: Option<i64>,
    doc_url: Option<i64>,
}

impl Tables {
    fn add(&mut self, number: u32, value: Value, payload: &[u8]) -> Result<()> {
        match number {
            field::SAMPLE_TYPE => self.add_sample_type(bytes("sample_type", value, payload)?),
            field::SAMPLE => {
                let payload = bytes("sample", value, payload)?;
                self.samples.add(payload, &mut self.memory)
            }
            field::MAPPING => {
                let payload = bytes("mapping", value, payload)?;
                push(&mut self.mappings, "mapping", payload, &mut self.memory)
            }
            field::LOCATION => {
                let payload = bytes("location", value, payload)?;
                push(&mut self.locations, "location", payload, &mut self.memory)?;
                let lines = self.locations.last().map_or(0, |l| l.line.len());
                charge(&mut self.memory, lines * size_of::<messages::Line>() * 2)
            }
            field::FUNCTION => {
                let payload = bytes("function", value, payload)?;
                push(&mut self.functions, "function", payload, &mut self.memory)
            }
            field::STRING_TABLE => {
                charge(&mut self.memory, payload.len() + size_of::<usize>())?;
                self.strings.add(bytes("string_table", value, payload)?)
            }
            field::DROP_FRAMES => once(&mut self.drop_frames, "drop_frames", value),
            field::KEEP_FRAMES => once(&mut self.keep_frames, "keep_frames", value),
            field::TIME_NANOS => once(&mut self.time_nanos, "time_nanos", value),
            field::DURATION_NANOS => once(&mut self.duration_nanos, "duration_nanos", value),
            field::PERIOD_TYPE => {
                if self.period_type.is_some() {
                    return Err(concatenated("period_type"));
                }
                let payload = bytes("period_type", value, payload)?;
                self.period_type = Some(decode("period_type", 0, payload)?);
                Ok(())
            }
            field::PERIOD => once(&mut self.period, "period", value),
            field::COMMENT => self.add_comments(value, payload),
            field::DEFAULT_SAMPLE_TYPE => {
                once(&mut self.default_sample_type, "default_sample_type", value)
            }
            field::DOC_URL => once(&mut self.doc_url, "doc_url", value),
            _ => Ok(()), // from a later version of the schema
        }
    }

    fn add_sample_type(&mut self, payload: &[u8]) -> Result<()> {
        let sample_type: messages::ValueType =
            decode("sample_type", self.sample_types.len(), payload)?;
        if !self
            .known_types
            .insert((sample_type.r#type, sample_type.unit))
        {
            return Err(concatenated("a sample_type"));
        }
        charge(&mut self.memory, size_of::<ValueType>() + TYPE_MEMORY)?;
        self.sample_types.push(sample_type);
        Ok(())
    }

    fn add_comments(&mut self, value: Value, mut payload: &[u8]) -> Result<()> {
        if let Value::Number(comment) = value {
            charge(&mut self.memory, COMMENT_MEMORY)?;
            self.comments.push(comment as i64);
            return Ok(());
        }
        bytes("comment", value, payload)?;
        while !payload.is_empty() {
            let comment = varint(&mut payload).ok_or_else(|| malformed("comment", 0))?;
            charge(&mut self.memory, COMMENT_MEMORY)?;
            self.comments.push(comment as i64);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Profile> {
        if self.strings.is_empty() {
            return Err(not_a_profile(
                "it has no string_table; its first string has to be the empty one",
            ));
        }
        let width = self.sample_types.len();
        if width == 0 {
            return Err(not_a_profile("it has no sample_type"));
        }
        self.samples.check_width(width)?;

        let mut mapping_ids = Ids::new("mapping");
        for mapping in &self.mappings {
            mapping_ids.add(mapping.id)?;
        }
        let mut function_ids = Ids::new("function");
        for function in &self.functions {
            function_ids.add(function.id)?;
        }
        let mut location_ids = Ids::new("location");
        for location in &self.locations {
            location_ids.add(location.id)?;
        }

        // What is repeated as an index of a byte or two is not to be multiplied with its text at
        // will.
        let mut memory = self.memory;
        let sample_types: Result<Vec<ValueType>> = self
            .sample_types
            .iter()
            .map(|t| self.value_type("sample_type", t, &mut memory))
            .collect();
        let stacks = self.samples.take_stacks(&location_ids)?;
        let mut profile = Profile::with_stacks(sample_types?, stacks);
        self.read_scalars(&mut profile, &mut memory)?;
        self.intern_strings(&mut profile)?;
        self.samples.finish(&mut profile, |profile, raw| {
            raw.iter()
                .map(|label| self.strings.label(label, profile))
                .collect()
        })?;
        for mapping in &self.mappings {
            profile.push_mapping(self.mapping(mapping, &mut memory)?);
        }
        for location in std::mem::take(&mut self.locations) {
            profile.push_location(location_of(&location, &mapping_ids, &function_ids)?);
        }
        for function in &self.functions {
            let mut id = |index| -> Result<StringId> {
                Ok(profile.intern(self.strings.get("function", index)?))
            };
            let function = Function {
                name: id(function.name)?,
                system_name: id(function.system_name)?,
                filename: id(function.filename)?,
                start_line: function.start_line,
            };
            profile.push_function(function);
        }
        Ok(profile)
    }

    /// The text of an index, as a copy of its own.
    fn text(&self, what: &str, index: i64, memory: &mut u64) -> Result<String> {
        let text = self.strings.get(what, index)?;
        charge(memory, text.len())?;
        Ok(text.to_owned())
    }

    fn read_scalars(&self, profile: &mut Profile, memory: &mut u64) -> Result<()> {
        let mut text = |what, index: Option<i64>| self.text(what, index.unwrap_or(0), memory);
        profile.drop_frames = text("drop_frames", self.drop_frames)?;
        profile.keep_frames = text("keep_frames", self.keep_frames)?;
        profile.default_sample_type = text("default_sample_type", self.default_sample_type)?;
        profile.doc_url = text("doc_url", self.doc_url)?;
        profile.time_nanos = self.time_nanos.unwrap_or(0);
        profile.duration_nanos = self.duration_nanos.unwrap_or(0);
        profile.period = self.period.unwrap_or(0);
        for &comment in &self.comments {
            profile.comments.push(text("comment", Some(comment))?);
        }
        if let Some(period_type) = &self.period_type {
            profile.period_type = self.value_type("period_type", period_type, memory)?;
        }
        Ok(())
    }

    /// Interns what functions and labels refer to in the order of the file's string table, so that
    /// a profile that is written and read again has the same handles.
    fn intern_strings(&self, profile: &mut Profile) -> Result<()> {
        let mut indices: Vec<i64> = self
            .functions
            .iter()
            .flat_map(|f| [f.name, f.system_name, f.filename])
            .collect();
        self.samples
            .for_each_label(|label| indices.extend([label.key, label.str, label.num_unit]));
        indices.sort_unstable();
        indices.dedup();
        for index in indices {
            profile.intern(self.strings.get("function or label", index)?);
        }
        Ok(())
    }

    fn value_type(
        &self,
        what: &str,
        raw: &messages::ValueType,
        memory: &mut u64,
    ) -> Result<ValueType> {
        let mut text = |index| self.text(what, index, memory);
        Ok(ValueType::new(text(raw.r#type)?, text(raw.unit)?))
    }

    fn mapping(&self, raw: &messages::Mapping, memory: &mut u64) -> Result<Mapping> {
        Ok(Mapping {
            memory_start: raw.memory_start,
            memory_limit: raw.memory_limit,
            file_offset: raw.file_offset,
            filename: self.text("mapping", raw.filename, memory)?,
            build_id: self.text("mapping", raw.build_id, memory)?,
            has_functions: raw.has_functions,
            has_filenames: raw.has_filenames,
            has_line_numbers: raw.has_line_numbers,
            has_inline_frames: raw.has_inline_frames,
        })
    }
}

impl Strings {
    fn label(&self, raw: &messages::Label, profile: &mut Profile) -> Result<Label> {
        let mut id = |index| Ok(profile.intern(self.get("label", index)?));
        let key = id(raw.key)?;
        let value = match raw.str {
            0 => LabelValue::Num {
                value: raw.num,
                unit: id(raw.num_unit)?,
            },
            text => LabelValue::Str(id(text)?),
        };
        Ok(Label { key, value })
    }
}

fn location_of(
    raw: &messages::Location,
    mapping_ids: &Ids,
    function_ids: &Ids,
) -> Result<Location> {
    let mapping = match raw.mapping_id {
        0 => None,
        id => Some(MappingId(mapping_ids.index(id).ok_or_else(|| {
            mapping_ids.unknown(id, format_args!("location {}", raw.id))
        })?)),
    };
    let lines = raw.line.iter().map(|line| {
        let function = function_ids.index(line.function_id).ok_or_else(|| {
            function_ids.unknown(
                line.function_id,
                format_args!("a line of location {}", raw.id),
            )
        })?;
        Ok(Line {
            function: FunctionId(function),
            line: line.line,
            column: line.column,
        })
    });
    Ok(Location {
        mapping,
        address: raw.address,
        lines: lines.collect::<Result<_>>()?,
        is_folded: raw.is_folded,
    })
}

/// A field that occurs at most once in a profile: a second one means a second profile.
fn once(slot: &mut Option<i64>, name: &str, value: Value) -> Result<()> {
    let Value::Number(value) = value else {
        return Err(wrong_wire_type(name));
    };
    match slot.replace(value as i64) {
        None => Ok(()),
        Some(_) => Err(concatenated(name)),
    }
}

fn bytes<'b>(name: &str, value: Value, payload: &'b [u8]) -> Result<&'b [u8]> {
    match value {
        Value::Bytes => Ok(payload),
        Value::Number(_) | Value::Fixed => Err(wrong_wire_type(name)),
    }
}

fn push<M: Message + Default>(
    table: &mut Vec<M>,
    name: &str,
    payload: &[u8],
    memory: &mut u64,
) -> Result<()> {
    // Twice: the message and what it becomes.
    charge(memory, size_of::<M>() * 2)?;
    if table.len() >= u32::MAX as usize {
        return Err(invalid(format!("the profile has 4 Gi of {name} or more")));
    }
    table.push(decode(name, table.len(), payload)?);
    Ok(())
}

fn decode<M: Message + Default>(name: &str, index: usize, payload: &[u8]) -> Result<M> {
    M::decode(payload).map_err(|e| not_a_profile(format!("{name}[{index}] is malformed: {e}")))
}

pub(super) fn malformed(name: &str, index: usize) -> crate::Error {
    not_a_profile(format!("{name}[{index}] is malformed"))
}

fn wrong_wire_type(name: &str) -> crate::Error {
    not_a_profile(format!("{name} has the wrong wire type"))
}

fn concatenated(what: &str) -> crate::Error {
    invalid(format!(
        "two profiles are concatenated ({what} comes twice): read them one by one and merge them"
    ))
}
