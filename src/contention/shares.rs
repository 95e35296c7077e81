//! Which share of the waits for a lock is timed: all, or one of so many, where more would be timed
//! than threads may spend time on.
//!
//! The bound is shared out among locks, so that a lock that is waited for a million times a second
//! takes nothing from one that is seldom waited for, and perhaps for long.
//!
//! What is done for a wait before it begins changes how long it takes: the lock may be free a tenth
//! of a microsecond later, and a thread that comes back then need not sleep, which takes a hundred
//! times as long. So one of so many waits is *timed*, for which nothing is done before it that is
//! not done for all: those are as long as all are. And one of so many is *entered* before it
//! begins, so that its holder is known; what a holder is charged with is weighted by how long timed
//! waits take for each nanosecond of entered ones.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::looks::{self, GROUPS, Look};
use super::rates::Rates;
use crate::random::Random;
use crate::sys::clock::Clock;
use crate::sys::thread::thread_pointer;

/// Waits that are timed a second. At half a microsecond each, for the waiter and again for the
/// holder, they take 0.5 % of one CPU.
const MOST_PER_SECOND: f64 = 5_000.0;

/// At fewer waits a second, none has been of late.
const RARE_PER_SECOND: f64 = 1.0;

/// What threads that wait look at: by group of locks.
#[derive(Debug)]
pub(super) struct Shares {
    groups: Box<[Group]>,
}

/// Locks with the same hash, and how their waits are drawn.
#[derive(Debug)]
pub(super) struct Group {
    /// The binary logarithm of how many waits there are for each that is drawn.
    one_of_log: AtomicU8,
    /// How long waits take for each nanosecond of entered ones: a 32-bit float.
    ratio: AtomicU32,
    /// Since the last turn: times that the draw fell on a call that may wait.
    drawn: AtomicU32,
    /// Those that did wait.
    timed: Sum,
    entered: Sum,
}

/// Waits, and how long they took.
#[derive(Debug, Default)]
struct Sum {
    waits: AtomicU32,
    ns: AtomicU64,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            one_of_log: AtomicU8::new(0),
            ratio: AtomicU32::new(1_f32.to_bits()),
            drawn: AtomicU32::new(0),
            timed: Sum::default(),
            entered: Sum::default(),
        }
    }
}

impl Sum {
    fn add(&self, ns: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn take(&self) -> (f64, f64) {
        match self.waits.swap(0, Ordering::Relaxed) {
            0 => (0.0, 0.0),
            waits => (f64::from(waits), self.ns.swap(0, Ordering::Relaxed) as f64),
        }
    }
}

impl Shares {
    pub(super) fn new() -> Self {
        Self {
            groups: (0..GROUPS).map(|_| Group::default()).collect(),
        }
    }

    /// That of a lock. *Async-signal-safe.*
    pub(super) fn group(&self, address: u64) -> &Group {
        &self.groups[looks::group(address)]
    }
}

impl Group {
    /// How many waits each that is drawn stands for. *Async-signal-safe.*
    pub(super) fn one_of(&self) -> u32 {
        1 << self.one_of_log.load(Ordering::Relaxed)
    }

    /// For how many nanoseconds a holder answers who has kept an entered wait, one of so many, for
    /// so many. *Async-signal-safe.*
    pub(super) fn weighted(&self, ns: u64, one_of: u32) -> u64 {
        if one_of == 1 {
            return ns;
        }
        let ratio = f32::from_bits(self.ratio.load(Ordering::Relaxed));
        (ns as f64 * f64::from(one_of) * f64::from(ratio)) as u64
    }

    /// The draw fell on a call that may wait, one of so many. *Async-signal-safe.*
    pub(super) fn note_drawn(&self) {
        self.drawn.fetch_add(1, Ordering::Relaxed);
    }

    /// A wait was timed. *Async-signal-safe.*
    pub(super) fn note_timed(&self, ns: u64) {
        self.timed.add(ns);
    }

