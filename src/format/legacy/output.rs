//! A text profile on its way out.

use std::fmt;
use std::io::Write;

use crate::format::chunks::Chunks;
use crate::format::written_addresses::WrittenAddresses;
use crate::format::{WriteError, mapped_objects};
use crate::profile::{LocationId, Profile, ValueType};

/// google/pprof reads no longer line, in bytes with its end: Go's `bufio.MaxScanTokenSize`.
const LONGEST_LINE: usize = 64 * 1024 - 1;

/// The place of a type among a sample's values.
pub(super) fn column(profile: &Profile, wanted: &ValueType) -> Option<usize> {
    profile.sample_types().iter().position(|t| t == wanted)
}

/// Lines, and the addresses in them.
pub(super) struct Output<'p, 'w, W> {
    profile: &'p Profile,
    /// What errors call such a file.
    what: &'static str,
    addresses: WrittenAddresses,
    chunks: Chunks<'w, W>,
}

impl<'p, 'w, W: Write> Output<'p, 'w, W> {
    pub(super) fn new(profile: &'p Profile, what: &'static str, out: &'w mut W) -> Self {
        Self {
            profile,
            what,
            addresses: WrittenAddresses::new(profile),
            chunks: Chunks::new(out),
        }
    }

    pub(super) fn line(&mut self, text: fmt::Arguments<'_>) -> Result<(), WriteError> {
        writeln!(self.chunks.buffer, "{text}")?;
        self.chunks.drain()
    }

    /// A line that ends in a stack: the address behind that of each location, since all are
    /// addresses of returns.
    pub(super) fn sample(
        &mut self,
        values: fmt::Arguments<'_>,
        stack: &[LocationId],
    ) -> Result<(), WriteError> {
        let begin = self.chunks.buffer.len();
        write!(self.chunks.buffer, "{values}")?;
        for location in stack {
            let address = self.addresses.of(self.addresses.canonical(*location));
            write!(self.chunks.buffer, " {:#010x}", address.wrapping_add(1))?;
        }
        self.chunks.buffer.push(b'\n');
        let len = self.chunks.buffer.len() - begin;
        if len > LONGEST_LINE {
            let (what, depth) = (self.what, stack.len());
            return Err(WriteError::unfit(format!(
                "google/pprof reads lines of a {what} up to 64 KiB, and this profile has a stack of {depth} frames: \
                 write it as .pb.gz"
            )));
        }
        self.chunks.drain()
    }

    /// The mappings, below this title.
    pub(super) fn finish(mut self, title: &str) -> Result<(), WriteError> {
        let text = mapped_objects::print(self.profile.mappings(), self.addresses.placeholders());
        write!(self.chunks.buffer, "{title}\n{text}")?;
        self.chunks.flush()
    }
}
