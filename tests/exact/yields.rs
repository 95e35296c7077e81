//! The yield: of the CPU time of threads, by their own clocks, how much is in stacks.

use std::time::Duration;

use sigprof::cpu::Engine;

use crate::common::{
    KERNEL, Load, MS, Measured, Outcome, all_or, argument, become_nobody, deviation,
    engine_argument, figure, has_perf_events, hz_argument, is_root, profiler, ratio, run_child,
    run_threads, run_threads_with, soak, sum,
};
use crate::process::skip;

/// How far a yield may be off.
const TOLERANCE: f64 = 0.01;

fn run_case(engine: &str, hz: u32, threads: u32, user: &str) {
    run_child(
        "yields::child_of_known_yield",
        &[
            ("ENGINE", engine),
            ("HZ", &hz.to_string()),
            ("THREADS", &threads.to_string()),
            ("USER", user),
        ],
    );
}

#[test]
fn perf_events_yield_what_threads_use_at_100_hz() {
    if has_perf_events() {
        for &threads in all_or(&[8], &[1, 2, 8, 64]) {
            run_case("perf", 100, threads, "same");
        }
    }
}

#[test]
fn perf_events_yield_what_threads_use_at_1000_hz() {
    if has_perf_events() {
        for &threads in all_or(&[1, 64], &[1, 2, 8, 64]) {
            run_case("perf", 1000, threads, "same");
        }
    }
}

#[test]
fn perf_events_yield_what_threads_use_at_10000_hz() {
    if has_perf_events() {
        for &threads in all_or(&[8, 64], &[1, 2, 8, 64]) {
            run_case("perf", 10_000, threads, "same");
        }
    }
}

#[test]
fn timers_yield_what_threads_use_at_100_hz() {
    for &threads in all_or(&[8], &[1, 2, 8, 64]) {
        run_case("timer", 100, threads, "same");
    }
}

#[test]
fn timers_yield_what_threads_use_at_1000_hz() {
    for &threads in all_or(&[1, 64], &[1, 2, 8, 64]) {
        run_case("timer", 1000, threads, "same");
    }
}

#[test]
fn timers_yield_what_threads_use_at_10000_hz() {
    for &threads in all_or(&[8, 64], &[1, 2, 8, 64]) {
        run_case("timer", 10_000, threads, "same");
    }
}

#[test]
fn timers_of_a_user_without_privileges_yield_the_same() {
    for &hz in all_or(&[1000], &[100, 1000]) {
        run_case("auto", hz, 8, "nobody");
    }
}

/// Threads of each kind of work in turn, each long enough that what sampling rounds is well below
/// the tolerance.
#[test]
#[ignore = "a child process"]
fn child_of_known_yield() {
    let (engine, hz) = (engine_argument(), hz_argument());
    let threads: u32 = argument("THREADS").unwrap().parse().unwrap();
    if argument("USER").as_deref() == Some("nobody") {
        become_nobody();
    }
    Load::prepare();
    let (outcome, yields) = measure(engine, hz, threads);
    assert!(
        yields.are_exact(hz, outcome.stolen),
        "{yields:.4?}\n{}",
        outcome.stats
    );
    outcome.assert_total();
}

/// Of the CPU time of threads, what is in stacks.
#[derive(Debug)]
struct Yields {
    is_timer: bool,
    ran: Duration,
    /// How far it is off, as a part.
    all: f64,
    by_load: Vec<(String, f64)>,
}

impl Yields {
    fn are_exact(&self, hz: u32, stolen: Duration) -> bool {
        // Events see the time that a hypervisor took, or miss ticks of it.
        let of_stolen = ratio(stolen, self.ran);
        // All of it may be taken from one kind of work, which has its part of the time.
        let of_stolen_from_one = of_stolen * self.by_load.len() as f64;
        // One kind of work at 100 Hz is too few samples to be judged by 1 %, and one kind with
        // timers has too few threads.
        let tolerance = match self.is_timer {
            true => 2.0 * TOLERANCE,
            false => TOLERANCE,
        };
        let mut by_load = self.by_load.iter();
        self.all <= TOLERANCE + of_stolen
            && (hz < 1000 || by_load.all(|&(_, off)| off <= tolerance + of_stolen_from_one))
    }
}

