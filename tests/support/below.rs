//! The samples of a profile whose stacks have a function.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use sigprof::Profile;
use sigprof::profile::{LabelValue, Line, Sample};

/// Whether a sample's stack has a function of this name.
pub fn is_below(profile: &Profile, sample: &Sample<'_>, function: &str) -> bool {
    sample.stack.iter().any(|&location| {
        let lines = &profile.location(location).lines;
        let name = |line: &Line| profile.function(line.function).name;
        lines
            .iter()
            .any(|line| profile.string(name(line)).contains(function))
    })
}

/// The samples whose stacks have a function of this name.
fn samples_below<'p>(profile: &'p Profile, function: &str) -> impl Iterator<Item = Sample<'p>> {
    (profile.samples()).filter(move |sample| is_below(profile, sample, function))
}

/// The sums of their values.
pub fn sums_below(profile: &Profile, function: &str) -> [i64; 2] {
    sums(samples_below(profile, function))
}

/// The same for those whose threads waited for something of this kind, as the label says it.
pub fn sums_of(profile: &Profile, function: &str, kind: &str) -> [i64; 2] {
    let samples = samples_below(profile, function);
    sums(samples.filter(|sample| {
        sample.labels.iter().any(|label| {
            let is_kind = |value| profile.string(value) == kind;
            profile.string(label.key) == "wait"
                && matches!(label.value, LabelValue::Str(value) if is_kind(value))
        })
    }))
}

pub fn sums<'p>(samples: impl Iterator<Item = Sample<'p>>) -> [i64; 2] {
    samples.fold([0, 0], |sums, sample| {
        [0, 1].map(|i| sums[i] + sample.values[i])
    })
}
