//! What the bins of a histogram count.

use crate::profile::{Profile, ValueType};

const NS_PER_S: i64 = 1_000_000_000;

/// The physical dimension of a histogram. gprof divides bins by the rate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Dimension {
    pub(super) name: String,
    /// One byte that stands for the name behind numbers.
    pub(super) abbreviation: u8,
    /// Counts of a bin in one unit.
    pub(super) rate: u32,
    /// Counts of a bin in so many units of the sample type's.
    counts: i128,
    units: i128,
}

impl Dimension {
    /// That of the sample type at `index`.
    pub(super) fn of(profile: &Profile, index: usize) -> Self {
        let ValueType { r#type, unit } = &profile.sample_types()[index];
        if let Some(ns) = nanoseconds(unit) {
            let rate = rate(profile);
            return Self {
                name: "seconds".into(),
                abbreviation: b's',
                rate,
                counts: i128::from(ns) * i128::from(rate),
                units: NS_PER_S.into(),
            };
        }
        let name: String = match unit.as_ref() {
            "count" | "" => r#type.to_string(),
            unit => unit.to_owned(),
        };
        let first = name.bytes().find(u8::is_ascii_graphic);
        Self {
            abbreviation: first.unwrap_or(b'?'),
            name,
            rate: 1,
            counts: 1,
            units: 1,
        }
    }

    /// Each value in counts of a bin. What a value is rounded by is added to the next one, so that
    /// the sum is rounded once.
    pub(super) fn counts(&self, values: impl Iterator<Item = i64>) -> impl Iterator<Item = u64> {
        let mut rest = self.units / 2;
        values.map(move |value| {
            rest += i128::from(value) * self.counts;
            let count = rest.div_euclid(self.units);
            rest = rest.rem_euclid(self.units);
            u64::try_from(count).unwrap_or(u64::MAX)
        })
    }
}

/// How many nanoseconds a unit of time has.
fn nanoseconds(unit: &str) -> Option<i64> {
    match unit {
        "nanoseconds" => Some(1),
        "microseconds" => Some(1_000),
        "milliseconds" => Some(1_000_000),
        "seconds" => Some(NS_PER_S),
        _ => None,
    }
}

/// Samples in a second, where that is a whole number: bins then count samples. Microseconds else.
fn rate(profile: &Profile) -> u32 {
    const MICROSECONDS: u32 = 1_000_000;
    let period = nanoseconds(&profile.period_type.unit)
        .and_then(|ns| ns.checked_mul(profile.period))
        .filter(|&period| period > 0 && NS_PER_S % period == 0);
    let rate = period.and_then(|period| u32::try_from(NS_PER_S / period).ok());
    rate.filter(|&rate| rate <= MICROSECONDS)
        .unwrap_or(MICROSECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dimension(r#type: &'static str, unit: &'static str, period: i64) -> Dimension {
        let value_type = ValueType::new(r#type, unit);
        let mut profile = Profile::new(vec![value_type.clone()]);
        profile.period_type = value_type;
        profile.period = period;
        Dimension::of(&profile, 0)
    }

    #[test]
    fn time_is_counted_in_samples_where_a_second_has_a_whole_number_of_them() {
        let hundred = dimension("cpu", "nanoseconds", 10_000_000);
        assert_eq!((&*hundred.name, hundred.rate), ("seconds", 100));
        // One and a half samples' time, and again: three samples.
        let counts: Vec<u64> = hundred.counts([15_000_000; 2].into_iter()).collect();
        assert_eq!(counts, [2, 1]);
        let odd = dimension("cpu", "microseconds", 3_000);
        assert_eq!(odd.rate, 1_000_000);
        assert_eq!(odd.counts([7].into_iter()).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn other_dimensions_are_counted_as_they_are() {
        let bytes = dimension("inuse_space", "bytes", 512 << 10);
        assert_eq!(
            (&*bytes.name, bytes.abbreviation, bytes.rate),
            ("bytes", b'b', 1)
        );
        let objects = dimension("inuse_objects", "count", 1);
        assert_eq!(
            (&*objects.name, objects.abbreviation),
            ("inuse_objects", b'i')
        );
    }
}
