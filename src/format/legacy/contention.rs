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

use super::samples::Samples;
use super::scan::Scan;
use super::{Lines, Text, frames, is_before_mappings, is_comment};
use crate::Result;
use crate::profile::{Profile, ValueType};

/// What errors call such a file.
const WHAT: &str = "contention profile";
const HEADS: [&str; 3] = ["--- contention:", "--- contentionz ", "--- mutex:"];

pub(super) fn is_head(line: Text<'_>) -> bool {
    let starts = |head: &str| line.bytes.starts_with(head.as_bytes());
    HEADS.into_iter().any(starts)
}

pub(super) fn read(_head: Text<'_>, mut lines: Lines<'_>, memory: u64) -> Result<Profile> {
    let mut profile = Profile::new(vec![
        ValueType::new("contentions", "count"),
        ValueType::new("delay", "nanoseconds"),
    ]);
    profile.period_type = ValueType::new("contentions", "count");
    profile.period = 1;
    let mut cycles_per_second = 0;
    let mut samples = Samples::new(profile, memory);
    let mut are_samples = false;
    for line in lines.by_ref() {
        if is_comment(line.bytes) {
            continue;
        }
        if line.bytes.starts_with(b"---") || is_before_mappings(line.bytes) {
            return samples.finish(line.bytes, lines, frames::LOCKS);
        }
        let mut scan = Scan::new(line, WHAT);
        are_samples |= !line.bytes.contains(&b'=');
        if are_samples {
            let values = sample(&mut scan, samples.profile.period, cycles_per_second)?;
            samples.push_addresses(scan)?;
            samples.push(&values, &[])?;
            continue;
        }
        let key = scan.word(|byte| byte != b'=').trim_ascii_end();
        scan.take("=");
        match key {
            b"cycles/second" => cycles_per_second = scan.number()?,
            b"sampling period" => samples.profile.period = scan.number()?,
            b"ms since reset" => {
                let nanoseconds = scan.number()?.checked_mul(1_000_000);
                samples.profile.duration_nanos = nanoseconds
                    .ok_or_else(|| scan.refuse("has more time than 64 bits of nanoseconds"))?;
            }
            b"discarded samples" => {}
            _ => {
                return Err(scan.refuse(
                    "has a key that is not known (cycles/second, sampling period, ms since reset, \
                     discarded samples are)",
                ));
            }
        }
    }
    samples.finish(&[], lines, frames::LOCKS)
}

/// Contentions and nanoseconds: each sample stands for a period of contentions.
fn sample(scan: &mut Scan<'_>, period: i64, cycles_per_second: i64) -> Result<[i64; 2]> {
    let mut delay = scan.number()?;
    let mut contentions = scan.number()?;
    scan.expect("@", "is not `delay contentions @` and then addresses")?;
    if delay < 0 || contentions < 0 {
        return Err(scan.refuse("has a negative number"));
    }
    if period > 0 {
        if cycles_per_second > 0 {
            let cycles_per_nanosecond = cycles_per_second as f64 / 1e9;
            delay = (delay as f64 * period as f64 / cycles_per_nanosecond) as i64;
        }
        let product = contentions.checked_mul(period);
        contentions =
            product.ok_or_else(|| scan.refuse("stands for more contentions than 64 bits hold"))?;
    }
    Ok([contentions, delay])
}
