//! What watching locks costs: a lock that is free, a wait that is recorded, and programs that do
//! and do not contend. Each is measured in turn with what it is compared with, in one process;
//! figures are medians. And what is told of a lock that is waited for more often than waits can be
//! timed. Arguments choose: `free`, `wait`, `calm`, `busy`, `truth`.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use sigprof::contention::{self, Watch};

mod support;
#[path = "../tests/support/work.rs"]
mod work;

use support::descend;
use work::{StopOnDrop, process_cpu, thread_cpu};

/// How much is measured.
struct Amount {
    /// Pairs of what is compared.
    pairs: u32,
    /// How long a program runs before it is watched, or not watched, again.
    phase: Duration,
}

const ALL: Amount = Amount {
    pairs: 301,
    phase: Duration::from_millis(60),
};
/// `cargo test` only wants to see that this works.
const LEAST: Amount = Amount {
    pairs: 1,
    phase: Duration::from_millis(5),
};

/// What is measured, by the argument that chooses it.
type Part = (&'static str, fn(&Amount));

const PARTS: [Part; 5] = [
    ("free", free_locks),
    ("wait", recorded_waits),
    ("calm", calm_programs),
    ("busy", busy_programs),
    ("truth", sampled_delays),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |part: &str| arguments.iter().any(|argument| argument == part);
    let amount = match is_chosen("--bench") {
        true => ALL,
        false => LEAST,
    };
    let chooses = PARTS.iter().any(|&(name, _)| is_chosen(name));
    for (name, part) in PARTS {
        if !chooses || is_chosen(name) {
            part(&amount);
        }
    }
}

/// Costs of the same work with something and without.
#[derive(Default)]
struct Pairs {
    with: Vec<f64>,
    without: Vec<f64>,
}

impl Pairs {
    /// Measures so many pairs. Which one is first takes turns: a machine that grows slower or
    /// faster meanwhile favours none.
    fn measure(count: u32, mut cost: impl FnMut(bool) -> f64) -> Self {
        let mut pairs = Self::default();
        for pair in 0..count {
            let first = pair % 2 == 0;
            for is_with in [first, !first] {
                let costs = match is_with {
                    true => &mut pairs.with,
                    false => &mut pairs.without,
                };
                costs.push(cost(is_with));
            }
        }
        pairs
    }

    /// The medians, with it and without.
    fn medians(&self) -> [f64; 2] {
        [&self.with, &self.without].map(|costs| median(costs.clone()))
    }

    /// The median of what one costs more than the other.
    fn added(&self) -> f64 {
        let costs = self.with.iter().zip(&self.without);
        median(costs.map(|(with, without)| with - without).collect())
    }

    /// The same in percent; and its standard error, if the pairs are spread as by chance.
    fn added_percent(&self) -> [f64; 2] {
        let costs = self.with.iter().zip(&self.without);
        let added: Vec<f64> = costs
            .map(|(with, without)| (with / without - 1.0) * 100.0)
            .collect();
        let middle = median(added.clone());
        let deviations = added.iter().map(|percent| (percent - middle).abs());
        // Of the normal distribution: a standard deviation by the median of deviations, and the
        // standard error of a median by that of a mean.
        let deviation = 1.4826 * median(deviations.collect());
        [middle, 1.2533 * deviation / (added.len() as f64).sqrt()]
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of the calling thread that a repeated work takes, in nanoseconds each.
#[inline(always)]
fn thread_ns(times: u32, mut work: impl FnMut()) -> f64 {
    let begin = thread_cpu();
    for _ in 0..times {
        work();
    }
    (thread_cpu() - begin).as_nanos() as f64 / f64::from(times)
}

/// Watches the process, if it is to be.
fn watched(is_watched: bool) -> Option<Watch> {
    is_watched.then(|| contention::watch_process().unwrap())
}

/// A lock and its unlock where nobody else wants it: sigprof's beside parking_lot's, and those of
/// the C library while it is watched beside the same while it is not.
fn free_locks(amount: &Amount) {
    const BATCH: u32 = 100_000;
    let pairs = amount.pairs;
    let (own, its) = (
        contention::Mutex::new(0_u64),
        parking_lot::Mutex::new(0_u64),
    );
    let (own_rw, its_rw) = (
        contention::RwLock::new(0_u64),
        parking_lot::RwLock::new(0_u64),
    );
    for is_watched in [false, true] {
        let _watch = watched(is_watched);
        let state = if is_watched { "watched" } else { "unwatched" };
        let mutexes = Pairs::measure(pairs, |is_own| match is_own {
            true => thread_ns(BATCH, || *black_box(&own).lock() += 1),
            false => thread_ns(BATCH, || *black_box(&its).lock() += 1),
        });
        print_free("contention::Mutex over parking_lot's", state, &mutexes);
        let rwlocks = Pairs::measure(pairs, |is_own| match is_own {
            true => thread_ns(BATCH, || drop(black_box(black_box(&own_rw).read()))),
            false => thread_ns(BATCH, || drop(black_box(black_box(&its_rw).read()))),
        });
        print_free(
            "contention::RwLock, read, over parking_lot's",
            state,
            &rwlocks,
        );
    }
    let std = std::sync::Mutex::new(0_u64);
    let pthread = Pthread::new();
    let by_watch = |work: &mut dyn FnMut() -> f64| {
        Pairs::measure(pairs, |is_watched| {
            let _watch = watched(is_watched);
            work()
        })
    };
    let pairs = by_watch(&mut || thread_ns(BATCH, || *black_box(&std).lock().unwrap() += 1));
    print_free("std::sync::Mutex", "watched over unwatched", &pairs);
    let pairs = by_watch(&mut || {
        thread_ns(BATCH, || {
            pthread.lock();
            pthread.unlock();
        })
    });
    print_free("pthread_mutex_lock", "watched over unwatched", &pairs);
}

fn print_free(what: &str, state: &str, pairs: &Pairs) {
    let [with, without] = pairs.medians();
    println!(
        "a free lock and its unlock, {what}, {state}: {:+.2} ns ({with:.2} ns, {without:.2} ns)",
        pairs.added()
    );
}

/// A wait that is over at once, and so is all cost: each is recorded, or none is watched.
fn recorded_waits(amount: &Amount) {
    /// In a tenth of a second: fewer than may be recorded in one.
    const BATCH: u32 = 200;
    const DEPTH: u64 = 32;
    let pairs = amount.pairs.div_ceil(6);
    contention::set_sample_interval(Duration::from_nanos(1));
    let held = Pthread::new();
    held.lock();
    // Before any time: the C library gives up without a system call.
    let no_time = libc::timespec {
        tv_sec: -1,
        tv_nsec: 0,
    };
    let wait = || {
        // SAFETY: the mutex is initialized, and the time outlives the call.
        let answer = unsafe { libc::pthread_mutex_timedlock(held.0.get(), &raw const no_time) };
        assert_eq!(answer, libc::ETIMEDOUT);
    };
    let waits = || {
        let mut ns = 0.0;
        descend(DEPTH, &mut || ns = thread_ns(BATCH, wait));
        // More are granted meanwhile.
        std::thread::sleep(Duration::from_millis(100));
        ns
    };
    let recorded = Pairs::measure(pairs, |is_watched| {
        let _watch = watched(is_watched);
        // Rules of what is on the stack are compiled, and it is in caches.
        waits();
        waits()
    });
    contention::set_sample_interval(Duration::ZERO);
    let unsampled = Pairs::measure(pairs, |is_watched| {
        let _watch = watched(is_watched);
        waits();
        waits()
    });
    contention::set_sample_interval(Duration::from_micros(100));
    let share = all_waits() as f64 / f64::from(2 * pairs * BATCH) * 100.0;
    let [with, without] = recorded.medians();
    println!(
        "a wait at depth {DEPTH} that is recorded: {:+.0} ns ({with:.0} ns, {without:.0} ns; \
         counted: {share:.1} %)",
        recorded.added()
    );
    let [with, without] = unsampled.medians();
    println!(
        "a wait that is watched and not sampled: {:+.0} ns ({with:.0} ns, {without:.0} ns)",
        unsampled.added()
    );
}

/// Waits that were counted so far.
fn all_waits() -> i64 {
    let profile = contention::all_waits();
    profile.map_or(0, |profile| profile.total(0))
}

/// What a program's threads do again and again. Each is given its number, and what becomes true
/// when it is to end.
type Turn<'w> = &'w (dyn Fn(usize, &AtomicBool) + Sync);

/// CPU time that a program takes for each turn, while it is watched beside while it is not.
fn program(what: &str, amount: &Amount, threads: usize, turn: Turn<'_>) {
    const TURNS: u64 = 100;
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let waits_before = all_waits();
    let mut watched_for = Duration::ZERO;
    let pairs = std::thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        let (done, is_over) = (&done, &is_over);
        for thread in 0..threads {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    for _ in 0..TURNS {
                        turn(thread, is_over);
                    }
                    done.fetch_add(TURNS, Ordering::Relaxed);
                }
            });
        }
        Pairs::measure(amount.pairs, |is_watched| {
            let watch = watched(is_watched);
            let begun = Instant::now();
            // Rules of what is loaded are compiled meanwhile, which a watch begins with.
            std::thread::sleep(amount.phase / 2);
            let now = || (process_cpu(), done.load(Ordering::Relaxed));
            let (begin, before) = now();
            std::thread::sleep(amount.phase);
            let (end, after) = now();
            if watch.is_some() {
                watched_for += begun.elapsed();
            }
            (end - begin).as_nanos() as f64 / (after - before).max(1) as f64
        })
    });
    let [added, error] = pairs.added_percent();
    println!(
        "{what}: {added:+.2} ± {error:.2} % CPU time; {:.0} waits a second",
        (all_waits() - waits_before) as f64 / watched_for.as_secs_f64(),
    );
}

