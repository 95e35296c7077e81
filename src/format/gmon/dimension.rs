//! What the bins of a histogram count.

use super::NAME;
use crate::profile::{Profile, ValueType};

pub(super) const NS_PER_S: i64 = 1_000_000_000;
/// Units of memory, as pprof knows them.
const MEMORY: [(&str, i128); 4] = [
    ("bytes", 1),
    ("kilobytes", 1 << 10),
    ("megabytes", 1 << 20),
    ("gigabytes", 1 << 30),
];
/// More counts than these are counted in a larger unit: they would be a hundred thousand histograms.
const MOST_COUNTS: i128 = 1 << 32;
/// The name of the dimension of time.
const SECONDS: &str = "seconds";

/// The physical dimension of a histogram. gprof divides bins by the rate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Dimension {
    pub(super) name: String,
    /// One byte that stands for the name behind numbers.
    pub(super) abbreviation: u8,
    /// Counts of a bin in one unit.
    pub(super) rate: u32,
}

/// How a sample type's values become counts of bins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// So many counts of a bin are
    counts: i128,
    /// so many of the sample type's units.
    units: i128,
}

impl Dimension {
    /// Time, as gprof's own files have it.
    pub(super) fn time(rate: u32) -> Self {
        Self {
            name: SECONDS.into(),
            abbreviation: b's',
            rate,
        }
    }

    pub(super) fn is_time(&self) -> bool {
        self.name == SECONDS
    }

    pub(super) fn is_memory(&self) -> bool {
        MEMORY.iter().any(|(name, _)| self.name == *name)
    }

    /// That of the sample type at `index`, and its scale. Bins have 16 bits, and each histogram of
    /// one bin counts up to that, so that the unit of time or memory is as large as the profile's
    /// total asks for.
    pub(super) fn of(profile: &Profile, index: usize) -> (Self, Scale) {
        let ValueType { r#type, unit } = &profile.sample_types()[index];
        let total = i128::from(profile.total(index));
        let fits = |scale: &Scale| total * scale.counts / scale.units <= MOST_COUNTS;
        if let Some(ns) = nanoseconds(unit) {
            let scale = |rate: u32| Scale {
                counts: i128::from(ns) * i128::from(rate),
                units: NS_PER_S.into(),
            };
            let rates = [rate(profile), 1_000, 1];
            let rate = rates.into_iter().find(|rate| fits(&scale(*rate)));
            let rate = rate.unwrap_or(1);
            return (Self::time(rate), scale(rate));
        }
        let of_unit = |(name, units): (&str, i128)| {
            let name = plain(name);
            let dimension = Self {
                abbreviation: name.as_bytes()[0],
                name,
                rate: 1,
            };
            (dimension, Scale { counts: 1, units })
        };
        match unit.as_ref() {
            "bytes" => {
                let last = of_unit(MEMORY[MEMORY.len() - 1]);
                let units = MEMORY.into_iter().map(of_unit);
                units.into_iter().find(|(_, s)| fits(s)).unwrap_or(last)
            }
            "count" | "" => of_unit((r#type, 1)),
            unit => of_unit((unit, 1)),
        }
    }
}

impl Scale {
    /// Each value in counts of a bin. What a value is rounded by is added to the next one, so that
    /// the sum is rounded once.
    pub(super) fn counts(self, values: impl Iterator<Item = i64>) -> impl Iterator<Item = u64> {
        let mut rest = self.units / 2;
        values.map(move |value| {
            rest += i128::from(value) * self.counts;
            let count = rest.div_euclid(self.units);
            rest = rest.rem_euclid(self.units);
            u64::try_from(count).unwrap_or(u64::MAX)
        })
    }
}

/// Of a name, what a histogram has room for and any reader takes for text: characters of ASCII, one
/// at least, of which the first is no space.
fn plain(name: &str) -> String {
    let is_text = |c: char| c == ' ' || c.is_ascii_graphic();
    let plain = |c: char| if is_text(c) { c } else { '?' };
    let name: String = name.trim_start().chars().map(plain).take(NAME).collect();
    if name.is_empty() { "?".into() } else { name }
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

    fn dimension(r#type: &'static str, unit: &'static str, period: i64) -> (Dimension, Scale) {
        let value_type = ValueType::new(r#type, unit);
        let mut profile = Profile::new(vec![value_type.clone()]);
        profile.period_type = value_type;
        profile.period = period;
        Dimension::of(&profile, 0)
    }

    #[test]
    fn time_is_counted_in_samples_where_a_second_has_a_whole_number_of_them() {
        let (hundred, scale) = dimension("cpu", "nanoseconds", 10_000_000);
        assert_eq!((&*hundred.name, hundred.rate), ("seconds", 100));
        // One and a half samples' time, and again: three samples.
        let counts: Vec<u64> = scale.counts([15_000_000; 2].into_iter()).collect();
        assert_eq!(counts, [2, 1]);
        let (odd, scale) = dimension("cpu", "microseconds", 3_000);
        assert_eq!(odd.rate, 1_000_000);
        assert_eq!(scale.counts([7].into_iter()).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn what_is_much_is_counted_in_larger_units() {
        let of = |r#type, unit, value| {
            let value_type = ValueType::new(r#type, unit);
            let mut profile = Profile::new(vec![value_type.clone()]);
            profile.period_type = value_type;
            profile.period = 1_000;
            profile.push_sample(&[], &[value], &[]);
            let (dimension, scale) = Dimension::of(&profile, 0);
            let count = scale.counts([value].into_iter()).next();
            (dimension.name, dimension.rate, count.unwrap())
        };
        let seconds = |rate, count| ("seconds".to_owned(), rate, count);
        let hour = 3600 * NS_PER_S;
        assert_eq!(
            of("cpu", "nanoseconds", hour),
            seconds(1_000_000, 3_600_000_000)
        );
        assert_eq!(
            of("cpu", "nanoseconds", 2 * hour),
            seconds(1_000, 7_200_000)
        );
        let centuries = i64::MAX / NS_PER_S;
        assert_eq!(
            of("cpu", "seconds", centuries),
            seconds(1, centuries as u64)
        );
        let terabyte = ("kilobytes".to_owned(), 1, 1 << 30);
        assert_eq!(of("alloc_space", "bytes", 1 << 40), terabyte);
        assert_eq!(of("alloc_space", "bytes", i64::MAX).2, 1 << 33);
    }

    #[test]
    fn other_dimensions_are_counted_as_they_are() {
        let (bytes, _) = dimension("inuse_space", "bytes", 512 << 10);
        assert_eq!(
            (&*bytes.name, bytes.abbreviation, bytes.rate),
            ("bytes", b'b', 1)
        );
        let (objects, _) = dimension("inuse_objects", "count", 1);
        assert_eq!(
            (&*objects.name, objects.abbreviation),
            ("inuse_objects", b'i')
        );
    }
}
