//! Which share of the waits for a lock is timed: all, or one of so many, where more would be timed
//! than threads may spend time on.
//!
//! The bound is shared out among locks, so that a lock that is waited for a million times a second
//! takes nothing from one that is seldom waited for, and perhaps for long.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::rates::Rates;
use crate::random::Random;
use crate::sys::clock::Clock;
use crate::sys::thread::thread_pointer;

/// Locks are told apart by this many hashes of their addresses.
const GROUPS: usize = 2048;

/// Waits that are timed a second. At half a microsecond each, for the waiter and again for the
/// holder, they take 0.5 % of one CPU.
const MOST_PER_SECOND: f64 = 5_000.0;

/// What threads that wait look at: by group of locks.
#[derive(Debug)]
pub(super) struct Shares {
    groups: Box<[Group]>,
}

#[derive(Debug, Default)]
struct Group {
    /// The binary logarithm of how many waits there are for each that is timed.
    one_of_log: AtomicU8,
    /// Waits that were timed since the last turn.
    timed: AtomicU32,
}

impl Shares {
    pub(super) fn new() -> Self {
        Self {
            groups: (0..GROUPS).map(|_| Group::default()).collect(),
        }
    }

    /// How many waits for a lock the one that begins is timed for, if it is. *Async-signal-safe.*
    pub(super) fn one_of(&self, address: u64) -> Option<u32> {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let group = &self.groups[(hash >> (64 - GROUPS.ilog2())) as usize];
        let one_of = 1_u32 << group.one_of_log.load(Ordering::Relaxed);
        if one_of > 1 && next_random() & u64::from(one_of - 1) != 0 {
            return None;
        }
        group.timed.fetch_add(1, Ordering::Relaxed);
        Some(one_of)
    }
}

/// Another number each time, whatever other threads draw. *Async-signal-safe.*
///
/// Nothing of the thread's own is used, whose first use allocates in a library that was loaded
/// later: an allocator's locks are among those that are waited for.
fn next_random() -> u64 {
    /// How many were drawn, by threads with this hash of their pointers. Two of them draw numbers of
    /// two sequences, whatever they overwrite here.
    static DRAWN: [CachePadded<AtomicU64>; 64] =
        [const { CachePadded::new(AtomicU64::new(0)) }; 64];
    let thread = thread_pointer();
    let hash = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
    let drawn = &DRAWN[hash as usize];
    let nth = match drawn.load(Ordering::Relaxed) {
        // Threads that follow each other have the same pointer, and runs of a program.
        0 => Clock::MONOTONIC.now_ns().unwrap_or(0),
        nth => nth,
    };
    drawn.store(nth.wrapping_add(1), Ordering::Relaxed);
    Random::of_seed(thread).nth(nth)
}

/// What shares are set by.
#[derive(Debug)]
pub(super) struct Sharer {
    /// Of waits, by group of locks.
    rates: Rates,
}

impl Sharer {
    pub(super) fn new() -> Self {
        Self {
            rates: Rates::of_kinds(GROUPS),
        }
    }

    /// The process is watched from now on.
    pub(super) fn begin(&mut self) {
        self.rates.begin();
    }

    /// Sets shares by what came since the last turn, and in those before.
    pub(super) fn turn(&mut self, shares: &Shares) {
        self.note(shares);
        self.rates.turn();
        self.set(shares);
    }

    fn note(&mut self, shares: &Shares) {
        for (nth, group) in shares.groups.iter().enumerate() {
            if group.timed.load(Ordering::Relaxed) > 0 {
                let timed = group.timed.swap(0, Ordering::Relaxed);
                let one_of = 1_u32 << group.one_of_log.load(Ordering::Relaxed);
                self.rates.note(nth, f64::from(timed) * f64::from(one_of));
            }
        }
    }

    fn set(&self, shares: &Shares) {
        let rates = self.rates.per_second();
        let most = most_of_each(rates);
        for (&rate, group) in rates.iter().zip(&shares.groups) {
            let logs = (0..31).find(|&log| rate / f64::from(1_u32 << log) <= most);
            group
                .one_of_log
                .store(logs.unwrap_or(31), Ordering::Relaxed);
        }
    }
}

