//! The counts that Go's runtime writes, of goroutines or of threads created:
//!
//! ```text
//! threadcreate profile: total 4
//! 3 @ 0x40be31 0x40c213
//! ```

use super::samples::Samples;
use super::scan::Scan;
use super::{Lines, Text, frames, is_before_mappings, is_comment};
use crate::Result;
use crate::profile::{Profile, ValueType};

/// What errors call such a file.
const WHAT: &str = "count profile";

/// What a profile with such a first line counts.
pub(super) fn sample_type<'t>(line: Text<'t>) -> Option<&'t str> {
    let mut scan = Scan::new(line, WHAT);
    let name = scan.word(|byte| !byte.is_ascii_whitespace());
    let is_head = scan.take("profile:") && scan.take("total") && scan.number().is_ok();
    let name = str::from_utf8(name).ok()?;
    (is_head && scan.is_at_end() && !name.is_empty()).then_some(name)
}

pub(super) fn read(head: Text<'_>, mut lines: Lines<'_>, memory: u64) -> Result<Profile> {
    let name = sample_type(head).unwrap_or_default().to_owned();
    let mut profile = Profile::new(vec![ValueType::new(name.clone(), "count")]);
    profile.period_type = ValueType::new(name, "count");
    profile.period = 1;
    let mut samples = Samples::new(profile, memory);
    for line in lines.by_ref() {
        if is_comment(line.bytes) {
            continue;
        }
        if line.bytes.starts_with(b"---") || is_before_mappings(line.bytes) {
            return samples.finish(line.bytes, lines, frames::CPU_PROFILER);
        }
        let mut scan = Scan::new(line, WHAT);
        let count = scan.number()?;
        scan.expect("@", "is not `count @` and then addresses")?;
        samples.push_addresses(scan)?;
        samples.push(&[count], &[])?;
    }
    samples.finish(&[], lines, frames::CPU_PROFILER)
}
