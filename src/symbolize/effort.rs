//! How much may still be done to read debug information.

use std::cell::Cell;

use super::dwarf::{Failure, Result};

/// What any object may take.
const ALWAYS_STEPS: u64 = 16 << 20;
/// What an object may take beyond that, for each byte of its debug information. Each byte is read
/// once or twice, and what it says is kept for some addresses.
const STEPS_PER_BYTE: u64 = 8;

/// So many bytes of a text are looked through in the time that a step takes elsewhere.
pub(super) const BYTES_PER_STEP: usize = 16;

/// Steps that are left. A step is some attribute, range, row or byte that is looked at, or kept.
///
/// Debug information refers to itself: a few bytes may have the same table be read a thousand
/// times. Nothing but a bound on all that is done keeps a file of some kilobytes from taking hours
/// and all memory.
#[derive(Debug)]
pub(super) struct Effort(Cell<u64>);

impl Effort {
    pub(super) fn new() -> Self {
        Self(Cell::new(ALWAYS_STEPS))
    }

    /// Allows for what is to be read once.
    pub(super) fn allow(&self, bytes: usize) {
        let more = STEPS_PER_BYTE.saturating_mul(bytes as u64);
        self.0.set(self.0.get().saturating_add(more));
    }

    /// # Errors
    ///
    /// Where no more is to be done.
    pub(super) fn take(&self, steps: usize) -> Result<()> {
        let left = self.0.get().checked_sub(steps as u64);
        self.0.set(left.unwrap_or(0));
        left.map(drop).ok_or_else(|| {
            let why = "it takes far more work than its size explains";
            Failure::new("the debug information", why)
        })
    }
}
