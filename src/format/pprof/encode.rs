//! `Profile` -> profile.proto, a message at a time.
//!
//! Neither the message tree nor the bytes are ever held whole: a profile of a million samples is
//! some hundreds of megabytes uncompressed, because each sample repeats its stack.

use std::io::Write;

use hashbrown::HashMap;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::messages::{self, field, sample_field};
use crate::format::WriteError;
use crate::format::chunks::Chunks;
use crate::profile::{LabelValue, Profile, Sample, StackId, ValueType};

/// How far back gzip finds repetitions, in bytes.
const GZIP_WINDOW: usize = 1 << 15;
/// Bytes of an encoded location id, about.
const MEAN_ID_LEN: usize = 2;

pub(super) fn write(profile: &Profile, out: &mut impl Write) -> Result<(), WriteError> {
    if profile.sample_types().is_empty() {
        return Err(WriteError::unfit(
            "cannot write a profile without sample types: profile.proto's readers refuse it",
        ));
    }
    let mut strings = Strings::new(profile);
    let mut encoder = Encoder {
        out: Chunks::new(out),
        stack: Vec::new(),
        stack_id: None,
    };
    for sample_type in profile.sample_types() {
        encoder.message(field::SAMPLE_TYPE, &strings.value_type(sample_type))?;
    }
    match by_stack(profile) {
        None => profile.samples().try_for_each(|s| encoder.sample(&s))?,
        Some(order) => order
            .into_iter()
            .try_for_each(|i| encoder.sample(&profile.sample(i as usize)))?,
    }
    for (i, m) in profile.mappings().iter().enumerate() {
        let message = messages::Mapping {
            id: i as u64 + 1,
            memory_start: m.memory_start,
            memory_limit: m.memory_limit,
            file_offset: m.file_offset,
            filename: strings.index(&m.filename),
            build_id: strings.index(&m.build_id),
            has_functions: m.has_functions,
            has_filenames: m.has_filenames,
            has_line_numbers: m.has_line_numbers,
            has_inline_frames: m.has_inline_frames,
        };
        encoder.message(field::MAPPING, &message)?;
    }
    for (i, location) in profile.locations().iter().enumerate() {
        let lines = location.lines.iter().map(|line| messages::Line {
            function_id: line.function.index() as u64 + 1,
            line: line.line,
            column: line.column,
        });
        let message = messages::Location {
            id: i as u64 + 1,
            mapping_id: location.mapping.map_or(0, |m| m.index() as u64 + 1),
            address: location.address,
            line: lines.collect(),
            is_folded: location.is_folded,
        };
        encoder.message(field::LOCATION, &message)?;
    }
    for (i, function) in profile.functions().iter().enumerate() {
        let message = messages::Function {
            id: i as u64 + 1,
            name: function.name.index() as i64,
            system_name: function.system_name.index() as i64,
            filename: function.filename.index() as i64,
            start_line: function.start_line,
        };
        encoder.message(field::FUNCTION, &message)?;
    }
    encoder.number(field::DROP_FRAMES, strings.index(&profile.drop_frames))?;
    encoder.number(field::KEEP_FRAMES, strings.index(&profile.keep_frames))?;
    encoder.number(field::TIME_NANOS, profile.time_nanos)?;
    encoder.number(field::DURATION_NANOS, profile.duration_nanos)?;
    if profile.period_type != ValueType::default() {
        encoder.message(
            field::PERIOD_TYPE,
            &strings.value_type(&profile.period_type),
        )?;
    }
    encoder.number(field::PERIOD, profile.period)?;
    for comment in &profile.comments {
        encoder.present_number(field::COMMENT, strings.index(comment))?;
    }
    let default_sample_type = strings.index(&profile.default_sample_type);
    encoder.number(field::DEFAULT_SAMPLE_TYPE, default_sample_type)?;
    encoder.number(field::DOC_URL, strings.index(&profile.doc_url))?;
    // Last, because what stands before it adds to it.
    for string in profile.strings().iter().chain(strings.added) {
        encoder.bytes(field::STRING_TABLE, string.as_bytes())?;
    }
    encoder.out.flush()
}

/// The samples' positions with those of one stack together (and else in their order), where that
/// pays: gzip finds a repeated stack only within its window, and encoding each stack once is
/// quicker too. The order of samples means nothing in profile.proto.
fn by_stack(profile: &Profile) -> Option<Vec<u32>> {
    let frames = profile.samples().map(|s| s.stack.len()).sum::<usize>();
    let samples = u32::try_from(profile.sample_count()).ok()?;
    if frames * MEAN_ID_LEN <= GZIP_WINDOW {
        return None;
    }
    // A counting sort.
    let mut next = vec![0u32; profile.stacks().len() + 1];
    for sample in profile.samples() {
        next[sample.stack_id.index() + 1] += 1;
    }
    for i in 1..next.len() {
        next[i] += next[i - 1];
    }
    let mut order = vec![0; samples as usize];
    for (i, sample) in (0..samples).zip(profile.samples()) {
        let place = &mut next[sample.stack_id.index()];
        order[*place as usize] = i;
        *place += 1;
    }
    Some(order)
}

