//! Contention profiles: how often threads waited for locks, and how long.
//!
//! ```text
//! --- contention:
//! cycles/second = 1000000000
//! sampling period = 100
//!   19490304       27 @ 0xbccc97 0xc61202
//! ```
//!
//! A sample is the cycles that were waited, the times, and the stack.

mod read;
mod write;

pub(super) use read::read;
pub(in crate::format) use write::write;

use super::Text;
use crate::profile::ValueType;

/// What errors call such a file.
const WHAT: &str = "contention profile";
/// The first lines of such files; the first is ours.
const HEADS: [&str; 3] = ["--- contention:", "--- contentionz ", "--- mutex:"];
const CYCLES_PER_SECOND: &str = "cycles/second";
const SAMPLING_PERIOD: &str = "sampling period";
const MS_SINCE_RESET: &str = "ms since reset";

const CONTENTIONS: ValueType = ValueType::fixed("contentions", "count");
const DELAY: ValueType = ValueType::fixed("delay", "nanoseconds");

pub(super) fn is_head(line: Text<'_>) -> bool {
    let starts = |head: &str| line.bytes.starts_with(head.as_bytes());
    HEADS.into_iter().any(starts)
}

/// The nanoseconds that sampled cycles stand for, where each sample stands for a period of
/// contentions.
///
/// Source: google/pprof, `parseContentionSample` in `profile/legacy_profile.go`.
fn nanoseconds(cycles: i64, period: i64, cycles_per_second: i64) -> i64 {
    let cycles_per_nanosecond = cycles_per_second as f64 / 1e9;
    (cycles as f64 * period as f64 / cycles_per_nanosecond) as i64
}
