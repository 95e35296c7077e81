//! Heap profiles, and those of growth and fragmentation, whose lines are the same:
//!
//! ```text
//! heap profile:      2:     1088 [     5:     2176] @ heap_v2/524288
//!      1:     1024 [     1:     1024] @ 0x401136 0x401162
//! ```
//!
//! Objects and bytes in use and, in brackets, all that were allocated.

use super::samples::Samples;
use super::scan::Scan;
use super::{Lines, Text, frames, is_before_mappings, is_comment};
use crate::Result;
use crate::profile::{Label, LabelValue, Profile, StringId, ValueType};

/// What errors call such a file.
const WHAT: &str = "heap profile";
const HEAD: &str = "heap profile:";

pub(super) fn is_head(line: Text<'_>) -> bool {
    Scan::new(line, WHAT).skip_past(HEAD)
}

/// What the first line says.
struct Head {
    /// Bytes between samples.
    period: i64,
    /// Samples stand for what was not sampled.
    is_sampled: bool,
    /// The columns in brackets say something.
    has_allocated: bool,
}

impl Head {
    fn read(line: Text<'_>) -> Result<Self> {
        let mut scan = Scan::new(line, WHAT);
        scan.skip_past(HEAD);
        let [in_use, allocated] = columns(&mut scan)?;
        let kind =
            scan.word(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        let interval = match scan.take("/") {
            true if !scan.is_at_end() => scan.number()?,
            _ => 0,
        };
        let (is_sampled, period) = match kind {
            b"heap_v2" | b"heapz_v2" => (true, interval),
            // The mean was twice that of a Poisson process.
            b"heap" => (true, interval / 2),
            b"heapprofile" | b"growth" | b"growthz" | b"fragmentation" | b"fragmentationz" => {
                (false, 1)
            }
            _ => {
                return Err(scan.refuse(
                    "names a kind of heap profile that is not known (heap_v2, heapz_v2, heap, \
                     heapprofile, growth, growthz, fragmentation, fragmentationz are)",
                ));
            }
        };
        let differs = |i: usize| allocated[i] != in_use[i] && allocated[i] != 0;
        Ok(Self {
            period,
            is_sampled,
            has_allocated: differs(0) || differs(1),
        })
    }
}

/// Objects and bytes in use, and allocated, up to the `@` behind them.
fn columns(scan: &mut Scan<'_>) -> Result<[[i64; 2]; 2]> {
    const REASON: &str = "is not `objects: bytes [objects: bytes] @` and then addresses";
    let mut pair = |end: &str| -> Result<[i64; 2]> {
        let objects = scan.number()?;
        scan.expect(":", REASON)?;
        let bytes = scan.number()?;
        scan.expect(end, REASON)?;
        Ok([objects, bytes])
    };
    let columns = [pair("[")?, pair("]")?];
    scan.expect("@", REASON)?;
    Ok(columns)
}

pub(super) fn read(head: Text<'_>, mut lines: Lines<'_>, memory: u64) -> Result<Profile> {
    let head = Head::read(head)?;
    // What is in use comes last, where viewers look first.
    let types: &[_] = match head.has_allocated {
        true => &[
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ],
        false => &[("objects", "count"), ("space", "bytes")],
    };
    let mut profile = Profile::new(types.iter().map(|(t, u)| ValueType::new(*t, *u)).collect());
    profile.period_type = ValueType::new("space", "bytes");
    profile.period = head.period;
    let key = profile.intern("bytes");
    let mut samples = Samples::new(profile, memory);
    let mut last: &[u8] = &[];
    for line in lines.by_ref() {
        if is_before_mappings(line.bytes) {
            last = line.bytes;
            break;
        }
        if is_comment(line.bytes) {
            continue;
        }
        let mut scan = Scan::new(line, WHAT);
        let [in_use, allocated] = columns(&mut scan)?;
        let pairs = match head.has_allocated {
            true => &[allocated, in_use][..],
            false => &[in_use],
        };
        let (mut values, mut size) = (Vec::with_capacity(4), 0);
        for &[objects, bytes] in pairs {
            if objects == 0 && bytes != 0 {
                return Err(scan.refuse("has bytes of no objects"));
            }
            if objects != 0 {
                size = bytes.wrapping_div(objects);
            }
            values.extend(match head.is_sampled {
                true => unsampled(objects, bytes, head.period),
                false => [objects, bytes],
            });
        }
        samples.push_addresses(scan)?;
        let value = LabelValue::Num {
            value: size,
            unit: StringId::default(),
        };
        samples.push(&values, &[Label { key, value }])?;
    }
    samples.finish(last, lines, frames::ALLOCATORS)
}

/// What sampled objects and their bytes stand for. Each byte allocated begins a sample with
/// probability 1 / `period`, so that an object of a size is sampled with probability
/// 1 - exp(-size / `period`).
fn unsampled(objects: i64, bytes: i64, period: i64) -> [i64; 2] {
    if objects == 0 || bytes == 0 {
        return [0, 0];
    }
    if period <= 1 {
        return [objects, bytes];
    }
    let size = bytes as f64 / objects as f64;
    let scale = 1.0 / (1.0 - (-size / period as f64).exp());
    [
        (objects as f64 * scale) as i64,
        (bytes as f64 * scale) as i64,
    ]
}
