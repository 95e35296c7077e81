//! protobuf's wire format, read from a stream a field at a time and checked at every step.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>.

use std::io::{self, BufRead, Read};

use crate::Result;
use crate::format::invalid;

/// One field of the outermost message.
pub(super) enum Value {
    Number(u64),
    /// The payload lies in [`Fields::payload`].
    Bytes,
    /// A fixed-width number: profile.proto has none, so it belongs to a field that we do not know.
    Fixed,
}

/// The fields of the outermost message, in the order in which they come.
pub(super) struct Fields<'r, R> {
    reader: &'r mut R,
    /// How many bytes may still come.
    left: u64,
    limit: u64,
    payload: Vec<u8>,
}

impl<'r, R: BufRead> Fields<'r, R> {
    pub(super) fn new(reader: &'r mut R, limit: u64) -> Self {
        Self {
            reader,
            left: limit,
            limit,
            payload: Vec::new(),
        }
    }

    /// Bytes from the first one.
    pub(super) fn offset(&self) -> u64 {
        self.limit - self.left
    }

    /// The number and value of the next field; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value)>> {
        if self.buffer()?.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|&n| n != 0);
        let Some(number) = number else {
            return Err(not_a_profile(format!(
                "a field has the number {}",
                key >> 3
            )));
        };
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.bytes(8).map(|()| Value::Fixed)?,
            2 => {
                let len = self.varint()?;
                self.bytes(len).map(|()| Value::Bytes)?
            }
            5 => self.bytes(4).map(|()| Value::Fixed)?,
            other => {
                return Err(not_a_profile(format!(
                    "field {number} has the wire type {other}"
                )));
            }
        };
        Ok(Some((number, value)))
    }

    /// The bytes of the field that `next` has just returned.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn buffer(&mut self) -> Result<&[u8]> {
        self.reader.fill_buf().map_err(broken)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let Some(&byte) = self.buffer()?.first() else {
                return Err(not_a_profile("it ends inside a number"));
            };
            self.reader.consume(1);
            self.spend(1)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && byte > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(not_a_profile("a number has more than 64 bits"))
    }

    fn bytes(&mut self, len: u64) -> Result<()> {
        self.spend(len)?;
        self.payload.clear();
        // Grows with what is there, not with what a length claims.
        let read = self.reader.take(len).read_to_end(&mut self.payload);
        if (read.map_err(broken)? as u64) < len {
            return Err(not_a_profile(format!(
                "it ends inside a field of {len} bytes"
            )));
        }
        Ok(())
    }

    fn spend(&mut self, len: u64) -> Result<()> {
        match self.left.checked_sub(len) {
            Some(left) => self.left = left,
            None => {
                return Err(invalid(format!(
                    "the profile is larger than the limit of {} bytes uncompressed",
                    self.limit
                )));
            }
        }
        Ok(())
    }
}

/// The next varint of a slice.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    if let [byte @ 0..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return Some(u64::from(*byte));
    }
    prost::encoding::decode_varint(bytes).ok()
}

/// The next field of a message in a slice: its number, and its value as a number or as bytes.
/// Fixed-width values come as `None`.
#[derive(Clone, Copy)]
pub(super) enum Part<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    Fixed,
}

/// Takes the next field off a message, or `None` if the message is broken.
pub(super) fn part<'b>(message: &mut &'b [u8]) -> Option<(u32, Part<'b>)> {
    let key = varint(message)?;
    let number = u32::try_from(key >> 3).ok().filter(|&n| n != 0)?;
    let value = match key & 7 {
        0 => Part::Number(varint(message)?),
        1 => message.split_off(..8).map(|_| Part::Fixed)?,
        2 => {
            let len = usize::try_from(varint(message)?).ok()?;
            Part::Bytes(message.split_off(..len)?)
        }
        5 => message.split_off(..4).map(|_| Part::Fixed)?,
        _ => return None,
    };
    Some((number, value))
}

fn broken(error: io::Error) -> crate::Error {
    crate::Error::with_source(
        crate::ErrorKind::InvalidData,
        "cannot decompress the profile: the file is damaged or was cut off",
        error,
    )
}

pub(super) fn not_a_profile(what: impl std::fmt::Display) -> crate::Error {
    invalid(format!(
        "the bytes are no profile of a known format (taken for a profile.proto, {what})"
    ))
}