/// How many waits of one group may be timed a second, that no more are timed in all than may be:
/// all the same, of which each takes as much as it needs.
fn most_of_each(rates: &[f64]) -> f64 {
    let mut rates: Vec<f64> = rates.iter().copied().filter(|&rate| rate > 0.0).collect();
    rates.sort_unstable_by(f64::total_cmp);
    let (mut left, mut groups) = (MOST_PER_SECOND, rates.len());
    for rate in rates {
        let most = left / groups as f64;
        if rate > most {
            return most;
        }
        left -= rate;
        groups -= 1;
    }
    MOST_PER_SECOND
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Shares after a second of so many waits for each of the locks.
    fn after(waits: &[(u64, u32)]) -> (Shares, Sharer) {
        let (shares, mut sharer) = (Shares::new(), Sharer::new());
        for &(lock, waits) in waits {
            (0..waits).for_each(|_| assert_eq!(shares.one_of(lock), Some(1)));
        }
        after_a_second(&mut sharer, &shares);
        (shares, sharer)
    }

    fn after_a_second(sharer: &mut Sharer, shares: &Shares) {
        sharer.note(shares);
        sharer.rates.turn_after(Duration::from_secs(1));
        sharer.set(shares);
    }

    /// How many of so many further waits are timed, and how many these stand for.
    fn timed(shares: &Shares, lock: u64, waits: u32) -> (u32, u32) {
        let timed = (0..waits).filter_map(|_| shares.one_of(lock));
        timed.fold((0, 0), |(timed, all), one_of| (timed + 1, all + one_of))
    }

    const FEW: u32 = MOST_PER_SECOND as u32 / 2;
    const MANY: u32 = 1_000_000;

    #[test]
    fn few_waits_are_all_timed() {
        let (shares, _) = after(&[(0x1000, FEW), (0x2000, FEW)]);
        assert_eq!(timed(&shares, 0x1000, 100), (100, 100));
        assert_eq!(timed(&shares, 0x3000, 100), (100, 100));
    }

    #[test]
    fn of_many_waits_some_are_timed_and_stand_for_all() {
        let (shares, mut sharer) = after(&[(0x1000, MANY)]);
        for _ in 0..3 {
            let (timed, all) = timed(&shares, 0x1000, MANY);
            assert!((FEW..=2 * FEW).contains(&timed), "{timed}");
            // The standard error is 1.6 %.
            assert!(all.abs_diff(MANY) < MANY / 10, "{all} of {MANY}");
            after_a_second(&mut sharer, &shares);
        }
        (0..20).for_each(|_| after_a_second(&mut sharer, &shares));
        assert_eq!(timed(&shares, 0x1000, 10), (10, 10));
    }

    #[test]
    fn new_threads_draw_other_numbers_than_those_before_them() {
        let (shares, _) = after(&[(0x1000, MANY)]);
        const THREADS: u32 = 64;
        let all: u32 = std::thread::scope(|scope| {
            let count = || timed(&shares, 0x1000, MANY / THREADS).1;
            let threads = (0..THREADS).map(|_| scope.spawn(count).join().unwrap());
            threads.sum()
        });
        assert!(all.abs_diff(MANY) < MANY / 10, "{all} of {MANY}");
    }

    #[test]
    fn a_lock_that_many_wait_for_takes_nothing_from_others() {
        let rarely = [(0x2000, 10), (0x3000, FEW / 2)];
        let (shares, _) = after(&[&[(0x1000, MANY)][..], &rarely].concat());
        for (lock, waits) in rarely {
            assert_eq!(timed(&shares, lock, waits), (waits, waits));
        }
        let (timed, _) = timed(&shares, 0x1000, MANY);
        assert!(timed < 2 * FEW - FEW / 2, "{timed}");
        // What nobody knows is timed, whenever it comes first.
        assert_eq!(shares.one_of(0x4000), Some(1));
    }
}