/// Each thread has locks of its own.
fn calm_programs(amount: &Amount) {
    #[derive(Default)]
    struct Own {
        std: std::sync::Mutex<BTreeMap<u64, u64>>,
        parking_lot: parking_lot::Mutex<u64>,
    }
    const KEYS: u64 = 1000;
    let all: [Own; 2] = Default::default();
    program("locks that are free", amount, all.len(), &|thread, _| {
        let own = &all[thread];
        let mut key = own.parking_lot.lock();
        *key = (*key * 5 + 1) % KEYS;
        *own.std.lock().unwrap().entry(*key).or_default() += 1;
    });
}

/// Two threads that want one lock all the time: each turn is one wait, whatever the lock costs. A
/// program in which threads come as they like contends more often the slower its locks are.
fn busy_programs(amount: &Amount) {
    // In a spin's reach,
    const SHORT: u64 = 12;
    // and beyond it.
    const LONG: u64 = 800;
    let std = std::sync::Mutex::new(());
    let lock = || std.lock().unwrap();
    handed_over("one std::sync::Mutex", amount, LONG, lock, drop);
    let parking_lot = parking_lot::Mutex::new(());
    handed_over(
        "one parking_lot::Mutex",
        amount,
        LONG,
        || parking_lot.lock(),
        drop,
    );
    let own = contention::Mutex::new(());
    handed_over("one contention::Mutex", amount, SHORT, || own.lock(), drop);
    let pthread = Pthread::new();
    handed_over(
        "one pthread_mutex_t",
        amount,
        LONG,
        || pthread.lock(),
        |()| pthread.unlock(),
    );
    for (how, does_vary) in [("hammered", true), ("hammered in step", false)] {
        let what = |lock| format!("{lock}, {how}");
        hammered(
            &what("a contention::Mutex"),
            amount,
            does_vary,
            || own.lock(),
            drop,
        );
        hammered(
            &what("a pthread_mutex_t"),
            amount,
            does_vary,
            || pthread.lock(),
            |()| pthread.unlock(),
        );
    }
}

