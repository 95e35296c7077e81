//! When a thread takes its next sample: a countdown of bytes, in the thread itself.
//!
//! Samples are the events of a Poisson process over the bytes that a thread allocates, with the
//! mean interval between two: a block of `size` bytes is sampled with probability
//! 1 - exp(-size / mean), whatever was allocated before it. The process has no memory, so that a
//! countdown can begin anew at any byte: at the block after a sampled one, and where the mean has
//! changed.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::random::Random;
use crate::sys::clock::Clock;
use crate::sys::own_threads::is_own;
use crate::sys::thread_counter;

/// The mean interval that is not set: Go's and tcmalloc's.
pub(super) const DEFAULT_MEAN: u64 = 512 * 1024;

/// Bytes after which a thread looks whether the mean is still the same.
const PIECE: u64 = 64 * 1024;

/// The mean interval between two samples in bytes: 1 for every block, 0 for none.
static MEAN: AtomicU64 = AtomicU64::new(DEFAULT_MEAN);

/// Threads so far, each of which has random numbers of its own.
static THREADS: AtomicU64 = AtomicU64::new(0);

/// What begins the random numbers of all threads; 0 until the first needs some.
static SEED: AtomicU64 = AtomicU64::new(0);

/// Whether any block was counted,
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// and when the first was, by the monotonic clock.
static BEGUN_NS: AtomicU64 = AtomicU64::new(0);

/// What a thread knows. It needs no destructor, so that it is there as long as the thread
/// allocates, and no initialization, so that a thread's first allocation finds it: with no bytes
/// left, which sends it to `due`.
struct Thread {
    /// Bytes to the next sample, from where the thread looks again on. How many it may allocate
    /// until then is the thread's counter.
    rest: Cell<u64>,
    /// Bytes that the thread has allocated so far, and those left, together.
    ahead: Cell<u64>,
    /// The mean that the countdown was drawn with; 0 while none was.
    mean: Cell<u64>,
    /// The thread is at work for the profile itself, and takes no samples.
    is_inside: Cell<bool>,
    /// How many random numbers the thread has drawn, above the number of the thread; 0 while it
    /// has none.
    draws: Cell<u64>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            rest: Cell::new(0),
            ahead: Cell::new(0),
            mean: Cell::new(0),
            is_inside: Cell::new(false),
            draws: Cell::new(0),
        }
    };
}

/// The mean interval in bytes.
pub(super) fn mean() -> u64 {
    MEAN.load(Ordering::Relaxed)
}

/// Sets the mean interval: for the calling thread from its next allocation on, for others within
/// [`PIECE`].
pub(super) fn set_mean(bytes: u64) {
    // A profile says it as a signed number.
    let bytes = bytes.min(i64::MAX as u64);
    MEAN.store(bytes, Ordering::Relaxed);
    THREAD.with(|thread| {
        thread.mean.set(bytes);
        // The next block is looked at whatever its size: it may be the first one.
        thread.set_left(0);
        thread.rest.set(thread.draw(bytes));
    });
}

/// Goes on in a forked child: it takes other samples than its parent and the parent's other
/// children.
pub(super) fn begin_in_child() {
    let now = Clock::REALTIME.now_ns().unwrap_or(0);
    let seed = Random::of_seed(now).nth(u64::from(std::process::id()));
    SEED.store(seed | 1, Ordering::Relaxed);
    THREAD.with(|thread| {
        if thread.mean.get() != 0 {
            thread.begin(thread.draw(thread.mean.get()));
        }
    });
}

/// Whether any block was counted: an allocator is in use.
pub(super) fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::Relaxed)
}

/// Nanoseconds since the first block was counted.
pub(super) fn age_ns() -> u64 {
    let now = Clock::MONOTONIC.now_ns().unwrap_or(0);
    now.saturating_sub(BEGUN_NS.load(Ordering::Relaxed))
}

/// Counts a block down. Whether nothing else is to be done; else nothing is counted from
/// [`put_back`] on, which is called next, and [`due`] counts.
#[inline(always)]
pub(super) fn passes(size: usize) -> bool {
    thread_counter::take(size)
}

