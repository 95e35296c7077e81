//! Bytes on their way out, gathered to chunks.

use std::io::Write;

use super::WriteError;

/// How many bytes are gathered before they go out.
const CHUNK: usize = 1 << 16;

/// An output in front of which bytes are gathered in `buffer`; whoever adds some
/// [drains](Self::drain) it then.
pub(super) struct Chunks<'w, W> {
    out: &'w mut W,
    pub buffer: Vec<u8>,
}

impl<'w, W: Write> Chunks<'w, W> {
    pub(super) fn new(out: &'w mut W) -> Self {
        Self {
            out,
            buffer: Vec::with_capacity(CHUNK * 2),
        }
    }

    /// Lets the buffer out where it is full.
    pub(super) fn drain(&mut self) -> Result<(), WriteError> {
        match self.buffer.len() >= CHUNK {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Lets the buffer out.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
