//! The CPU time of the process, without that of the profiler's threads, at any moment of a test.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use sigprof::Profile;

use crate::work::{process_cpu, thread_cpu_of};

/// Reads the CPU clocks again and again, until it is stopped.
pub struct CpuClock {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Reading>>>,
}

/// What the clocks said, no sooner and no later than these.
#[derive(Clone, Copy, Debug)]
struct Reading {
    after: SystemTime,
    before: SystemTime,
    cpu: Duration,
}

/// Threads of the profiler's, by their ids, and the last CPU time of each. A recording is not of
/// the thread that records, which takes more than 2 % of the time in a build without optimization.
#[derive(Debug, Default)]
struct Profilers(HashMap<libc::pid_t, Duration>);

/// Readings of a clock.
#[derive(Debug)]
pub struct Readings(Vec<Reading>);

impl CpuClock {
    pub fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        // The first reading is before whatever the caller does next.
        let mut profilers = Profilers::default();
        let mut readings = vec![Reading::now(&mut profilers)];
        let thread = std::thread::spawn({
            let is_over = is_over.clone();
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    readings.push(Reading::now(&mut profilers));
                    std::thread::sleep(Duration::from_millis(2));
                }
                readings.push(Reading::now(&mut profilers));
                readings
            }
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }

    pub fn stop(mut self) -> Readings {
        self.is_over.store(true, Ordering::Relaxed);
        Readings(self.thread.take().unwrap().join().unwrap())
    }
}

impl Reading {
    fn now(profilers: &mut Profilers) -> Self {
        let after = SystemTime::now();
        let own = profilers.cpu();
        let cpu = process_cpu();
        Self {
            after,
            before: SystemTime::now(),
            cpu: cpu.saturating_sub(own),
        }
    }
}

impl Profilers {
    /// The CPU time of all that there are or were.
    fn cpu(&mut self) -> Duration {
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let task = task.unwrap();
            let tid = task.file_name().to_str().unwrap().parse().unwrap();
            let name = std::fs::read_to_string(task.path().join("comm"));
            // Both fail for a thread that has ended meanwhile.
            if name.is_ok_and(|name| name == "sigprof\n")
                && let Some(cpu) = thread_cpu_of(tid)
            {
                self.0.insert(tid, cpu);
            }
        }
        self.0.values().sum()
    }
}

impl Readings {
    /// The least and the most that the clock went on by from one moment to another.
    pub fn between(&self, from: SystemTime, to: SystemTime) -> (Duration, Duration) {
        // The clock's readings around a moment: what it said then lies between the two.
        let around = |at: SystemTime| {
            let last = self.0.iter().rev().find(|reading| reading.before <= at);
            let next = self.0.iter().find(|reading| reading.after >= at);
            (last.unwrap().cpu, next.unwrap().cpu)
        };
        let ((from_low, from_high), (to_low, to_high)) = (around(from), around(to));
        (
            to_low.saturating_sub(from_high),
            to_high.saturating_sub(from_low),
        )
    }

    /// Checks that a profile's total is within 2 % of what the process's clock, without the
    /// profiler's threads, went on by between the profile's first and last moment.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn check(&self, profile: &Profile, what: &str) {
        let from = SystemTime::UNIX_EPOCH + Duration::from_nanos(profile.time_nanos as u64);
        let to = from + Duration::from_nanos(profile.duration_nanos as u64);
        let (low, high) = self.between(from, to);
        let index = (profile.sample_types().iter()).position(|t| t.r#type == "cpu");
        let total = Duration::from_nanos(profile.total(index.unwrap()) as u64);
        assert!(
            total.as_secs_f64() >= low.as_secs_f64() * 0.98
                && total.as_secs_f64() <= high.as_secs_f64() * 1.02,
            "{what}: {total:?} in the profile, and from {low:?} to {high:?} by the clock:\n{profile}"
        );
    }
}
