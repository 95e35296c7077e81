//! A lock that is held for a known time, as often as is known: the profile has as many waits of the
//! waiting function, which took as long as its own thread has measured.

use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sigprof::contention;

use crate::below::{sums_below, sums_of};

pub const ROUNDS: usize = 50;

/// How long the lock is held once its waiter sleeps.
const HELD: Duration = Duration::from_millis(2);

/// Calls a function while the lock is held.
pub trait Lock: Sync {
    fn with(&self, work: impl FnOnce());
}

impl Lock for std::sync::Mutex<()> {
    fn with(&self, work: impl FnOnce()) {
        let _guard = self.lock().unwrap();
        work();
    }
}

impl Lock for std::sync::RwLock<()> {
    fn with(&self, work: impl FnOnce()) {
        let _guard = self.write().unwrap();
        work();
    }
}

impl Lock for parking_lot::Mutex<()> {
    fn with(&self, work: impl FnOnce()) {
        let _guard = self.lock();
        work();
    }
}

impl Lock for parking_lot::RwLock<()> {
    fn with(&self, work: impl FnOnce()) {
        let _guard = self.write();
        work();
    }
}

/// What the two threads have measured, in nanoseconds: the holder the time in which the waiter
/// slept, the waiter that of its calls.
#[derive(Debug, Default)]
pub struct Measured {
    least: AtomicU64,
    most: AtomicU64,
}

/// Where the two threads are: each round has two stages.
struct Stage(AtomicUsize);

impl Stage {
    fn reach(&self, stage: usize) {
        self.0.store(stage, Ordering::Release);
    }

    /// Without a futex, which would be in the profile, too.
    fn wait_for(&self, stage: usize) {
        while self.0.load(Ordering::Acquire) < stage {
            std::thread::yield_now();
        }
    }
}

/// One thread waits for the other so many times.
pub fn contend(lock: &impl Lock, rounds: usize) -> Measured {
    let measured = Measured::default();
    let (stage, tid) = (Stage(AtomicUsize::new(0)), AtomicI32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            tid.store(current_tid(), Ordering::Release);
            for round in 0..rounds {
                stage.wait_for(2 * round + 1);
                let begin = Instant::now();
                waits_for_lock(lock);
                add(&measured.most, begin.elapsed());
                stage.reach(2 * round + 2);
            }
        });
        for round in 0..rounds {
            holds_lock(lock, || {
                stage.reach(2 * round + 1);
                add(&measured.least, sleeps_for(&tid, HELD));
            });
            stage.wait_for(2 * round + 2);
        }
    });
    measured
}

#[inline(never)]
fn waits_for_lock(lock: &impl Lock) {
    lock.with(|| {
        std::hint::black_box(());
    });
    stays_on_the_stack();
}

#[inline(never)]
fn holds_lock(lock: &impl Lock, work: impl FnOnce()) {
    lock.with(work);
    stays_on_the_stack();
}

/// What comes last in a function may be a jump.
pub fn stays_on_the_stack() {
    std::hint::black_box(());
}

fn add(sum: &AtomicU64, time: Duration) {
    sum.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
}

pub fn current_tid() -> i32 {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}

/// Waits until a thread has slept once for so long, and says for how long it did. A lock of its
/// allocator's can hold a thread up on its way, for a moment.
fn sleeps_for(tid: &AtomicI32, time: Duration) -> Duration {
    loop {
        // It says who it is at its beginning.
        while !sleeps(tid.load(Ordering::Acquire)) {
            std::thread::yield_now();
        }
        let tid = tid.load(Ordering::Acquire);
        let (begin, sleeps_before) = (Instant::now(), sleeps_so_far(tid));
        std::thread::sleep(time);
        let slept = begin.elapsed();
        if sleeps(tid) && sleeps_so_far(tid) == sleeps_before {
            return slept;
        }
    }
}

/// How often a thread of this process has gone to sleep.
fn sleeps_so_far(tid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).ok()?;
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}

/// Whether a thread of this process sleeps.
pub fn sleeps(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
    stat.is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('S'))
    })
}

pub fn assert_waits_are_seen(lock: &impl Lock, kind: &str) {
    assert_watch_sees_waits(contention::watch_process().unwrap(), lock, kind);
}

pub fn assert_watch_sees_waits(watch: contention::Watch, lock: &impl Lock, kind: &str) {
    contention::set_sample_interval(Duration::from_nanos(1));
    let measured = contend(lock, ROUNDS);
    drop(watch);
    let bounds = [measured.least, measured.most].map(|ns| ns.into_inner() as i64);
    let (waiters, holders) = (contention::profile(), contention::holders());
    for (profile, function, other) in [
        (waiters.unwrap(), "waits_for_lock", "holds_lock"),
        (holders.unwrap(), "holds_lock", "waits_for_lock"),
    ] {
        let [count, ns] = sums_below(&profile, function);
        assert_eq!(count, ROUNDS as i64, "{function}: {}", profile.top(20));
        let is_right = (bounds[0]..=bounds[1]).contains(&ns);
        assert!(is_right, "{function}: {ns} ns, {bounds:?}");
        assert_eq!(sums_below(&profile, other), [0, 0]);
        let of_kind = sums_of(&profile, function, kind);
        assert_eq!(of_kind, [count, ns], "{function}: not all are of a {kind}");
    }
}

#[test]
fn waits_for_mutexes_of_the_standard_library_are_seen() {
    assert_waits_are_seen(&std::sync::Mutex::new(()), "mutex");
}

#[test]
fn waits_for_reader_writer_locks_of_the_standard_library_are_seen() {
    assert_waits_are_seen(&std::sync::RwLock::new(()), "rwlock");
}

#[test]
fn waits_for_mutexes_of_parking_lot_are_seen() {
    assert_waits_are_seen(&parking_lot::Mutex::new(()), "mutex");
}

#[test]
fn waits_for_reader_writer_locks_of_parking_lot_are_seen() {
    assert_waits_are_seen(&parking_lot::RwLock::new(()), "rwlock");
}

#[test]
fn sampled_waits_agree_with_all_of_them() {
    let interval = 10 * HELD;
    let watch = contention::watch_process().unwrap();
    contention::set_sample_interval(interval);
    let lock = std::sync::Mutex::new(());
    let mut measured = [0, 0];
    const TIMES: usize = 8;
    for _ in 0..TIMES {
        let times = contend(&lock, ROUNDS);
        measured[0] += times.least.into_inner();
        measured[1] += times.most.into_inner();
    }
    drop(watch);
    // Waits of at least `HELD` are sampled with at least this probability.
    let p = HELD.as_secs_f64() / interval.as_secs_f64();
    let error = ((1.0 - p) / p / (TIMES * ROUNDS) as f64).sqrt();
    let bounds = [
        measured[0] as f64 * (1.0 - 5.0 * error),
        measured[1] as f64 * (1.0 + 5.0 * error),
    ];
    for (profile, function) in [
        (contention::profile(), "waits_for_lock"),
        (contention::holders(), "holds_lock"),
    ] {
        let [count, ns] = sums_below(&profile.unwrap(), function);
        let count = count as f64 / (TIMES * ROUNDS) as f64;
        let is_right = (count - 1.0).abs() <= 5.0 * error;
        assert!(is_right, "{function}: {count}, {error}");
        let is_right = (bounds[0]..=bounds[1]).contains(&(ns as f64));
        assert!(is_right, "{function}: {ns} ns, {bounds:?}");
    }
}
