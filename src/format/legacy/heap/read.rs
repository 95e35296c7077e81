//! Heap profile -> `Profile`.

use super::sampling::unsampled;
use super::{ALLOCATED, HEAD, IN_USE, OBJECTS_AND_SPACE, PERIOD, SIZE, WHAT, has_allocated};
use crate::Result;
use crate::format::legacy::samples::Samples;
use crate::format::legacy::scan::Scan;
use crate::format::legacy::{Lines, Text, frames, is_before_mappings, is_comment};
use crate::profile::{Label, LabelValue, Profile, StringId};

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
        if !scan.skip_past(HEAD) {
            return Err(scan.refuse("does not begin as one"));
        }
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
        // Readers pass over what stands in brackets in a profile of another kind.
        let is_heap = kind.starts_with(b"heap");
        Ok(Self {
            period,
            is_sampled,
            has_allocated: is_heap && has_allocated(in_use, allocated),
        })
    }
}

pub(super) fn is_head(line: Text<'_>) -> bool {
    Head::read(line).is_ok()
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

pub(in crate::format::legacy) fn read(
    head: Text<'_>,
    mut lines: Lines<'_>,
    memory: u64,
) -> Result<Profile> {
    let head = Head::read(head)?;
    // What is in use comes last, where viewers look first.
    let types = match head.has_allocated {
        true => [ALLOCATED, IN_USE].concat(),
        false => OBJECTS_AND_SPACE.to_vec(),
    };
    let mut profile = Profile::new(types);
    profile.period_type = PERIOD;
    profile.period = head.period;
    let key = profile.intern(SIZE);
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
                true => unsampled([objects, bytes], head.period),
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
