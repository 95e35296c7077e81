//! Summed weights of samples: of all of a recording's, or of those of a window of it.

use hashbrown::HashMap;

use super::{Tag, Weight};
use crate::random::Random;

/// Weights by call chain and tag.
#[derive(Debug)]
pub(crate) struct Sums {
    weights: HashMap<(u32, Tag), Weight>,
    counts: Counts,
    /// Of each thread's ticks, one in so many counts, for that many.
    every: u64,
    /// Ticks of each thread so far, where not all count. The first of them begins at a random
    /// place, as a slower clock would.
    ticks: HashMap<u32, u64>,
    random: Random,
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
        Self::of_every(1)
    }
}

impl Sums {
    /// Sums of one tick in `every` of each thread's, which stands for all of them: what a clock of
    /// so many times the period would have seen.
    pub(crate) fn of_every(every: u64) -> Self {
        Self {
            weights: HashMap::new(),
            counts: Counts::default(),
            every: every.max(1),
            ticks: HashMap::new(),
            random: Random::new(),
        }
    }

    pub(super) fn add(&mut self, chain: u32, tag: Tag, weight: Weight) {
        let weight = self.thinned(tag.thread, weight);
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

    fn thinned(&mut self, thread: u32, weight: Weight) -> Weight {
        let every = self.every;
        if every == 1 || weight.count == 0 {
            return weight;
        }
        let phase = || self.random.nth_below(thread.into(), every);
        let ticks = self.ticks.entry(thread).or_insert_with(phase);
        let before = *ticks / every;
        *ticks += weight.count;
        let count = *ticks / every - before;
        Weight {
            count,
            ns: weight.ns / weight.count * every * count,
        }
    }

    /// How many ticks one that counts stands for.
    pub(crate) fn every(&self) -> u64 {
        self.every
    }

    /// Those of a thread's ticks that count, where not all do.
    pub(crate) fn ticks_of(&self, thread: u32) -> u64 {
        self.ticks
            .get(&thread)
            .map_or(0, |ticks| ticks / self.every)
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
        self.weights.allocation_size() + self.ticks.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tick_in_ten_stands_for_ten_of_its_thread() {
        const PERIOD: u64 = 7;
        let mut sums = Sums::of_every(10);
        for tick in 0..1000 {
            for thread in 1..=20 {
                let tag = Tag {
                    thread,
                    ..Tag::default()
                };
                // A signal can stand for several ticks.
                let count = 1 + u64::from(thread) % 3;
                let weight = Weight {
                    count,
                    ns: count * PERIOD,
                };
                sums.add(tick % 3, tag, weight);
            }
        }
        for thread in 1..=20 {
            let of_thread = sums.weights().into_iter().filter(|w| w.1.thread == thread);
            let (count, ns) = of_thread.fold((0, 0), |(count, ns), (.., weight)| {
                (count + weight.count, ns + weight.ns)
            });
            let ticks = 1000 * (1 + u64::from(thread) % 3);
            assert!(count.abs_diff(ticks / 10) <= 1, "{count} of {ticks}");
            assert_eq!(ns, count * 10 * PERIOD);
            assert_eq!(count, sums.ticks_of(thread));
        }
    }

    #[test]
    fn threads_of_few_ticks_are_neither_all_counted_nor_none() {
        let mut sums = Sums::of_every(10);
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
