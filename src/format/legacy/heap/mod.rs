//! Heap profiles, and those of growth and fragmentation, whose lines are the same:
//!
//! ```text
//! heap profile:      2:     1088 [     5:     2176] @ heap_v2/524288
//!      1:     1024 [     1:     1024] @ 0x401136 0x401162
//! ```
//!
//! Objects and bytes in use and, in brackets, all that were allocated.

mod read;
mod sampling;
mod write;

pub(super) use read::read;
#[cfg(feature = "heap")]
pub(crate) use sampling::unsampled;
#[cfg(feature = "heap")]
pub(crate) use sampling::unsampled_in_sum;
pub(in crate::format) use write::{write_growth, write_heap};

use super::Text;
use crate::profile::ValueType;

/// What errors call such a file.
const WHAT: &str = "heap profile";
const HEAD: &str = "heap profile:";

/// The values of a file that says both what is in use and what was allocated,
const IN_USE: [ValueType; 2] = [
    ValueType::fixed("inuse_objects", "count"),
    ValueType::fixed("inuse_space", "bytes"),
];
const ALLOCATED: [ValueType; 2] = [
    ValueType::fixed("alloc_objects", "count"),
    ValueType::fixed("alloc_space", "bytes"),
];
/// and of one that says the one or the other.
const OBJECTS_AND_SPACE: [ValueType; 2] = [
    ValueType::fixed("objects", "count"),
    ValueType::fixed("space", "bytes"),
];
const PERIOD: ValueType = ValueType::fixed("space", "bytes");
/// The label of the size of an object.
const SIZE: &str = "bytes";

/// Whether a line is one, or is meant to be one: what stands before the first words says nothing.
pub(super) fn is_head(line: Text<'_>) -> bool {
    line.bytes.starts_with(HEAD.as_bytes()) || read::is_head(line)
}

/// Whether the columns in brackets say something, by their totals.
fn has_allocated(in_use: [i64; 2], allocated: [i64; 2]) -> bool {
    let differs = |i: usize| allocated[i] != in_use[i] && allocated[i] != 0;
    differs(0) || differs(1)
}
