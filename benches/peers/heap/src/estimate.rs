//! How far a heap profile is from the truth.
#![cfg(feature = "counted")]

use sigprof::profile::{LabelValue, Sample};
use sigprof::{Profile, heap};

use crate::counted::truth;
use crate::{Result, Results};

/// Fewer samples than these do not say how sure they are.
const FEW: f64 = 10.0;

/// Takes a profile: how far each of its totals is from the truth, in standard errors, and the part
/// of the allocated bytes that has a function whose name contains `name` in its stack.
///
/// The interval is 0 afterwards: what is done to tell the profile's names is in no profile.
pub fn held_against_truth(name: &str) -> Result<Results> {
    let interval = heap::sample_interval() as f64;
    heap::set_sample_interval(0);
    let truth = truth();
    let profile = heap::profile()?;
    let mut results: Results = [
        "alloc_objects_error",
        "alloc_space_error",
        "inuse_objects_error",
        "inuse_space_error",
    ]
    .into_iter()
    .enumerate()
    .filter_map(|(index, name)| Some((name, error(&profile, index, truth[index], interval)?)))
    .collect();
    results.push(("part_below", part_below(&profile, name)));
    Ok(results)
}

/// In standard errors; of few samples there is none. A block of `size` bytes is sampled with
/// p = 1 - exp(-size / interval), and then stands for 1 / p: of `n` that are sampled the variance is
/// n (1 - p) / p².
fn error(profile: &Profile, index: usize, truth: f64, interval: f64) -> Option<f64> {
    let (mut estimate, mut variance, mut samples) = (0.0, 0.0, 0.0);
    for sample in profile.samples() {
        let size = size(&sample);
        let value = sample.values[index] as f64;
        // Objects and bytes alternate.
        let each = if index.is_multiple_of(2) { 1.0 } else { size };
        let objects = value / each;
        let chance = -(-size / interval).exp_m1();
        estimate += value;
        samples += objects * chance;
        variance += objects * (1.0 - chance) / chance * each * each;
    }
    (samples >= FEW).then(|| (estimate - truth) / variance.sqrt())
}

/// The size of a sample's blocks, which is its only number.
fn size(sample: &Sample<'_>) -> f64 {
    let number = sample.labels.iter().find_map(|label| match label.value {
        LabelValue::Num { value, .. } => Some(value as f64),
        LabelValue::Str(_) => None,
    });
    number.unwrap_or(1.0).max(1.0)
}

fn part_below(profile: &Profile, name: &str) -> f64 {
    const ALLOC_SPACE: usize = 1;
    let is_below = |sample: &Sample<'_>| {
        let lines = sample.stack.iter();
        lines
            .flat_map(|&location| &profile.location(location).lines)
            .map(|line| profile.string(profile.function(line.function).name))
            .any(|function| function.contains(name))
    };
    let below: i64 = profile
        .samples()
        .filter(is_below)
        .map(|sample| sample.values[ALLOC_SPACE])
        .sum();
    below as f64 / profile.total(ALLOC_SPACE).max(1) as f64
}
