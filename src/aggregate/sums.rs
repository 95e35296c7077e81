//! Summed weights of samples: of all of a recording's, or of those of a window of it.

use hashbrown::HashMap;

use super::{Tag, Weight};
use crate::random::Random;

/// Weights by call chain and tag.
#[derive(Debug)]
pub(crate) struct Sums {
    weights: HashMap<(u32, Tag), Weight>,
    counts: Counts,
    /// Which ticks count; `None` where all do.
    thinning: Option<Thinning>,
    /// Time of each thread's ticks so far, in nanoseconds, where not all count. It begins at a
    /// random place of the first period, as that of a slower clock would.
    time_ns: HashMap<u32, u64>,
    random: Random,
}

/// Of the ticks of a recording, those that count as ticks of a slower clock: the first after the
/// end of each of its periods. The periods need not be multiples of the recording's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Thinning {
    /// The recording's period.
    tick_ns: u64,
    /// The slower clock's.
    period_ns: u64,
}

impl Thinning {
    /// From one period to another; `None` where that is no longer.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn new(tick_ns: u64, period_ns: u64) -> Option<Self> {
        (period_ns > tick_ns && tick_ns > 0).then_some(Self { tick_ns, period_ns })
    }
}

/// Sums over everything that was added.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    /// Records.
    pub(crate) records: u64,
    /// Their weights.
    pub(crate) weight: u64,
}

impl Default for Sums {
    fn default() -> Self {
        Self::thinned(None)
    }
}

impl Sums {
    /// Sums of the ticks that count, each of which stands for a period of the slower clock; of all
    /// ticks without `thinning`.
    pub(crate) fn thinned(thinning: Option<Thinning>) -> Self {
        Self {
            weights: HashMap::new(),
            counts: Counts::default(),
            thinning,
            time_ns: HashMap::new(),
            random: Random::new(),
        }
    }

    pub(super) fn add(&mut self, chain: u32, tag: Tag, weight: Weight) {
        let weight = self.thin(tag.thread, weight);
        if weight == Weight::default() {
            return;
        }
        let sum = self.weights.entry((chain, tag)).or_default();
        sum.count += weight.count;
        sum.ns += weight.ns;
        self.counts.weight += weight.count;
    }

    pub(super) fn count_record(&mut self) {
        self.counts.records += 1;
    }

    fn thin(&mut self, thread: u32, weight: Weight) -> Weight {
        let Some(Thinning { tick_ns, period_ns }) = self.thinning else {
            return weight;
        };
        let phase = || self.random.nth_below(thread.into(), period_ns);
        let time_ns = self.time_ns.entry(thread).or_insert_with(phase);
        let before = *time_ns / period_ns;
        *time_ns += weight.count * tick_ns;
        let count = *time_ns / period_ns - before;
        Weight {
            count,
            ns: count * period_ns,
        }
    }

    /// Whether not all ticks count.
    pub(crate) fn is_thinned(&self) -> bool {
        self.thinning.is_some()
    }

    /// The time that a tick that counts stands for, where one of the recording's stands for
    /// `tick_ns`.
    pub(crate) fn period_ns(&self, tick_ns: u64) -> u64 {
        self.thinning.map_or(tick_ns, |thinning| thinning.period_ns)
    }

    /// How many of so many ticks count.
    pub(crate) fn counting(&self, ticks: u64) -> u64 {
        let Some(Thinning { tick_ns, period_ns }) = self.thinning else {
            return ticks;
        };
        (u128::from(ticks) * u128::from(tick_ns) / u128::from(period_ns)) as u64
    }

    /// Those of a thread's ticks that count, where not all do.
    pub(crate) fn ticks_of(&self, thread: u32) -> u64 {
        match (self.thinning, self.time_ns.get(&thread)) {
            (Some(thinning), Some(time_ns)) => time_ns / thinning.period_ns,
            _ => 0,
        }
    }

    /// Sums over everything so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// How many distinct call chains there are.
    pub(crate) fn distinct_chains(&self) -> usize {
        let mut chains: Vec<u32> = self.weights.keys().map(|&(chain, _)| chain).collect();
        chains.sort_unstable();
        chains.dedup();
        chains.len()
    }

    /// Chain, tag and weight of everything that was added, in order of chains and tags.
    pub(super) fn weights(&self) -> Vec<(u32, Tag, Weight)> {
        let mut weights: Vec<_> = self
            .weights
            .iter()
            .map(|(&(chain, tag), &weight)| (chain, tag, weight))
            .collect();
        weights.sort_unstable_by_key(|&(chain, tag, _)| (chain, tag));
        weights
    }

    /// Bytes that the tables take.
    pub(crate) fn size_bytes(&self) -> usize {
        self.weights.allocation_size() + self.time_ns.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each thread, how many ticks a recording has and how many count, where its periods have
    /// these lengths.
    fn counted(tick_ns: u64, period_ns: u64, ticks_of: impl Fn(u32) -> u64) -> Vec<(u64, u64)> {
        let mut sums = Sums::thinned(Thinning::new(tick_ns, period_ns));
        for step in 0..1000 {
            for thread in 1..=20 {
                let tag = Tag {
                    thread,
                    ..Tag::default()
                };
                // A signal can stand for several ticks.
                let count = ticks_of(thread);
                let ns = count * tick_ns;
                sums.add(step % 3, tag, Weight { count, ns });
            }
        }
        let of_thread = |thread| {
            let of_thread = sums.weights().into_iter().filter(|w| w.1.thread == thread);
            let (count, ns) = of_thread.fold((0, 0), |(count, ns), (.., weight)| {
                (count + weight.count, ns + weight.ns)
            });
            assert_eq!(ns, count * period_ns);
            assert_eq!(count, sums.ticks_of(thread));
            (1000 * ticks_of(thread), count)
        };
        (1..=20).map(of_thread).collect()
    }

    #[test]
    fn a_slower_clock_ticks_once_in_each_of_its_periods() {
        for (tick_ns, period_ns) in [(7, 70), (1_000_000, 1_428_571), (999, 1000), (2, 999_999)] {
            for (ticks, count) in counted(tick_ns, period_ns, |thread| 1 + u64::from(thread) % 3) {
                let expected = ticks * tick_ns / period_ns;
                let what = format!("{count} of {ticks} at {tick_ns} to {period_ns}");
                assert!(count.abs_diff(expected) <= 1, "{what}");
            }
        }
    }

    #[test]
    fn all_ticks_count_where_the_clock_is_no_slower() {
        assert_eq!(Thinning::new(10, 10), None);
        assert_eq!(Thinning::new(10, 9), None);
        let sums = Sums::default();
        assert!(!sums.is_thinned());
        assert_eq!((sums.period_ns(10), sums.counting(7)), (10, 7));
        let sums = Sums::thinned(Thinning::new(10, 25));
        assert!(sums.is_thinned());
        assert_eq!((sums.period_ns(10), sums.counting(7)), (25, 2));
    }

    #[test]
    fn threads_of_few_ticks_are_neither_all_counted_nor_none() {
        let mut sums = Sums::thinned(Thinning::new(1, 10));
        for thread in 0..1000 {
            let tag = Tag {
                thread,
                ..Tag::default()
            };
            sums.add(0, tag, Weight { count: 5, ns: 5 });
        }
        let counted = sums.counts().weight;
        assert!((400..=600).contains(&counted), "{counted}, not some 500");
    }
}
