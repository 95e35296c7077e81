//! The yield: of the CPU time of threads, by their own clocks, how much is in stacks.

use std::time::Duration;

use sigprof::cpu::Engine;

use crate::common::{
    KERNEL, Load, MS, Measured, argument, become_nobody, engine_argument, figure, has_perf_events,
    hz_argument, is_root, profiler, ratio, run_child, run_threads, scheduler_tick, soak, sum,
};

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
        for threads in [1, 2, 8, 64] {
            run_case("perf", 100, threads, "same");
        }
    }
}

#[test]
fn perf_events_yield_what_threads_use_at_1000_hz() {
    if has_perf_events() {
        for threads in [1, 2, 8, 64] {
            run_case("perf", 1000, threads, "same");
        }
    }
}

#[test]
fn perf_events_yield_what_threads_use_at_10000_hz() {
    if has_perf_events() {
        for threads in [1, 2, 8, 64] {
            run_case("perf", 10_000, threads, "same");
        }
    }
}

#[test]
fn timers_yield_what_threads_use_at_100_hz() {
    for threads in [1, 2, 8] {
        run_case("timer", 100, threads, "same");
    }
}

#[test]
fn timers_yield_what_threads_use_at_1000_hz() {
    for threads in [1, 2, 8] {
        run_case("timer", 1000, threads, "same");
    }
}

#[test]
fn timers_yield_what_threads_use_at_10000_hz() {
    for threads in [1, 2, 8] {
        run_case("timer", 10_000, threads, "same");
    }
}

#[test]
fn timers_yield_what_64_threads_use() {
    // What a thread does after the scheduler's last tick is not seen, so the threads have to be long: one rate is enough.
    run_case("timer", 1000, 64, "same");
    if soak() > 1.0 {
        for hz in [100, 10_000] {
            run_case("timer", hz, 64, "same");
        }
    }
}

#[test]
fn timers_of_a_user_without_privileges_yield_the_same() {
    for hz in [100, 1000] {
        run_case("auto", hz, 8, "nobody");
    }
}

/// Threads of each kind of work in turn, each long enough that what sampling rounds is well below the tolerance.
#[test]
#[ignore = "a child process"]
fn child_of_known_yield() {
    let (engine, hz) = (engine_argument(), hz_argument());
    let threads: u32 = argument("THREADS").unwrap().parse().unwrap();
    if argument("USER").as_deref() == Some("nobody") {
        become_nobody();
    }
    Load::prepare();
    let measured = Measured::start(profiler(engine, hz));
    let is_timer = measured.recording().stats().engine == Engine::ThreadTimer;
    let loads = match threads {
        1 | 2 => &Load::ALL[..1],
        _ => &Load::ALL[..],
    };
    let time = time_of_thread(hz, threads, is_timer);
    let ran = run_threads((0..threads).map(|i| {
        let load = loads[i as usize % loads.len()];
        (format!("{load:?}-{i}"), load, time)
    }));
    let outcome = measured.stop();
    let times = outcome.times();
    let of = |prefix: &str| {
        let ran: Vec<_> = ran
            .iter()
            .filter(|ran| ran.name.starts_with(prefix))
            .cloned()
            .collect();
        ratio(times.of_threads(prefix, ""), sum(&ran))
    };
    // All of them: names begin with the loads'.
    let in_stacks: Duration = loads
        .iter()
        .map(|load| times.of_threads(&format!("{load:?}"), ""))
        .sum();
    let all = ratio(in_stacks, sum(&ran));
    let by_load: Vec<(String, f64)> = loads
        .iter()
        .map(|load| (format!("{load:?}"), of(&format!("{load:?}"))))
        .collect();
    figure!(
        "yield {all:.4} of {threads} threads at {hz} Hz, {:?} ({:.1?} of CPU, total {:.4}, own {:.1?}, stolen {:?}) {by_load:.4?}",
        outcome.stats.engine,
        sum(&ran),
        outcome.ratio(),
        outcome.stats.own_cpu,
        outcome.stolen,
    );
    // Events see the time that a hypervisor took, or miss ticks of it.
    let of_stolen = ratio(outcome.stolen, sum(&ran));
    let is_exact = |part: f64| (part - 1.0).abs() <= TOLERANCE + of_stolen;
    assert!(is_exact(all), "{all:.4} {by_load:.4?}\n{}", outcome.stats);
    // One kind of work at 100 Hz is too few samples to be judged by 1 %, and one kind with timers has too few threads.
    let is_exact =
        |part: f64| is_exact(part) || is_timer && (part - 1.0).abs() <= 2.0 * TOLERANCE + of_stolen;
    if hz >= 1000 {
        for (load, part) in &by_load {
            assert!(is_exact(*part), "{load}: {part:.4}\n{}", outcome.stats);
        }
    }
    outcome.assert_total();
}

/// A thread's count is its time in periods, up or down: by 0.4 in the mean square, which grows with the root of the threads. A
/// timer is besides only looked at by the scheduler's ticks, so what a thread does after its last one is missing: half of
/// the time between two where it has a CPU to itself, and all of it where it shares one with many.
fn time_of_thread(hz: u32, threads: u32, is_timer: bool) -> Duration {
    let period = Duration::from_secs(1) / hz;
    let noise = period.mul_f64(0.41 * f64::from(threads).sqrt()) / threads;
    let least = match is_timer {
        // 3 sigma of noise in 0.5 %; what is missing in as much, the more so the fewer threads there are to even it out.
        true => (noise * 3 * 200)
            .max(scheduler_tick().mul_f64(75.0 + 400.0 / f64::from(threads).sqrt())),
        // 3 sigma in 0.8 %.
        false => noise * 3 * 125,
    };
    // So long that the beginning and the end of a thread do not count.
    least
        .max(if threads > 8 { 50 * MS } else { 300 * MS })
        .mul_f64(soak().max(1.0))
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
        return eprintln!("skipped: perf events are not allowed to this user at all");
    };
    drop(recording);
    let measured = Measured::start(profiler(Engine::PerfEvent, 1000));
    let time = (300 * MS).mul_f64(soak().max(1.0));
    let ran = run_threads(Load::ALL.map(|load| (format!("{load:?}"), load, time)));
    let outcome = measured.stop();
    let times = outcome.times();
    for ran in &ran {
        let (user, kernel) = (
            times.of_threads(&ran.name, ""),
            times.of_threads(&ran.name, KERNEL),
        );
        figure!(
            "{}: user {:.4}, kernel {:.4} of {:?}",
            ran.name,
            ratio(user, ran.cpu),
            ratio(kernel, ran.cpu),
            ran.cpu
        );
        let all = ratio(user + kernel, ran.cpu);
        assert!(
            (all - 1.0).abs() <= TOLERANCE,
            "{}: {all:.4}\n{}",
            ran.name,
            outcome.stats
        );
    }
    if outcome.stats.cpu.kernel.is_zero() {
        return eprintln!("skipped: this user may see the kernel");
    }
    // What works in the kernel is there, and what does not is not.
    let part = |load: Load, frame| {
        times.of_threads(&format!("{load:?}"), frame).as_secs_f64() / time.as_secs_f64()
    };
    assert!(part(Load::SystemCalls, KERNEL) > 0.5, "{}", outcome.stats);
    assert!(part(Load::Arithmetic, KERNEL) < 0.1, "{}", outcome.stats);
    outcome.assert_total();
}
