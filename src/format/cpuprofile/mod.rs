//! gperftools' CPU profile.
//!
//! Slots of one word each: the header `0, 3, 0, period in µs, 0`; records of
//! `count, number of pcs, pcs…`, leaf first; the trailer `0, 1, 0`. Behind it the text of the
//! process's mappings ([`mapped_objects`](super::mapped_objects)). A leaf's pc is the interrupted
//! one; the others are return addresses as they are, where a [`Location`](crate::profile::Location)
//! has them minus one.
//!
//! Source: gperftools, `docs/cpuprofile-fileformat.html` and `src/profiledata.cc`.

mod read;
mod write;

pub(super) use read::{DROP_FRAMES, read, sniff};
#[cfg(feature = "capi")]
pub(super) use write::size_before_text;
pub(super) use write::write;