fn measure(engine: Engine, hz: u32, threads: u32) -> (Outcome, Yields) {
    let measured = Measured::start(profiler(engine, hz));
    let is_timer = measured.recording().stats().engine == Engine::ThreadTimer;
    let loads = match threads {
        1 | 2 => &Load::ALL[..1],
        _ => &Load::ALL[..],
    };
    let time = time_of_thread(hz, threads);
    let threads_of = (0..threads).map(|i| {
        let load = loads[i as usize % loads.len()];
        (format!("{load:?}-{i}"), load, time)
    });
    let ran = run_threads_with(measured.recording().stats().engine, threads_of);
    let outcome = measured.stop();
    let times = outcome.times();
    let off = |prefix: &str| {
        // Names of threads begin with the loads'.
        let ran = ran.iter().filter(|ran| ran.name.starts_with(prefix));
        ratio(
            deviation(times.of_threads(prefix, ""), ran.clone()),
            sum(ran),
        )
    };
    let all: Duration = loads
        .iter()
        .map(|load| times.of_threads(&format!("{load:?}"), ""))
        .sum();
    let yields = Yields {
        is_timer,
        ran: sum(&ran),
        all: ratio(deviation(all, &ran), sum(&ran)),
        by_load: loads
            .iter()
            .map(|load| (format!("{load:?}"), off(&format!("{load:?}"))))
            .collect(),
    };
    figure!(
        "yield {:.4}, off by {:.4}, of {threads} threads at {hz} Hz, {:?} ({:.1?} of CPU, total {:.4}, own {:.1?}, stolen {:?}, others {:?}) {:.4?}",
        ratio(all, yields.ran),
        yields.all,
        outcome.stats.engine,
        yields.ran,
        outcome.ratio(),
        outcome.stats.own_cpu,
        outcome.stolen,
        outcome.others,
        yields.by_load,
    );
    (outcome, yields)
}

/// A thread's count is its time in periods, up or down: by 0.4 in the mean square, which grows with
/// the root of the threads.
fn time_of_thread(hz: u32, threads: u32) -> Duration {
    let period = Duration::from_secs(1) / hz;
    let noise = period.mul_f64(0.41 * f64::from(threads).sqrt()) / threads;
    // 3 sigma in 0.8 %; and so long that the beginning of a thread does not count.
    (noise * 3 * 125)
        .max(if threads > 8 { 50 * MS } else { 300 * MS })
        .mul_f64(soak())
}

#[test]
fn perf_events_of_user_time_leave_the_kernels_in_a_frame() {
    if !is_root() {
        eprintln!("this user may see the kernel or not: both are good");
    }
    run_child("yields::child_that_sees_user_time_alone", &[]);
}

#[test]
#[ignore = "a child process"]
fn child_that_sees_user_time_alone() {
    become_nobody();
    Load::prepare();
    let Ok(recording) = profiler(Engine::PerfEvent, 1000).start() else {
        return skip("perf events are not allowed to this user at all");
    };
    drop(recording);
    let measured = Measured::start(profiler(Engine::PerfEvent, 1000));
    let time = (300 * MS).mul_f64(soak());
    let ran = run_threads(Load::ALL.map(|load| (format!("{load:?}"), load, time)));
    let outcome = measured.stop();
    let times = outcome.times();
    for ran in &ran {
        let (user, kernel) = (
            times.of_threads(&ran.name, ""),
            times.of_threads(&ran.name, KERNEL),
        );
        figure!(
            "{}: user {:.4}, kernel {:.4} of {:?}, stolen {:?}",
            ran.name,
            ratio(user, ran.cpu),
            ratio(kernel, ran.cpu),
            ran.cpu,
            outcome.stolen
        );
        let all = ratio(user + kernel, ran.cpu);
        // Such an event goes on while a hypervisor keeps the CPU to itself, and no clock of user
        // time tells by how much.
        let most = 1.0 + TOLERANCE + ratio(outcome.stolen, ran.cpu);
        assert!(
            all >= 1.0 - TOLERANCE && all <= most,
            "{}: {all:.4}, at most {most:.4}\n{}",
            ran.name,
            outcome.stats
        );
    }
    if outcome.stats.cpu.kernel.is_zero() {
        return skip("this user may see the kernel");
    }
    // What works in the kernel is there, and what does not is not.
    let part = |load: Load, frame| {
        times.of_threads(&format!("{load:?}"), frame).as_secs_f64() / time.as_secs_f64()
    };
    assert!(part(Load::SystemCalls, KERNEL) > 0.5, "{}", outcome.stats);
    assert!(part(Load::Arithmetic, KERNEL) < 0.1, "{}", outcome.stats);
    outcome.assert_total();
}