/// Two threads that do nothing but to lock and unlock, with some work in between: up to six times
/// as long without the lock as with it, or as long each time. In step with each other, threads
/// sleep or do not for a few nanoseconds more or less.
fn hammered<G>(
    what: &str,
    amount: &Amount,
    does_vary: bool,
    lock: impl Fn() -> G + Sync,
    unlock: impl Fn(G) + Sync,
) {
    const WORK: u64 = 100;
    let work = |turns: u64| (0..turns).for_each(|n| _ = black_box(n));
    let rounds = [const { CachePadded::new(AtomicU64::new(0)) }; 2];
    program(what, amount, 2, &|thread, _| {
        let round = rounds[thread].fetch_add(1, Ordering::Relaxed);
        let guard = lock();
        work(WORK);
        unlock(guard);
        work(match does_vary {
            true => share_of(6 * WORK, 2 * round + thread as u64),
            false => WORK,
        });
    });
}

/// A part of a number, another one each round.
fn share_of(most: u64, round: u64) -> u64 {
    // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
    let share = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (share * most) >> 32
}

/// One thread has the lock when the other one begins to wait for it, and keeps it for up to so many
/// turns of a spin: for another time each round, since a lock spins in steps, and always the same
/// time would be just within a step or just beyond.
fn handed_over<G>(
    what: &str,
    amount: &Amount,
    most_held: u64,
    lock: impl Fn() -> G + Sync,
    unlock: impl Fn(G) + Sync,
) {
    let [has_it, wants_it, had_it] = [const { AtomicU64::new(0) }; 3];
    let rounds = [const { CachePadded::new(AtomicU64::new(0)) }; 2];
    program(what, amount, 2, &|thread, is_over| {
        let wait_for = |stage: &AtomicU64, round| {
            while stage.load(Ordering::Acquire) < round && !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let round = rounds[thread].load(Ordering::Relaxed) + 1;
        rounds[thread].store(round, Ordering::Relaxed);
        if thread == 0 {
            let guard = lock();
            has_it.store(round, Ordering::Release);
            wait_for(&wants_it, round);
            (0..share_of(most_held, round)).for_each(|_| std::hint::spin_loop());
            unlock(guard);
            wait_for(&had_it, round);
        } else {
            wait_for(&has_it, round);
            wants_it.store(round, Ordering::Release);
            unlock(lock());
            had_it.store(round, Ordering::Release);
        }
    });
}

/// Two threads that lock and unlock one lock all the time, whose waits are sampled: the delay that
/// is told beside what the threads measure by clocks around each call. These measure more: each
/// call is in it, and reading the clock.
fn sampled_delays(amount: &Amount) {
    /// Turns of a spin with the lock.
    const HELD: u32 = 400;
    let own = contention::Mutex::new(());
    told("one contention::Mutex", amount, HELD, || own.lock(), drop);
    let parking_lot = parking_lot::Mutex::new(());
    told(
        "one parking_lot::Mutex",
        amount,
        HELD,
        || parking_lot.lock(),
        drop,
    );
    let pthread = Pthread::new();
    let lock = || pthread.lock();
    told("one pthread_mutex_t", amount, HELD, lock, |()| {
        pthread.unlock()
    });
}

fn told<G>(
    what: &str,
    amount: &Amount,
    held: u32,
    lock: impl Fn() -> G + Sync,
    unlock: impl Fn(G) + Sync,
) {
    const PARTS: u32 = 11;
    let is_over = AtomicBool::new(false);
    let (calls, measured) = (AtomicU64::new(0), AtomicU64::new(0));
    let totals = || {
        let of = |profile: sigprof::Result<sigprof::Profile>| {
            profile.map_or([0; 2], |profile| [profile.total(0), profile.total(1)])
        };
        let [waits, delay] = of(contention::all_waits());
        let [_, of_holders] = of(contention::holders());
        [
            waits,
            delay,
            of_holders,
            calls.load(Ordering::Relaxed) as i64,
        ]
        .map(|count| count as f64)
    };
    let watch = contention::watch_process().unwrap();
    let parts = std::thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    let guard = lock();
                    let ns = begin.elapsed().as_nanos() as u64;
                    (0..held).for_each(|_| std::hint::spin_loop());
                    unlock(guard);
                    measured.fetch_add(ns, Ordering::Relaxed);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Shares are set by what has come before.
        std::thread::sleep(amount.phase * 5);
        (0..amount.pairs.min(PARTS))
            .map(|_| {
                let (before, begin) = (totals(), measured.load(Ordering::Relaxed));
                std::thread::sleep(amount.phase * 10);
                let (after, end) = (totals(), measured.load(Ordering::Relaxed));
                let [waits, delay, of_holders, calls] =
                    std::array::from_fn(|nth| after[nth] - before[nth]);
                let own = (end - begin) as f64;
                [waits / calls, delay / own, of_holders / own]
            })
            .collect::<Vec<_>>()
    });
    drop(watch);
    let [waits, delay, of_holders] =
        [0, 1, 2].map(|nth| median(parts.iter().map(|part| part[nth] * 100.0).collect()));
    println!(
        "{what}, of whose waits some are timed: {delay:.0} % of the delay that its threads \
         measure, {of_holders:.0} % by holders; {waits:.1} % of the calls have waited"
    );
}

/// A mutex of the C library.
struct Pthread(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the C library's functions on it may be called by any thread.
unsafe impl Sync for Pthread {}

impl Pthread {
    fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    #[inline(always)]
    fn lock(&self) {
        // SAFETY: it is initialized.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    #[inline(always)]
    fn unlock(&self) {
        // SAFETY: the calling thread has locked it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}