/// Undoes the count of a block that did not pass.
pub(super) fn put_back(size: usize) {
    thread_counter::put_back(size);
}

/// Counts a block down that was not counted: the mean interval that it is a sample of, if it is
/// one.
pub(super) fn due(size: usize) -> Option<u64> {
    let size = size as u64;
    THREAD.with(|thread| {
        if !HAS_BEGUN.load(Ordering::Relaxed) {
            BEGUN_NS.store(Clock::MONOTONIC.now_ns().unwrap_or(0), Ordering::Relaxed);
            HAS_BEGUN.store(true, Ordering::Relaxed);
        }
        thread.ahead.set(thread.ahead.get().wrapping_add(size));
        let mean = mean();
        if thread.is_inside.get() || is_own() {
            // What would have been a sample is none.
            thread.mean.set(mean);
            thread.begin(thread.draw(mean));
            return None;
        }
        // Up to and with this block the countdown is that of the mean it was drawn with: a thread
        // that notices another mean only where a sample was due must not lose the sample.
        let (counted, interval) = match thread.mean.replace(mean) {
            0 => (mean, thread.draw(mean)),
            counted => (counted, left() + thread.rest.get()),
        };
        match interval.checked_sub(size) {
            Some(rest) if counted == mean => {
                thread.begin(rest);
                None
            }
            Some(_) => {
                thread.begin(thread.draw(mean));
                None
            }
            None => {
                thread.begin(thread.draw(mean));
                Some(counted)
            }
        }
    })
}

/// Keeps the calling thread from taking samples while `work` is done.
pub(super) fn without_samples<T>(work: impl FnOnce() -> T) -> T {
    /// Ends it, whatever happens.
    struct Inside(bool);

    impl Drop for Inside {
        fn drop(&mut self) {
            THREAD.with(|thread| thread.is_inside.set(self.0));
        }
    }

    let _inside = Inside(THREAD.with(|thread| thread.is_inside.replace(true)));
    work()
}

/// Whether the calling thread is within [`without_samples`].
pub(super) fn is_inside() -> bool {
    THREAD.with(|thread| thread.is_inside.get())
}

/// How far a thread has come. Packed, since each block of the live set has one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(Rust, packed(4))]
pub(super) struct Position {
    /// The thread, by its number.
    thread: u32,
    /// Bytes that the thread has allocated.
    bytes: u64,
}

/// That of the calling thread.
pub(super) fn position() -> Position {
    THREAD.with(|thread| Position {
        thread: thread.number(),
        bytes: thread.ahead.get().wrapping_sub(left()),
    })
}

/// The number of the calling thread, which no other has.
pub(super) fn thread_number() -> u32 {
    THREAD.with(Thread::number)
}

impl Position {
    /// How many bytes a thread has allocated since it was at another position; `None` where that
    /// is of another thread.
    pub(super) fn bytes_since(self, other: Self) -> Option<u64> {
        (self.thread == other.thread).then(|| self.bytes.wrapping_sub(other.bytes))
    }
}

/// Bytes that the calling thread may allocate until it looks again.
fn left() -> u64 {
    // Below 0 where a signal has interrupted the thread before it put back.
    thread_counter::get().max(0) as u64
}

impl Thread {
    /// Begins a countdown of this many bytes, which may all be allocated.
    fn begin(&self, interval: u64) {
        let left = interval.min(PIECE);
        self.set_left(left);
        self.rest.set(interval - left);
    }

    /// Lets the thread allocate this many bytes until it looks again.
    fn set_left(&self, left: u64) {
        let before = self::left();
        thread_counter::set(left as i64);
        let ahead = self.ahead.get();
        self.ahead
            .set(ahead.wrapping_add(left).wrapping_sub(before));
    }

    /// How many bytes from here on are in no sample.
    fn draw(&self, mean: u64) -> u64 {
        match mean {
            0 => u64::MAX,
            1 => 0,
            _ => exponential(random_of_process().share(self.next_draw()), mean),
        }
    }

