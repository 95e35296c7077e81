//! Profiles of one kind to one profile.

use std::hash::Hash;

use hashbrown::HashMap;

use super::{
    Function, FunctionId, Label, LabelValue, Line, Location, LocationId, MappingId, Profile,
    StackId, StringId,
};

impl Profile {
    /// One profile of several that have the same sample types: what is equal in them is there once,
    /// and samples of equal stacks and labels are summed up. It has the first one's start, its
    /// period and its default sample type, the sum of all durations, and each comment once.
    ///
    /// # Panics
    ///
    /// If their sample types are not the same.
    pub(crate) fn merged(profiles: impl IntoIterator<Item = Profile>) -> Profile {
        let mut profiles = profiles.into_iter();
        let mut merged = profiles.next().unwrap_or_default();
        let mut known = None;
        for profile in profiles {
            known
                .get_or_insert_with(|| Known::of(&merged))
                .add(&mut merged, &profile);
        }
        merged
    }

    /// Changes the period, and the values of one sample type, which count periods, with it: they
    /// are rounded so that their sum is right.
    pub(crate) fn count_by(&mut self, period: i64, sample_type: usize) {
        let (old, new) = (i128::from(self.period), i128::from(period.max(1)));
        let width = self.sample_types.len();
        let values = self.samples.values.iter_mut();
        let counts = values.skip(sample_type).step_by(width);
        let (mut before, mut after) = (0i128, 0i128);
        for count in counts {
            before += i128::from(*count);
            let sum = before * old / new;
            *count = (sum - after) as i64;
            after = sum;
        }
        self.period = period;
    }
}

/// Where what a profile holds is in it.
struct Known {
    functions: HashMap<Function, FunctionId>,
    mappings: HashMap<super::Mapping, MappingId>,
    locations: HashMap<Location, LocationId>,
    samples: HashMap<(StackId, u32), usize>,
}

impl Known {
    fn of(profile: &Profile) -> Self {
        let samples = &profile.samples;
        let keys = samples.stacks.iter().zip(&samples.label_sets);
        Self {
            functions: numbered(&profile.functions, FunctionId),
            mappings: numbered(&profile.mappings, MappingId),
            locations: numbered(&profile.locations, LocationId),
            samples: (keys.map(|(&stack, &labels)| (stack, labels)).zip(0..)).collect(),
        }
    }

    fn add(&mut self, merged: &mut Profile, profile: &Profile) {
        assert_eq!(
            merged.sample_types, profile.sample_types,
            "profiles of one kind have the same sample types"
        );
        merged.duration_nanos = merged.duration_nanos.saturating_add(profile.duration_nanos);
        for comment in &profile.comments {
            if !merged.comments.contains(comment) {
                merged.comments.push(comment.clone());
            }
        }
        let mappings: Vec<MappingId> = (profile.mappings.iter())
            .map(|mapping| {
                let known = self.mappings.entry(mapping.clone());
                *known.or_insert_with(|| merged.push_mapping(mapping.clone()))
            })
            .collect();
        let functions: Vec<FunctionId> = (profile.functions.iter())
            .map(|function| {
                let mut text = |id: StringId| merged.intern(profile.string(id));
                let function = Function {
                    name: text(function.name),
                    system_name: text(function.system_name),
                    filename: text(function.filename),
                    start_line: function.start_line,
                };
                let known = self.functions.entry(function);
                *known.or_insert_with(|| merged.push_function(function))
            })
            .collect();
        let locations: Vec<LocationId> = (profile.locations.iter())
            .map(|location| {
                let lines = location.lines.iter().map(|line| Line {
                    function: functions[line.function.index()],
                    ..*line
                });
                let location = Location {
                    mapping: location.mapping.map(|mapping| mappings[mapping.index()]),
                    lines: lines.collect(),
                    ..location.clone()
                };
                let known = self.locations.entry(location);
                *known.or_insert_with_key(|location| merged.push_location(location.clone()))
            })
            .collect();
        for sample in profile.samples() {
            let stack: Vec<LocationId> = (sample.stack.iter())
                .map(|location| locations[location.index()])
                .collect();
            let stack = merged.stacks.intern(&stack);
            let labels: Vec<Label> = (sample.labels.iter())
                .map(|label| Label {
                    key: merged.intern(profile.string(label.key)),
                    value: match label.value {
                        LabelValue::Str(text) => {
                            LabelValue::Str(merged.intern(profile.string(text)))
                        }
                        LabelValue::Num { value, unit } => LabelValue::Num {
                            value,
                            unit: merged.intern(profile.string(unit)),
                        },
                    },
                })
                .collect();
            let labels = merged.intern_labels(&labels);
            let width = merged.sample_types.len();
            let place = *(self.samples.entry((stack, labels.0))).or_insert_with(|| {
                merged.push_interned(stack, &vec![0; width], labels);
                merged.sample_count() - 1
            });
            let sums = &mut merged.samples.values[place * width..][..width];
            for (sum, value) in sums.iter_mut().zip(sample.values) {
                *sum = sum.saturating_add(*value);
            }
        }
    }
}

