//! Contention profile -> `Profile`.

use super::{
    CONTENTIONS, CYCLES_PER_SECOND, DELAY, MS_SINCE_RESET, SAMPLING_PERIOD, WHAT, nanoseconds,
};
use crate::Result;
use crate::format::legacy::samples::Samples;
use crate::format::legacy::scan::Scan;
use crate::format::legacy::{Lines, Text, frames, is_before_mappings, is_comment};
use crate::profile::Profile;

pub(in crate::format::legacy) fn read(
    _head: Text<'_>,
    mut lines: Lines<'_>,
    memory: u64,
) -> Result<Profile> {
    let mut profile = Profile::new(vec![CONTENTIONS, DELAY]);
    profile.period_type = CONTENTIONS;
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
        match str::from_utf8(key).unwrap_or_default() {
            CYCLES_PER_SECOND => cycles_per_second = scan.number()?,
            SAMPLING_PERIOD => samples.profile.period = scan.number()?,
            MS_SINCE_RESET => {
                let nanoseconds = scan.number()?.checked_mul(1_000_000);
                samples.profile.duration_nanos = nanoseconds
                    .ok_or_else(|| scan.refuse("has more time than 64 bits of nanoseconds"))?;
            }
            "discarded samples" => {}
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
            delay = nanoseconds(delay, period, cycles_per_second);
        }
        let product = contentions.checked_mul(period);
        contentions =
            product.ok_or_else(|| scan.refuse("stands for more contentions than 64 bits hold"))?;
    }
    Ok([contentions, delay])
}
