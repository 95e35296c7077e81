//! `Profile` -> heap profile.

use std::io::Write;

use super::sampling::sampled;
use super::{ALLOCATED, HEAD, IN_USE, OBJECTS_AND_SPACE, PERIOD, SIZE, WHAT, has_allocated};
use crate::format::WriteError;
use crate::format::legacy::output::{Output, column};
use crate::profile::{LabelValue, Profile, Sample, ValueType};

/// Objects and bytes.
type Pair = [i64; 2];

pub(in crate::format) fn write_heap(
    profile: &Profile,
    out: &mut impl Write,
) -> Result<(), WriteError> {
    let values = values(profile)?;
    let is_sampled = profile.period_type == PERIOD && profile.period > 1;
    let as_sampled = is_sampled.then(|| as_sampled(profile, &values)).flatten();
    match as_sampled {
        Some(rows) => write(profile, &rows, &format!("heap_v2/{}", profile.period), out),
        None => write(profile, &values, "heapprofile", out),
    }
}

pub(in crate::format) fn write_growth(
    profile: &Profile,
    out: &mut impl Write,
) -> Result<(), WriteError> {
    // Growth has no other values than these.
    let mut rows = values(profile)?;
    for row in &mut rows {
        row.allocated = row.in_use;
    }
    write(profile, &rows, "growth", out)
}

/// The values of a sample.
#[derive(Clone, Copy)]
struct Row {
    in_use: Pair,
    /// As in use, where the profile does not say it.
    allocated: Pair,
}

impl Row {
    const ZERO: Self = Self {
        in_use: [0; 2],
        allocated: [0; 2],
    };

    fn plus(self, other: Self) -> Self {
        let sum = |a: Pair, b: Pair| [0, 1].map(|i| a[i].saturating_add(b[i]));
        Self {
            in_use: sum(self.in_use, other.in_use),
            allocated: sum(self.allocated, other.allocated),
        }
    }
}

/// The values as they are.
fn values(profile: &Profile) -> Result<Vec<Row>, WriteError> {
    let columns = |types: [ValueType; 2]| {
        let [objects, bytes] = types.map(|wanted| column(profile, &wanted));
        Some([objects?, bytes?])
    };
    let in_use = columns(IN_USE).or_else(|| columns(OBJECTS_AND_SPACE));
    let in_use = in_use.ok_or_else(|| {
        WriteError::lacks(
            profile,
            "a heap profile holds objects and their bytes",
            "inuse_objects/count and inuse_space/bytes, nor objects/count and space/bytes",
        )
    })?;
    let allocated = columns(ALLOCATED).unwrap_or(in_use);
    let row = |sample: Sample<'_>| {
        let row = Row {
            in_use: in_use.map(|i| sample.values[i]),
            allocated: allocated.map(|i| sample.values[i]),
        };
        match [row.in_use, row.allocated] {
            [[0, bytes], _] | [_, [0, bytes]] if bytes != 0 => Err(WriteError::unfit(
                "a heap profile holds bytes of objects, and this profile has bytes of no objects: \
                 write it as .pb.gz",
            )),
            _ => Ok(row),
        }
    };
    profile.samples().map(row).collect()
}

/// What was sampled, if there is such a thing for each value: google/pprof cuts off fractions of
/// what samples stand for, so that some values stand for none.
fn as_sampled(profile: &Profile, values: &[Row]) -> Option<Vec<Row>> {
    let key = profile.strings().find(SIZE);
    let of_sample = |(sample, row): (Sample<'_>, &Row)| {
        let size = sample.labels.iter().find_map(|label| match label.value {
            LabelValue::Num { value, .. } if Some(label.key) == key => Some(value),
            _ => None,
        });
        // The label is of what is in use, if anything is.
        let (size_in_use, size_allocated) = match row.in_use[0] {
            0 => (None, size),
            _ => (size, None),
        };
        Some(Row {
            in_use: sampled(row.in_use, profile.period, size_in_use)?,
            allocated: match row.allocated == row.in_use {
                true => sampled(row.in_use, profile.period, size_in_use)?,
                false => sampled(row.allocated, profile.period, size_allocated)?,
            },
        })
    };
    profile.samples().zip(values).map(of_sample).collect()
}

fn write(
    profile: &Profile,
    rows: &[Row],
    kind: &str,
    out: &mut impl Write,
) -> Result<(), WriteError> {
    let total = rows.iter().fold(Row::ZERO, |sum, row| sum.plus(*row));
    let totals = [total.in_use, total.allocated];
    if totals.iter().flatten().any(|&total| total < 0) {
        return Err(WriteError::unfit(
            "a heap profile holds totals that are not negative, and this profile's are: write it as .pb.gz",
        ));
    }
    if rows
        .iter()
        .flat_map(|row| row.allocated)
        .any(|value| value < 0)
    {
        if !rows.iter().all(|row| row.allocated == row.in_use) {
            return Err(WriteError::unfit(
                "a heap profile holds allocated objects and bytes that are not negative, and some \
                 of this profile's are: write it as .pb.gz",
            ));
        }
        // Columns in brackets have no sign, and all zeros say nothing.
        let rows: Vec<Row> = (rows.iter())
            .map(|row| Row {
                allocated: [0; 2],
                ..*row
            })
            .collect();
        return write(profile, &rows, kind, out);
    }
    // Readers take the columns in brackets for nothing then.
    let says_nothing = |row: &Row| row.allocated == row.in_use || row.allocated == [0; 2];
    if !has_allocated(total.in_use, total.allocated) && !rows.iter().all(says_nothing) {
        return Err(WriteError::unfit(
            "readers of a heap profile take what was allocated for what is in use where both have the same totals, \
             as in this profile: write it as .pb.gz",
        ));
    }
    let mut out = Output::new(profile, WHAT, out);
    out.line(format_args!("{HEAD} {} @ {kind}", Columns(total)))?;
    for (sample, row) in profile.samples().zip(rows) {
        out.sample(format_args!("{} @", Columns(*row)), sample.stack)?;
    }
    out.finish("\nMAPPED_LIBRARIES:")
}

/// gperftools' columns.
struct Columns(Row);

impl std::fmt::Display for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Row { in_use, allocated } = self.0;
        write!(
            f,
            "{:6}: {:8} [{:6}: {:8}]",
            in_use[0], in_use[1], allocated[0], allocated[1]
        )
    }
}