    /// A wait was entered. *Async-signal-safe.*
    pub(super) fn note_entered(&self, ns: u64) {
        self.entered.add(ns);
    }
}

/// Whether a wait is entered, and whether it is timed, one of so many of which are: a power of two
/// of 32 bits. One says nothing of the other. *Async-signal-safe.*
#[inline]
pub(super) fn draw(one_of: u32) -> [bool; 2] {
    if one_of == 1 {
        return [true; 2];
    }
    let number = next_random();
    [number, number >> 32].map(|half| half as u32 & (one_of - 1) == 0)
}

/// Another number each time, whatever other threads draw. *Async-signal-safe.*
///
/// Nothing of the thread's own is used, whose first use allocates in a library that was loaded
/// later: an allocator's locks are among those that are waited for.
fn next_random() -> u64 {
    /// How many were drawn, by threads with this hash of their pointers. Two of them draw numbers
    /// of two sequences, whatever they overwrite here.
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
    /// Of groups of which not all waits were drawn at some time.
    means: BTreeMap<usize, Means>,
}

/// How long waits took, of late.
#[derive(Debug, Default)]
struct Means {
    timed: Mean,
    entered: Mean,
}

#[derive(Debug, Default)]
struct Mean {
    waits: f64,
    ns: f64,
}

impl Mean {
    /// What is kept of it at each turn of the flusher.
    const KEPT: f64 = 0.98;

    /// With fewer waits, nothing is said.
    const FEWEST: f64 = 100.0;

    fn add(&mut self, (waits, ns): (f64, f64)) {
        self.waits = self.waits * Self::KEPT + waits;
        self.ns = self.ns * Self::KEPT + ns;
    }

    fn ns(&self) -> Option<f64> {
        (self.waits >= Self::FEWEST && self.ns > 0.0).then(|| self.ns / self.waits)
    }
}

impl Means {
    fn ratio(&self) -> Option<f64> {
        Some(self.timed.ns()? / self.entered.ns()?)
    }
}

impl Sharer {
    pub(super) fn new() -> Self {
        Self {
            rates: Rates::of_kinds(GROUPS),
            means: BTreeMap::new(),
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
            if group.drawn.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let drawn = f64::from(group.drawn.swap(0, Ordering::Relaxed));
            self.rates.note(nth, drawn * f64::from(group.one_of()));
            let (timed, entered) = (group.timed.take(), group.entered.take());
            if let Some(means) = self.means.get_mut(&nth) {
                means.timed.add(timed);
                means.entered.add(entered);
                let ratio = means.ratio().unwrap_or(1.0) as f32;
                group.ratio.store(ratio.to_bits(), Ordering::Relaxed);
            }
        }
    }

    fn set(&mut self, shares: &Shares) {
        let rates = self.rates.per_second();
        let most = most_of_each(rates);
        looks::set((0..GROUPS).map(|nth| {
            let rate = rates[nth];
            let log = (0..31).find(|&log| rate / f64::from(1_u32 << log) <= most);
            let log = log.unwrap_or(31);
            shares.groups[nth].one_of_log.store(log, Ordering::Relaxed);
            if log > 0 {
                self.means.entry(nth).or_default();
            }
            match log {
                0 if rate < RARE_PER_SECOND => Look::Never,
                0 => Look::Before,
                _ => Look::After,
            }
        }));
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

    /// For how many waits the one that is over is timed, if it is.
    fn drawn(shares: &Shares, lock: u64) -> Option<u32> {
        let group = shares.group(lock);
        let one_of = group.one_of();
        let [_, is_timed] = draw(one_of);
        is_timed.then(|| {
            group.note_drawn();
            one_of
        })
    }

    /// Shares after a second of so many waits for each of the locks.
    fn after(waits: &[(u64, u32)]) -> (Shares, Sharer) {
        let (shares, mut sharer) = (Shares::new(), Sharer::new());
        for &(lock, waits) in waits {
            (0..waits).for_each(|_| assert_eq!(drawn(&shares, lock), Some(1)));
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
        let timed = (0..waits).filter_map(|_| drawn(shares, lock));
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
        assert_eq!(drawn(&shares, 0x4000), Some(1));
    }

    #[test]
    fn entered_waits_are_weighted_with_how_long_the_others_take() {
        let (shares, mut sharer) = after(&[(0x1000, MANY)]);
        let group = shares.group(0x1000);
        assert_eq!(group.weighted(30_000, 256), 30_000 * 256);
        for _ in 0..10 {
            group.note_drawn();
            (0..FEW).for_each(|_| group.note_timed(300));
            (0..FEW / 2).for_each(|_| group.note_entered(3000));
            sharer.note(&shares);
        }
        let off = group.weighted(30_000, 256) as f64 / (30_000.0 * 25.6) - 1.0;
        assert!(off.abs() < 1e-6, "{group:?}");
        assert_eq!(group.weighted(30_000, 1), 30_000);
    }
}
