//! The text profiles of gperftools' days: heap, growth, contention and thread profiles, and Go's
//! counts.
//!
//! A first line says what the profile is; a line of numbers and of addresses, leaf first, is a
//! sample; the text of the process's mappings ends it
//! ([`mapped_objects`](super::mapped_objects)). All addresses are return addresses, where a
//! [`Location`](crate::profile::Location) has them minus one; the leaves of thread profiles alone
//! are the threads' own program counters.
//!
//! Source: google/pprof, `profile/legacy_profile.go`; gperftools, `src/heap-profile-table.cc`.

mod contention;
mod counts;
mod frames;
mod heap;
mod output;
mod samples;
mod scan;
mod threads;

use super::lines::{Lines, Text};
use crate::{Profile, Result};
#[cfg(feature = "heap")]
pub(crate) use heap::unsampled;
#[cfg(feature = "heap")]
pub(crate) use heap::unsampled_in_sum;

pub(super) use contention::write as write_contention;
pub(super) use heap::{write_growth, write_heap};

/// What a text profile holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Memory in use and allocated, growth of the heap, or its fragmentation.
    Heap,
    /// Delays at locks.
    Contention,
    /// Threads, with a head for each.
    Threads,
    /// Go's counts of goroutines, threads and the like.
    Counts,
}

/// Recognizes such a profile by its first line that is neither empty nor a comment.
pub(super) fn sniff(bytes: &[u8]) -> Option<Kind> {
    let first = first_line(&mut Lines::new(bytes))?;
    if heap::is_head(first) {
        Some(Kind::Heap)
    } else if contention::is_head(first) {
        Some(Kind::Contention)
    } else if threads::is_head(first) {
        Some(Kind::Threads)
    } else {
        counts::sample_type(first).map(|_| Kind::Counts)
    }
}

pub(super) fn read(bytes: &[u8], kind: Kind, memory: u64) -> Result<Profile> {
    let mut lines = Lines::new(bytes);
    let Some(head) = first_line(&mut lines) else {
        return Ok(Profile::default());
    };
    match kind {
        Kind::Heap => heap::read(head, lines, memory),
        Kind::Contention => contention::read(head, lines, memory),
        Kind::Threads => threads::read(head, lines, memory),
        Kind::Counts => counts::read(head, lines, memory),
    }
}

fn first_line<'t>(lines: &mut Lines<'t>) -> Option<Text<'t>> {
    lines.find(|line| !is_comment(line.bytes))
}

/// Whether a line has nothing to say.
fn is_comment(line: &[u8]) -> bool {
    line.is_empty() || line.starts_with(b"#")
}

/// Whether the text of the mappings follows a line.
fn is_before_mappings(line: &[u8]) -> bool {
    let words: [&[u8]; 2] = [b"MAPPED_LIBRARIES:", b"--- Memory map: ---"];
    let contains = |word: &[u8]| line.windows(word.len()).any(|part| part == word);
    words.into_iter().any(contains)
}