/// Each thing and its handle.
fn numbered<T: Clone + Eq + Hash, I>(things: &[T], id: impl Fn(u32) -> I) -> HashMap<T, I> {
    things.iter().cloned().zip((0..).map(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Mapping, ValueType};
    use super::*;

    fn profile(address: u64, function: &str, label: &str) -> Profile {
        let mut profile = Profile::new(vec![ValueType::new("samples", "count")]);
        // So that handles differ from one profile to the other.
        let mapping = profile.push_mapping(Mapping {
            memory_start: 0x1000,
            memory_limit: 0x2000,
            filename: "program".into(),
            ..Mapping::default()
        });
        let code = profile.push_location(Location {
            mapping: Some(mapping),
            address,
            ..Location::default()
        });
        let (key, value) = (profile.intern("thread"), profile.intern(label));
        let name = profile.intern(function);
        let function = profile.push_function(Function {
            name,
            ..Function::default()
        });
        let named = profile.push_location(Location {
            lines: vec![Line {
                function,
                line: 0,
                column: 0,
            }],
            ..Location::default()
        });
        let value = LabelValue::Str(value);
        profile.push_sample(&[code, named], &[3], &[Label { key, value }]);
        profile.push_sample(&[named], &[4], &[]);
        profile.duration_nanos = 5;
        profile.comments = vec!["a comment".into(), label.into()];
        profile
    }

    #[test]
    fn what_is_equal_is_there_once_and_summed_up() {
        let merged = Profile::merged([
            profile(0x1010, "f", "main"),
            profile(0x1020, "g", "other"),
            profile(0x1010, "f", "main"),
        ]);
        assert_eq!(merged.total(0), 21);
        assert_eq!(merged.duration_nanos, 15);
        assert_eq!(merged.comments, ["a comment", "main", "other"]);
        assert_eq!(merged.mappings().len(), 1);
        assert_eq!(merged.functions().len(), 2);
        assert_eq!(merged.locations().len(), 4);
        let samples: Vec<(u64, i64, usize)> = (merged.samples())
            .map(|sample| {
                let address = merged.location(sample.stack[0]).address;
                (address, sample.values[0], sample.labels.len())
            })
            .collect();
        let expected = [(0x1010, 6, 1), (0, 8, 0), (0x1020, 3, 1), (0, 4, 0)];
        assert_eq!(samples, expected);
    }

    #[test]
    fn counts_of_another_period_add_up() {
        let mut counts = profile(0x1010, "f", "main");
        counts.push_sample(&[], &[-2], &[]);
        counts.period = 10_000_000;
        counts.count_by(1_000_000, 0);
        let values = |profile: &Profile| -> Vec<i64> {
            let samples = profile.samples();
            samples.map(|sample| sample.values[0]).collect()
        };
        assert_eq!(values(&counts), [30, 40, -20]);
        counts.count_by(1_428_571, 0);
        assert_eq!(values(&counts), [21, 28, -14]);
        assert_eq!(counts.period, 1_428_571);
        counts.count_by(1_000_000_000, 0);
        assert_eq!(values(&counts), [0, 0, 0]);
    }

    #[test]
    fn one_profile_stays_as_it_is() {
        let one = profile(0x1010, "f", "main");
        assert_eq!(Profile::merged([one.clone()]), one);
    }
}