    /// The index of another random number.
    fn next_draw(&self) -> u64 {
        self.number();
        let draw = self.draws.get().wrapping_add(1);
        self.draws.set(draw);
        draw
    }

    /// The number of the thread, which no other has.
    fn number(&self) -> u32 {
        if self.draws.get() == 0 {
            // A thread draws fewer than 2^40 numbers, and a process has fewer than 2^24 threads.
            let number = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
            self.draws.set(number << 40);
        }
        (self.draws.get() >> 40) as u32
    }
}

/// The random numbers of this process, other ones than in the process that it was forked from.
pub(super) fn random_of_process() -> Random {
    let seed = match SEED.load(Ordering::Relaxed) {
        0 => {
            let seed = Random::new().nth(1) | 1;
            let set = SEED.compare_exchange(0, seed, Ordering::Relaxed, Ordering::Relaxed);
            set.map_or_else(|first| first, |_| seed)
        }
        seed => seed,
    };
    Random::of_seed(seed)
}

/// A number with the exponential distribution of this mean, rounded down, of a share that is evenly
/// spread: it is at least `n` with probability exp(-n / mean) for each whole `n`.
fn exponential(share: f64, mean: u64) -> u64 {
    (-share.ln() * mean as f64) as u64
}

/// Begins the random numbers of the calling thread, and of those to come, with this: they are the
/// same each time.
#[cfg(test)]
pub(super) fn seed(seed: u64) {
    SEED.store(seed | 1, Ordering::Relaxed);
    THREAD.with(|thread| thread.draws.set(1 << 40));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anderson and Darling's measure of how far numbers are from an exponential distribution of
    /// this mean (T. W. Anderson, D. A. Darling: "A test of goodness of fit", 1954).
    fn distance(mut intervals: Vec<f64>, mean: f64) -> f64 {
        intervals.sort_by(f64::total_cmp);
        let n = intervals.len();
        let below = |i: usize| (-(-intervals[i] / mean).exp_m1()).ln();
        let above = |i: usize| -intervals[i] / mean;
        let term = |i: usize| (2 * i + 1) as f64 * (below(i) + above(n - 1 - i));
        -(n as f64) - (0..n).map(term).sum::<f64>() / n as f64
    }

    /// The mean interval that a block is a sample of, if it is one.
    fn sampled(size: u64) -> Option<u64> {
        if passes(size as usize) {
            return None;
        }
        put_back(size as usize);
        due(size as usize)
    }

    /// What 1 in 1,000 samples of such a distribution are beyond.
    const FAR: f64 = 6.0;

    #[test]
    fn the_measure_tells_other_distributions() {
        let even: Vec<f64> = (1..=1000).map(|i| 2.0 * i as f64).collect();
        assert!(distance(even, 1000.0) > 5.0 * FAR);
        let is_exponential = |i: i32| -((f64::from(i) - 0.5) / 1000.0).ln() * 7.0;
        let exponential: Vec<f64> = (1..=1000).map(is_exponential).collect();
        assert!(distance(exponential.clone(), 7.0) < 0.1);
        assert!(distance(exponential, 8.4) > FAR);
    }

    #[test]
    fn intervals_are_those_of_a_poisson_process() {
        for (seed_of_run, mean) in [(1, 512 * 1024), (2, 1 << 40), (3, 100_000)] {
            seed(seed_of_run);
            let draw = |_| THREAD.with(|thread| thread.draw(mean)) as f64 + 0.5;
            let intervals: Vec<f64> = (0..20_000).map(draw).collect();
            let distance = distance(intervals, mean as f64);
            assert!(distance < FAR, "{mean}: {distance}");
        }
    }

    #[test]
    fn bytes_between_samples_are_too_whatever_the_blocks_are() {
        // The bytes up to a sample begin behind the block of the last one, and end in the middle of
        // its own block, somewhere.
        for size in [1, 7, 300, 5000] {
            seed(size);
            let mean = 50_000;
            set_mean(mean);
            let mut intervals = Vec::new();
            let mut bytes = 0;
            while intervals.len() < 1000 {
                match sampled(size).is_some() {
                    true => {
                        let share =
                            Random::of_seed(7).nth(intervals.len() as u64) as f64 / u64::MAX as f64;
                        // Where in the block the interval ended, as a part of those that end there.
                        let within = -(-share * -(-(size as f64) / mean as f64).exp_m1()).ln_1p()
                            * mean as f64;
                        intervals.push(bytes as f64 + within);
                        bytes = 0;
                    }
                    false => bytes += size,
                }
            }
            let distance = distance(intervals, mean as f64);
            assert!(distance < FAR, "{size}: {distance}");
        }
    }

    #[test]
    fn the_first_intervals_of_threads_are_random() {
        seed(5);
        set_mean(100_000);
        let first = || {
            let mut bytes = 0;
            while sampled(10).is_none() {
                bytes += 10;
            }
            bytes as f64 + 5.0
        };
        let first = || std::thread::spawn(first).join().unwrap();
        let intervals: Vec<f64> = (0..300).map(|_| first()).collect();
        let distance = distance(intervals, 100_000.0);
        assert!(distance < FAR, "{distance}");
    }

    #[test]
    fn every_block_or_none_can_be_sampled_from_the_next_on() {
        set_mean(1);
        for size in [1, 8, 1 << 40] {
            assert_eq!(sampled(size), Some(1));
        }
        set_mean(0);
        for size in [1, 8, 1 << 40] {
            assert_eq!(sampled(size), None);
        }
        set_mean(1);
        assert_eq!(sampled(1), Some(1));
    }

    #[test]
    fn another_mean_is_noticed_within_a_piece() {
        set_mean(1 << 50);
        assert_eq!(sampled(1), None);
        std::thread::spawn(|| set_mean(1)).join().unwrap();
        let mut bytes = 0;
        while sampled(64).is_none() {
            bytes += 64;
        }
        // The block that the piece ends in is the last of the mean before.
        assert!(bytes <= PIECE + 64, "{bytes}");
    }

    #[test]
    fn another_mean_loses_no_sample() {
        seed(9);
        let means = [100_000, 400_000];
        set_mean(means[0]);
        let chance = |size: u64, mean: u64| -(-(size as f64) / mean as f64).exp_m1();
        let (size, blocks) = (1000, 1_000_000);
        let (mut found, mut variance) = (0.0, 0.0);
        for block in 0..blocks {
            // As another thread does.
            if block % 65 == 0 {
                MEAN.store(means[block / 65 % 2], Ordering::Relaxed);
            }
            if let Some(mean) = sampled(size) {
                found += 1.0 / chance(size, mean);
                variance += (1.0 / chance(size, mean)).powi(2);
            }
        }
        let away = (found - blocks as f64) / variance.sqrt();
        assert!(away.abs() < 4.0, "{found} of {blocks}: {away}");
    }

    #[test]
    fn a_mean_is_a_signed_number() {
        set_mean(u64::MAX);
        assert_eq!((mean(), sampled(1 << 40)), (i64::MAX as u64, None));
    }

    #[test]
    fn forked_children_take_other_samples_each() {
        set_mean(1 << 40);
        assert_eq!(sampled(1), None);
        let mut rests = Vec::new();
        for _ in 0..3 {
            begin_in_child();
            rests.push(THREAD.with(|thread| (thread.rest.get(), thread.draw(1 << 40))));
        }
        assert!(
            rests[0].0 != rests[1].0 && rests[1].0 != rests[2].0,
            "{rests:?}"
        );
        assert!(
            rests[0].1 != rests[1].1 && rests[1].1 != rests[2].1,
            "{rests:?}"
        );
    }

    #[test]
    fn the_profiles_own_work_is_in_no_sample() {
        set_mean(1);
        let nothing = without_samples(|| (0..100).all(|_| sampled(10).is_none()));
        assert!(nothing);
        assert_eq!(sampled(10), Some(1));
    }
}
