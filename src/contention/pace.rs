//! How much a second the watch costs at the most: where more waits would be timed than a thread may
//! spend time on, one of so many is; and where more stacks would be recorded, the mean that waits
//! are sampled with is raised until they are not.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::sampling;
use crate::random::Random;
use crate::sys::clock::Clock;
use crate::sys::thread::thread_pointer;

/// Stacks. Of four microseconds each, where a thread has just been woken and nothing is in caches,
/// they take a hundredth of one CPU.
const MOST_PER_SECOND: u32 = 2_500;

/// Waits that are timed. Of a third of a microsecond each, for the waiter and for the one who ends
/// the wait, they take less than a hundredth.
const MOST_TIMED_PER_SECOND: u32 = 25_000;

/// What threads that wait look at.
#[derive(Debug)]
pub(super) struct Pace {
    /// The lowest mean that keeps to the bound, in nanoseconds; 0 where each does.
    floor_ns: AtomicU64,
    /// Of how many waits one is timed: a power of two.
    one_of: AtomicU32,
    /// Stacks that may be recorded until more are granted. Below 0, some were refused.
    left: AtomicI64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            floor_ns: AtomicU64::new(0),
            one_of: AtomicU32::new(1),
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

    /// How many waits this one is timed for, if it is. *Async-signal-safe.*
    pub(super) fn one_of(&self) -> Option<u32> {
        let one_of = self.one_of.load(Ordering::Relaxed);
        (one_of == 1 || next_random() & u64::from(one_of - 1) == 0).then_some(one_of)
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

/// Another number each time, whatever other threads draw. *Async-signal-safe.*
fn next_random() -> u64 {
    thread_local! {
        static DRAWN: Cell<u64> = const { Cell::new(0) };
    }
    let drawn = match DRAWN.get() {
        // Threads that follow each other have the same pointer.
        0 => Clock::MONOTONIC.now_ns().unwrap_or(0),
        drawn => drawn,
    };
    DRAWN.set(drawn.wrapping_add(1));
    Random::of_seed(thread_pointer()).nth(drawn)
}

/// How long waits take, of the last turns; by which the pace is set.
#[derive(Debug)]
pub(super) struct Pacer {
    /// How many waits there were, by the binary logarithm of their nanoseconds. Older ones count
    /// less.
    waits: [f64; 64],
    /// How many there were in all, with those that were not timed.
    all: f64,
    /// Of how many one is timed.
    pub(super) one_of: u32,
    /// In how many seconds: older ones count less, too.
    seconds: f64,
    turned: Instant,
}

impl Pacer {
    pub(super) fn new() -> Self {
        Self {
            waits: [0.0; 64],
            all: 0.0,
            one_of: 1,
            seconds: 0.0,
            turned: Instant::now(),
        }
    }

    /// Notes so many timed waits of this length, or of all that each stands for.
    pub(super) fn note(&mut self, waited_ns: u64, count: f64) {
        self.waits[waited_ns.max(1).ilog2() as usize] += count;
    }

    /// Notes so many waits, timed or not.
    pub(super) fn note_all(&mut self, count: f64) {
        self.all += count;
    }

    /// Sets the pace by what was noted.
    pub(super) fn turn(&mut self, pace: &Pace) {
        let elapsed = self.turned.elapsed();
        self.turned += elapsed;
        self.seconds += elapsed.as_secs_f64();
        let floor_ns = self.floor_ns();
        pace.floor_ns.store(floor_ns, Ordering::Relaxed);
        self.one_of = self.one_of();
        pace.one_of.store(self.one_of, Ordering::Relaxed);
        pace.grant(elapsed);
        for of_past in (self.waits.iter_mut()).chain([&mut self.all, &mut self.seconds]) {
            *of_past /= 2.0;
        }
    }

    /// The lowest power of two of which as many are timed as may be.
    fn one_of(&self) -> u32 {
        let most = self.seconds * f64::from(MOST_TIMED_PER_SECOND);
        let powers = (0..31).map(|log| 1 << log);
        powers
            .into_iter()
            .find(|&one_of| self.all / f64::from(one_of) <= most)
            .unwrap_or(1 << 31)
    }

    /// The lowest power of two that as many stacks are recorded with as may be.
    fn floor_ns(&self) -> u64 {
        let most = self.seconds * f64::from(MOST_PER_SECOND);
        let stacks = |mean_ns: u64| -> f64 {
            let sampled = |(log, count): (usize, &f64)| {
                // The longest of them, so that there are fewer rather than more.
                let p = 2.0 * (1_u64 << log) as f64 / mean_ns as f64;
                count * p.min(1.0)
            };
            self.waits.iter().enumerate().map(sampled).sum()
        };
        let powers = (0..63).map(|log| 1 << log);
        powers
            .into_iter()
            .find(|&mean_ns| stacks(mean_ns) <= most)
            .filter(|&floor_ns| floor_ns > 1)
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(seconds: f64, waits: &[(u64, f64)]) -> Pacer {
        let mut pacer = Pacer::new();
        pacer.seconds = seconds;
        for &(waited_ns, count) in waits {
            pacer.note(waited_ns, count);
        }
        pacer
    }

    #[test]
    fn few_waits_are_all_recorded() {
        let few = f64::from(MOST_PER_SECOND);
        assert_eq!(
            pacer(1.0, &[(5000, few / 2.0), (1 << 40, few / 2.0)]).floor_ns(),
            0
        );
        assert_eq!(pacer(1.0, &[]).floor_ns(), 0);
    }

    #[test]
    fn many_waits_are_sampled_so_that_no_more_are_recorded() {
        for waits in [
            vec![(5000, 1e6)],
            vec![(5000, 1e6), (1 << 30, 100.0)],
            vec![(1, 1e9), (700, 1e5), (1 << 20, 2e4)],
        ] {
            let floor_ns = pacer(1.0, &waits).floor_ns();
            let stacks: f64 = (waits.iter())
                .map(|&(ns, count)| count * (ns as f64 / floor_ns as f64).min(1.0))
                .sum();
            let most = f64::from(MOST_PER_SECOND);
            assert!((most / 4.0..=most).contains(&stacks), "{floor_ns} {stacks}");
        }
    }

    #[test]
    fn of_many_waits_some_are_timed_and_stand_for_all() {
        let pace = Pace::new();
        let mut pacer = pacer(1.0, &[]);
        assert_eq!(pacer.one_of(), 1);
        pacer.note_all(1e6);
        let one_of = pacer.one_of();
        assert_eq!(one_of, 64);
        pace.one_of.store(one_of, Ordering::Relaxed);
        const WAITS: u32 = 1 << 20;
        // New threads draw other numbers than those before them.
        let count = || (0..WAITS / 16).filter_map(|_| pace.one_of()).sum::<u32>();
        let all: u32 = std::thread::scope(|scope| {
            let threads = (0..16).map(|_| scope.spawn(count).join().unwrap());
            threads.sum()
        });
        // The standard error is 0.8 %.
        assert!(all.abs_diff(WAITS) < WAITS / 25, "{all} of {WAITS}");
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
