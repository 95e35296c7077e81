//! The lines of a text, and what may be wrong with one.

use super::invalid;
use crate::Error;

/// How much of a line an error repeats, in bytes.
const SHOWN: usize = 80;

/// The lines of a text of any encoding, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Lines<'t> {
    text: &'t [u8],
    offset: usize,
}

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, offset: 0 }
    }

    /// What follows the last line.
    pub(super) fn rest(&self) -> &'t [u8] {
        &self.text[self.offset..]
    }
}

impl<'t> Iterator for Lines<'t> {
    type Item = Text<'t>;

    fn next(&mut self) -> Option<Text<'t>> {
        let begin = self.offset;
        let line = self.rest().split_inclusive(|byte| *byte == b'\n').next()?;
        self.offset += line.len();
        Some(Text {
            begin,
            bytes: line.trim_ascii(),
        })
    }
}

/// A line without the white space around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'t> {
    /// Where the line begins, in bytes of the text.
    pub(super) begin: usize,
    pub(super) bytes: &'t [u8],
}

impl Text<'_> {
    /// The error of a line that has something wrong with it: `reason` goes on after "a line that".
    pub(super) fn refuse(&self, what: &str, reason: &str) -> Error {
        let text = String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(SHOWN)]);
        let begin = self.begin;
        invalid(format!(
            "the {what} has at byte {begin} a line that {reason}: `{text}`"
        ))
    }
}
