//! How many stacks are recorded a second at the most: where more would be, the mean that waits are
//! sampled with is raised until they are not.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::rates::Rates;
use super::sampling;

/// Stacks. Of four microseconds each, where a thread has just been woken and nothing is in caches,
/// they take a hundredth of one CPU.
const MOST_PER_SECOND: u32 = 2_500;

/// What threads that wait look at.
#[derive(Debug)]
pub(super) struct Pace {
    /// The lowest mean that keeps to the bound, in nanoseconds; 0 where each does.
    floor_ns: AtomicU64,
    /// Stacks that may be recorded until more are granted. Below 0, some were refused.
    left: AtomicI64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            floor_ns: AtomicU64::new(0),
            left: AtomicI64::new(MOST_PER_SECOND.into()),
        }
    }

    /// The mean to sample with. *Async-signal-safe.*
    pub(super) fn mean_ns(&self) -> u64 {
        match sampling::mean_ns() {
            0 => 0,
            mean_ns => mean_ns.max(self.floor_ns.load(Ordering::Relaxed)),
        }
    }

    /// Whether one more stack may be recorded. *Async-signal-safe.*
    pub(super) fn take(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0 && self.left.fetch_sub(1, Ordering::Relaxed) > 0
    }

    fn grant(&self, elapsed: Duration) {
        let granted = (elapsed.as_secs_f64() * f64::from(MOST_PER_SECOND)) as i64;
        let refill = |left: i64| Some((left.max(0) + granted).min(MOST_PER_SECOND.into()));
        let _ = (self.left).fetch_update(Ordering::Relaxed, Ordering::Relaxed, refill);
    }
}

/// What the pace is set by.
#[derive(Debug)]
pub(super) struct Pacer {
    /// Of waits, by the binary logarithm of their nanoseconds.
    rates: Rates,
}

impl Pacer {
    pub(super) fn new() -> Self {
        Self {
            rates: Rates::of_kinds(64),
        }
    }

    /// The process is watched from now on.
    pub(super) fn begin(&mut self) {
        self.rates.begin();
    }

    /// Notes so many timed waits of this length, or of all that each stands for.
    pub(super) fn note(&mut self, waited_ns: u64, count: f64) {
        self.rates.note(waited_ns.max(1).ilog2() as usize, count);
    }

    /// Sets the pace by what was noted.
    pub(super) fn turn(&mut self, pace: &Pace) {
        let elapsed = self.rates.turn();
        pace.floor_ns.store(self.floor_ns(), Ordering::Relaxed);
        pace.grant(elapsed);
    }

    /// The lowest power of two that as many stacks are recorded with as may be.
    fn floor_ns(&self) -> u64 {
        let stacks = |mean_ns: u64| -> f64 {
            let sampled = |(log, count): (usize, &f64)| {
                // The longest of them, so that there are fewer rather than more.
                let p = 2.0 * (1_u64 << log) as f64 / mean_ns as f64;
                count * p.min(1.0)
            };
            self.rates
                .per_second()
                .iter()
                .enumerate()
                .map(sampled)
                .sum()
        };
        let powers = (0..63).map(|log| 1 << log);
        powers
            .into_iter()
            .find(|&mean_ns| stacks(mean_ns) <= f64::from(MOST_PER_SECOND))
            .filter(|&floor_ns| floor_ns > 1)
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_a_second(waits: &[(u64, f64)]) -> Pacer {
        let mut pacer = Pacer::new();
        for &(waited_ns, count) in waits {
            pacer.note(waited_ns, count);
        }
        pacer.rates.turn_after(Duration::from_secs(1));
        pacer
    }

    #[test]
    fn few_waits_are_all_recorded() {
        let few = f64::from(MOST_PER_SECOND);
        assert_eq!(
            after_a_second(&[(5000, few / 2.0), (1 << 40, few / 2.0)]).floor_ns(),
            0
        );
        assert_eq!(after_a_second(&[]).floor_ns(), 0);
    }

    #[test]
    fn many_waits_are_sampled_so_that_no_more_are_recorded() {
        for waits in [
            vec![(5000, 1e6)],
            vec![(5000, 1e6), (1 << 30, 100.0)],
            vec![(1, 1e9), (700, 1e5), (1 << 20, 2e4)],
        ] {
            let floor_ns = after_a_second(&waits).floor_ns();
            let stacks: f64 = (waits.iter())
                .map(|&(ns, count)| count * (ns as f64 / floor_ns as f64).min(1.0))
                .sum();
            let most = f64::from(MOST_PER_SECOND);
            assert!((most / 4.0..=most).contains(&stacks), "{floor_ns} {stacks}");
        }
    }

    #[test]
    fn what_was_not_granted_is_refused() {
        let pace = Pace::new();
        let taken = || (0..2 * MOST_PER_SECOND).filter(|_| pace.take()).count();
        assert_eq!(taken(), MOST_PER_SECOND as usize);
        pace.grant(Duration::from_millis(10));
        assert_eq!(taken(), MOST_PER_SECOND as usize / 100);
        pace.grant(Duration::from_secs(100));
        assert_eq!(taken(), MOST_PER_SECOND as usize);
    }
}
