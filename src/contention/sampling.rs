//! Which waits are sampled, and what they stand for.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::Random;

/// The mean that is not set.
const DEFAULT_MEAN_NS: u64 = 100_000;

/// How many waits there were, and how long they took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Waits {
    /// What samples stand for, which is no whole number each.
    pub(super) count: f64,
    pub(super) ns: u64,
}

impl Waits {
    pub(super) fn plus(self, others: Self) -> Self {
        Self {
            count: self.count + others.count,
            ns: self.ns.saturating_add(others.ns),
        }
    }

    pub(super) fn minus(self, others: Self) -> Self {
        Self {
            count: self.count - others.count,
            ns: self.ns.saturating_sub(others.ns),
        }
    }
}

/// Nanoseconds of waiting between two samples, on average: 1 for each wait, 0 for none.
static MEAN_NS: AtomicU64 = AtomicU64::new(DEFAULT_MEAN_NS);

pub(super) fn mean_ns() -> u64 {
    MEAN_NS.load(Ordering::Relaxed)
}

pub(super) fn set_mean_ns(mean_ns: u64) {
    MEAN_NS.store(mean_ns, Ordering::Relaxed);
}

/// Whether waits that took so long in all are a sample. `seed` is another one each time.
/// *Async-signal-safe.*
pub(super) fn is_sampled(waited_ns: u64, mean_ns: u64, seed: u64) -> bool {
    mean_ns > 0 && (waited_ns >= mean_ns || Random::of_seed(seed).nth_below(1, mean_ns) < waited_ns)
}

/// How many waits so many sampled ones stand for, and their nanoseconds: what is sampled with
/// probability p stands for 1 / p.
pub(super) fn stands_for(count: u32, waited_ns: u64, mean_ns: u64) -> Waits {
    let count = f64::from(count);
    match waited_ns < mean_ns {
        true => Waits {
            count: count * mean_ns as f64 / waited_ns.max(1) as f64,
            ns: mean_ns,
        },
        false => Waits {
            count,
            ns: waited_ns,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_waits_stand_for_all() {
        const WAITS: u64 = 200_000;
        for (seed, waited_ns, mean_ns) in [(1, 10, 1000), (2, 999, 1000), (3, 500, 100_000)] {
            let seeds = (0..WAITS).map(|i| Random::of_seed(seed).nth(i));
            let samples = seeds.filter(|&seed| is_sampled(waited_ns, mean_ns, seed));
            let samples = samples.count() as f64;
            let Waits { count, ns } = stands_for(1, waited_ns, mean_ns);
            let p = waited_ns as f64 / mean_ns as f64;
            let error = (p * (1.0 - p) / WAITS as f64).sqrt() / p;
            for (sum, truth) in [
                (samples * count, WAITS as f64),
                (samples * ns as f64, (WAITS * waited_ns) as f64),
            ] {
                let off = (sum / truth - 1.0) / error;
                assert!(off.abs() < 4.0, "{waited_ns} ns by {mean_ns} ns: {off}");
            }
        }
    }

    #[test]
    fn each_wait_is_sampled_or_none() {
        assert!((1..1000).all(|seed| is_sampled(1, 1, seed) && !is_sampled(1 << 40, 0, seed)));
        assert_eq!(stands_for(2, 7, 1), Waits { count: 2.0, ns: 7 });
    }
}
