//! Storms: code and stacks that come and go, and unwinders of other people's at work, while all
//! threads are sampled at 10,000 Hz.
//!
//! Each recording runs in a process of its own, for 3 s, as many times more as `SIGPROF_SOAK` says.
//! `--nocapture` shows the figures: which stacks were cut short, and where.
#![cfg(all(target_arch = "x86_64", feature = "symbolize"))]

#[path = "../support/compile.rs"]
mod compile;
#[path = "../support/mappings.rs"]
mod mappings;
#[path = "../support/measured.rs"]
mod measured;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/work.rs"]
mod work;

mod judge;
mod libraries;
mod memory;
mod unwinders;

use std::thread;
use std::time::{Duration, Instant};

use judge::{Expected, judge};
use measured::{Measured, assert_exact};
use process::{child, figure, soak, succeed_and_show};
use sigprof::cpu::{Clock, Profiler};

/// What the threads of a storm are given.
struct Weather {
    end: Instant,
    libraries: libraries::Libraries,
}

impl Weather {
    fn lasts(&self) -> bool {
        Instant::now() < self.end
    }
}

/// A thread of the storm, whose name begins its samples' label: what it does, how often it did, and
/// what its stacks have to be.
struct Storm {
    name: &'static str,
    run: fn(&Weather) -> u64,
    expected: Expected,
}

const STORMS: [Storm; 11] = [
    libraries::OPENING,
    libraries::KEEPING,
    memory::MAPPING,
    memory::MAKING_FRAMES,
    memory::MAKING_FRAMELESS,
    memory::COROUTINES,
    memory::SMALL_STACKS,
    unwinders::PANICKING,
    unwinders::THROWING,
    unwinders::CAPTURING,
    unwinders::WALKING,
];

#[test]
fn stacks_are_whole_in_a_storm_by_cpu_time() {
    succeed_and_show(&mut child("child_in_a_storm"));
}

#[test]
fn stacks_are_whole_in_a_storm_by_elapsed_time() {
    succeed_and_show(child("child_in_a_storm").env("SIGPROF_STORM_BY", "elapsed time"));
}

#[test]
#[ignore = "a child process"]
fn child_in_a_storm() {
    let by_elapsed_time = std::env::var_os("SIGPROF_STORM_BY").is_some();
    let clock = match by_elapsed_time {
        true => Clock::Wall,
        false => Clock::Cpu,
    };
    std::panic::set_hook(Box::new(|_| {}));
    let directory = tempfile::tempdir().unwrap();
    let libraries = libraries::Libraries::compile(directory.path());
    let measured = Measured::start(Profiler::new().frequency_hz(10_000).clock(clock));
    let weather = Weather {
        end: Instant::now() + Duration::from_secs(2).mul_f64(soak()),
        libraries,
    };
    let turns: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = STORMS
            .iter()
            .map(|storm| {
                thread::Builder::new()
                    .name(storm.name.to_owned())
                    .spawn_scoped(scope, || (storm.run)(&weather))
                    .unwrap()
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    drop(std::panic::take_hook());
    let outcome = measured.stop();
    for line in outcome.stats.comments() {
        figure!("{line}");
    }
    for (storm, turns) in STORMS.iter().zip(turns) {
        assert!(turns > 0, "{} did nothing", storm.name);
        let verdict = judge(&outcome.profile, storm.name, &storm.expected, turns);
        match by_elapsed_time {
            true => verdict.assert_mostly_right(storm.name, &storm.expected),
            false => verdict.assert(storm.name, &storm.expected),
        }
    }
    if !by_elapsed_time {
        figure!("total {:.4} of the process's clock", outcome.ratio());
        assert_exact(&outcome.stats, &outcome.profile);
        outcome.assert_total();
    }
    assert_eq!(outcome.stats.truncated.depth, 0, "{}", outcome.stats);
    // The flusher can be late where the loader's lock is held, or the CPUs are others';
    // `assert_exact` has each lost tick accounted for.
    let lost = outcome.stats.lost.total();
    assert!(lost * 1000 <= outcome.stats.ticks, "{}", outcome.stats);
    assert_eq!(outcome.stats.foreign_signals, 0, "{}", outcome.stats);
}