/// The string table: the profile's own, and behind it the texts that the profile holds elsewhere.
struct Strings<'p> {
    profile: &'p Profile,
    added: Vec<&'p str>,
    index_of_added: HashMap<&'p str, i64>,
}

impl<'p> Strings<'p> {
    fn new(profile: &'p Profile) -> Self {
        Self {
            profile,
            added: Vec::new(),
            index_of_added: HashMap::new(),
        }
    }

    fn index(&mut self, string: &'p str) -> i64 {
        let own = self.profile.strings();
        if let Some(id) = own.find(string) {
            return id.index() as i64;
        }
        *self.index_of_added.entry(string).or_insert_with(|| {
            self.added.push(string);
            (own.len() + self.added.len() - 1) as i64
        })
    }

    fn value_type(&mut self, value_type: &'p ValueType) -> messages::ValueType {
        messages::ValueType {
            r#type: self.index(&value_type.r#type),
            unit: self.index(&value_type.unit),
        }
    }
}

struct Encoder<'w, W> {
    out: Chunks<'w, W>,
    /// The location ids of `stack_id`, encoded: samples of one stack often follow each other.
    stack: Vec<u8>,
    stack_id: Option<StackId>,
}

impl<W: Write> Encoder<'_, W> {
    fn sample(&mut self, sample: &Sample<'_>) -> Result<(), WriteError> {
        if self.stack_id != Some(sample.stack_id) {
            self.stack_id = Some(sample.stack_id);
            self.stack.clear();
            for location in sample.stack {
                encode_varint(location.index() as u64 + 1, &mut self.stack);
            }
        }
        let labels = sample.labels.iter().map(|label| {
            let mut message = messages::Label {
                key: label.key.index() as i64,
                ..Default::default()
            };
            match label.value {
                LabelValue::Str(text) => message.str = text.index() as i64,
                LabelValue::Num { value, unit } => {
                    message.num = value;
                    message.num_unit = unit.index() as i64;
                }
            }
            message
        });
        let values = sample.values.iter().map(|&value| value as u64);
        let values_len: usize = values.clone().map(encoded_len_varint).sum();
        let len = packed_len(self.stack.len())
            + packed_len(values_len)
            + labels
                .clone()
                .map(|label| packed_len_always(label.encoded_len()))
                .sum::<usize>();

        let buffer = &mut self.out.buffer;
        encode_key(field::SAMPLE, WireType::LengthDelimited, buffer);
        encode_varint(len as u64, buffer);
        if !self.stack.is_empty() {
            encode_key(sample_field::LOCATION_ID, WireType::LengthDelimited, buffer);
            encode_varint(self.stack.len() as u64, buffer);
            buffer.extend_from_slice(&self.stack);
        }
        if values_len > 0 {
            encode_key(sample_field::VALUE, WireType::LengthDelimited, buffer);
            encode_varint(values_len as u64, buffer);
            values.for_each(|value| encode_varint(value, buffer));
        }
        for label in labels {
            prost::encoding::message::encode(sample_field::LABEL, &label, buffer);
        }
        self.out.drain()
    }

    fn message(&mut self, field: u32, message: &impl Message) -> Result<(), WriteError> {
        prost::encoding::message::encode(field, message, &mut self.out.buffer);
        self.out.drain()
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> Result<(), WriteError> {
        encode_key(field, WireType::LengthDelimited, &mut self.out.buffer);
        encode_varint(bytes.len() as u64, &mut self.out.buffer);
        self.out.buffer.extend_from_slice(bytes);
        self.out.drain()
    }

    /// A number that is left out when it is 0, as proto3 does.
    fn number(&mut self, field: u32, value: i64) -> Result<(), WriteError> {
        match value {
            0 => Ok(()),
            _ => self.present_number(field, value),
        }
    }

    fn present_number(&mut self, field: u32, value: i64) -> Result<(), WriteError> {
        prost::encoding::int64::encode(field, &value, &mut self.out.buffer);
        self.out.drain()
    }
}

/// The length of a field of `Sample` (its numbers are below 16: a key is one byte) that is left out
/// when empty.
fn packed_len(len: usize) -> usize {
    match len {
        0 => 0,
        _ => packed_len_always(len),
    }
}

fn packed_len_always(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}
