//! The profile's total is the process's CPU time, whatever the system refuses and however threads
//! come and go.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use sigprof::cpu::Engine;

use crate::common::{
    Load, MS, Measured, Ran, UNSAMPLED, all_or, become_user, deviation, engine_argument, figure,
    has_perf_events, hz_argument, limit, profiler, ratio, run_child, run_threads, run_threads_with,
    soak, sum,
};
use crate::process::skip;
use crate::sandbox::refuse;
use crate::work::{burn, thread_cpu};

/// Threads of arithmetic.
fn burning(name: &str, threads: u32, time: Duration) -> Vec<Ran> {
    run_threads((0..threads).map(|i| (format!("{name}-{i}"), Load::Arithmetic, time)))
}

/// Of which `engine` can see some of the time alone.
fn burning_with(engine: Engine, threads: u32, time: Duration) -> Vec<Ran> {
    let threads = (0..threads).map(|i| (format!("burning-{i}"), Load::Arithmetic, time));
    run_threads_with(engine, threads)
}

#[test]
fn the_total_does_not_depend_on_the_frequency() {
    for engine in ["auto", "timer", "process"] {
        run_child("totals::child_of_many_frequencies", &[("ENGINE", engine)]);
    }
}

#[test]
#[ignore = "a child process"]
fn child_of_many_frequencies() {
    let engine = engine_argument();
    for &hz in all_or(&[50, 1000, 10_000], &[50, 99, 250, 1000, 4999, 10_000]) {
        let measured = Measured::start(profiler(engine, hz));
        let time = (300 * MS).mul_f64(soak());
        let engine = measured.recording().stats().engine;
        let ran = burning_with(engine, 4, time);
        let outcome = measured.stop();
        let cpu = outcome.stats.cpu;
        figure!(
            "total {:.4}, in stacks {:.4} of {:.1?} at {hz} Hz, {:?}",
            outcome.ratio(),
            ratio(cpu.in_stacks, cpu.total),
            sum(&ran),
            outcome.stats.engine
        );
        outcome.assert_total();
        // Not only the sum: stacks hold what threads did, but for what one period of each thread
        // rounds.
        let period = Duration::from_secs(1) / hz;
        let rounding = period * 3 + outcome.stolen;
        let off = deviation(outcome.times().of_threads("", ""), &ran);
        assert!(
            off <= sum(&ran).mul_f64(0.015) + rounding,
            "{off:?}\n{}",
            outcome.stats
        );
    }
}

#[test]
fn comments_say_how_much_is_in_stacks() {
    run_child("totals::child_that_reads_comments", &[]);
}

#[test]
#[ignore = "a child process"]
fn child_that_reads_comments() {
    let measured = Measured::start(profiler(Engine::Auto, 1000));
    burning("burning", 2, 200 * MS);
    let outcome = measured.stop();
    let comments = &outcome.profile.comments;
    let line = comments.iter().find(|line| line.contains("CPU in stacks"));
    let line = line.unwrap_or_else(|| panic!("{comments:#?}"));
    figure!("{line}");
    // "cpu: 99.7 % of 12.41 s CPU in stacks, …"
    let words: Vec<&str> = line.split([' ', ',']).collect();
    let [
        _,
        percent,
        "%",
        "of",
        seconds,
        "s",
        "CPU",
        "in",
        "stacks",
        ..,
    ] = words[..]
    else {
        panic!("{line}");
    };
    let (percent, seconds): (f64, f64) = (percent.parse().unwrap(), seconds.parse().unwrap());
    let cpu = outcome.stats.cpu;
    assert!((percent / 100.0 - cpu.coverage()).abs() < 0.001, "{line}");
    assert!((seconds - cpu.total.as_secs_f64()).abs() < 0.01, "{line}");
}

#[test]
fn thousands_of_threads_of_a_millisecond_are_in_the_total() {
    for engine in ["auto", "timer"] {
        run_child(
            "totals::child_of_thousands_of_threads",
            &[("ENGINE", engine)],
        );
    }
}

#[test]
#[ignore = "a child process"]
fn child_of_thousands_of_threads() {
    let measured = Measured::start(profiler(engine_argument(), 1000));
    let mut ran = Vec::new();
    for _ in 0..(15.0 * soak()) as u32 {
        ran.extend(burning("short", 100, MS));
    }
    let outcome = measured.stop();
    figure!(
        "{} threads: total {:.4}, in stacks {:.4} of {:.2?} ({:.2?} by the threads' clocks), {:?}, {} armed, own {:.1?}",
        ran.len(),
        outcome.ratio(),
        outcome.stats.cpu.coverage(),
        outcome.stats.cpu.total,
        sum(&ran),
        outcome.stats.engine,
        outcome.stats.threads_armed,
        outcome.stats.own_cpu,
    );
    assert!(
        outcome.stats.threads_armed >= ran.len() as u64,
        "{}",
        outcome.stats
    );
    outcome.assert_total();
    // A timer only ticks when the scheduler does, which a thread of a millisecond seldom sees; an
    // event needs no scheduler.
    if outcome.stats.engine == Engine::PerfEvent {
        let times = outcome.times();
        let seen = ratio(times.of_threads("short", ""), sum(&ran));
        figure!("yield {seen:.4} of threads of a millisecond");
        assert!((seen - 1.0).abs() <= 0.05, "{seen:.4}\n{}", outcome.stats);
    }
}

#[test]
fn two_thousand_threads_at_once_are_in_the_total() {
    for &engine in all_or(&["auto"], &["auto", "timer"]) {
        run_child(
            "totals::child_of_two_thousand_threads",
            &[("ENGINE", engine)],
        );
    }
}

#[test]
#[ignore = "a child process"]
fn child_of_two_thousand_threads() {
    const THREADS: usize = 2000;
    let measured = Measured::start(profiler(engine_argument(), 1000));
    let all_are_there = Arc::new(Barrier::new(THREADS + 1));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let all_are_there = all_are_there.clone();
            thread::Builder::new()
                .stack_size(64 * 1024)
                .name("crowded".into())
                .spawn(move || {
                    burn(MS);
                    all_are_there.wait();
                    burn(2 * MS);
                    thread_cpu()
                })
                .unwrap()
        })
        .collect();
    all_are_there.wait();
    let cpu: Duration = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    let outcome = measured.stop();
    let times = outcome.times();
    let seen = ratio(times.of_threads("crowded", ""), cpu);
    figure!(
        "2,000 threads at once: total {:.4}, yield {seen:.4} of {cpu:.2?}, {:?}, own {:.1?}",
        outcome.ratio(),
        outcome.stats.engine,
        outcome.stats.own_cpu
    );
    outcome.assert_total();
}

#[test]
fn few_descriptors_leave_threads_to_timers_and_say_so() {
    if has_perf_events() {
        run_child("totals::child_of_few_descriptors", &[]);
    }
}

#[test]
#[ignore = "a child process"]
fn child_of_few_descriptors() {
    limit(libc::RLIMIT_NOFILE as libc::c_int, 64);
    let measured = Measured::start(profiler(Engine::PerfEvent, 1000));
    // Most of them have timers.
    let ran = burning_with(Engine::ThreadTimer, 40, (150 * MS).mul_f64(soak()));
    let outcome = measured.stop();
    let stats = &outcome.stats;
    let in_stacks = outcome.times().of_threads("burning", "");
    let off = deviation(in_stacks, &ran);
    figure!(
        "64 descriptors: total {:.4}, yield {:.4}, off by {off:?}, {} of {} threads by perf, {:?}",
        outcome.ratio(),
        ratio(in_stacks, sum(&ran)),
        stats.threads_by_perf,
        stats.threads_armed,
        stats.fallbacks
    );
    assert!((1..=32).contains(&stats.threads_by_perf), "{stats}");
    assert!(stats.threads_armed >= 40, "{stats}");
    assert_eq!(stats.threads_refused, 0, "{stats}");
    let told = stats
        .fallbacks
        .iter()
        .find(|told| told.engine == Engine::PerfEvent);
    let told = told.unwrap_or_else(|| panic!("{stats}"));
    assert!(told.remedy.contains("ulimit -n"), "{told:?}");
    assert!(told.threads >= 8, "{told:?}");
    assert!(stats.to_string().contains("ulimit -n"), "{stats}");
    let most = sum(&ran).mul_f64(0.02) + outcome.stolen;
    assert!(off <= most, "{off:?}\n{stats}");
    outcome.assert_total();
}

#[test]
fn a_sandbox_without_perf_events_gets_timers() {
    run_child("totals::child_in_a_sandbox", &[]);
}

#[test]
#[ignore = "a child process"]
fn child_in_a_sandbox() {
    refuse(&[libc::SYS_perf_event_open]);
    let error = profiler(Engine::PerfEvent, 1000)
        .start()
        .unwrap_err()
        .to_string();
    figure!("{error}");
    for part in ["perf event", "not permitted", "sandbox", "Engine::Auto"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let measured = Measured::start(profiler(Engine::Auto, 1000));
    assert_eq!(measured.recording().stats().engine, Engine::ThreadTimer);
    let ran = burning_with(Engine::ThreadTimer, 4, (300 * MS).mul_f64(soak()));
    let outcome = measured.stop();
    let in_stacks = outcome.times().of_threads("burning", "");
    let off = deviation(in_stacks, &ran);
    figure!(
        "perf events refused: total {:.4}, yield {:.4}, off by {off:?}",
        outcome.ratio(),
        ratio(in_stacks, sum(&ran))
    );
    let most = sum(&ran).mul_f64(0.02) + outcome.stolen;
    assert!(off <= most, "{off:?}\n{}", outcome.stats);
    outcome.assert_total();
    // Without timers on threads and on the process there is no clock left.
    refuse(&[libc::SYS_timer_create]);
    match profiler(Engine::Auto, 1000).start() {
        Err(error) => {
            figure!("timers refused, too: {error}");
            assert!(error.to_string().contains("timer_create"), "{error}");
        }
        Ok(recording) => {
            drop(recording);
            let measured = Measured::start(profiler(Engine::Auto, 1000));
            burning("burning", 4, 300 * MS);
            let outcome = measured.stop();
            figure!(
                "timers refused, too: total {:.4}, {:?}",
                outcome.ratio(),
                outcome.stats.engine
            );
            outcome.assert_total();
        }
    }
}

#[test]
fn threads_that_are_refused_every_clock_are_in_the_total() {
    for engine in ["auto", "timer"] {
        run_child(
            "totals::child_in_a_sandbox_from_now_on",
            &[("ENGINE", engine)],
        );
    }
}

/// A sandbox that a program enters once it has begun.
#[test]
#[ignore = "a child process"]
fn child_in_a_sandbox_from_now_on() {
    let measured = Measured::start(profiler(engine_argument(), 1000));
    let before = burning("before", 2, 200 * MS);
    refuse(&[libc::SYS_perf_event_open, libc::SYS_timer_create]);
    let after = burning("after", 4, 200 * MS);
    let outcome = measured.stop();
    let times = outcome.times();
    figure!(
        "refused from now on: total {:.4}; before: {:.4} in stacks; after: {:.4} in stacks, {:.4} unsampled by name, {:.4} by nobody's, {:?}",
        outcome.ratio(),
        ratio(times.of_threads("before", ""), sum(&before)),
        ratio(times.of_threads("after", ""), sum(&after)),
        ratio(times.of_threads("after", UNSAMPLED), sum(&after)),
        ratio(times.of_threads("", UNSAMPLED), sum(&after)),
        outcome.stats.fallbacks,
    );
    assert_eq!(
        times.of_threads("after", ""),
        Duration::ZERO,
        "{}",
        outcome.stats
    );
    assert!(!outcome.stats.fallbacks.is_empty(), "{}", outcome.stats);
    outcome.assert_total();
}

#[test]
fn few_queued_signals_leave_threads_to_the_process_timer() {
    run_child("totals::child_of_few_queued_signals", &[]);
}

#[test]
#[ignore = "a child process"]
fn child_of_few_queued_signals() {
    // The limit is a user's: one that has no other processes.
    become_user(1_000_000 + std::process::id());
    limit(libc::RLIMIT_SIGPENDING as libc::c_int, 10);
    // At once: more than there can be timers. The process has one, if other processes of the user
    // leave it one.
    let gate = Arc::new(Barrier::new(21));
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let gate = gate.clone();
            thread::spawn(move || {
                gate.wait();
                burn(100 * MS);
                thread_cpu()
            })
        })
        .collect();
    let start = |hz| profiler(Engine::Auto, hz);
    let Ok(recording) = start(100).start() else {
        gate.wait();
        return skip("other processes of this user use up the signals that can be queued");
    };
    drop(recording);
    let measured = Measured::start(start(100));
    gate.wait();
    let cpu: Duration = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    let outcome = measured.stop();
    let engine = outcome.stats.engine;
    figure!(
        "10 queued signals: total {:.4}, in stacks {:.4} of {cpu:.2?}, {engine:?}",
        outcome.ratio(),
        outcome.stats.cpu.coverage()
    );
    assert_eq!(engine, Engine::ProcessTimer, "{}", outcome.stats);
    outcome.assert_total();
    // Later: threads that begin when a few have their timers.
    let measured = Measured::start(start(100));
    let ran = burning("later", 20, 100 * MS);
    let outcome = measured.stop();
    let stats = &outcome.stats;
    figure!(
        "10 queued signals, threads later: total {:.4}, in stacks {:.4} of {:.2?}, {:?}, {} armed, {:?}",
        outcome.ratio(),
        stats.cpu.coverage(),
        sum(&ran),
        stats.engine,
        stats.threads_armed,
        stats.fallbacks
    );
    outcome.assert_total();
    if stats.engine == Engine::ThreadTimer {
        let told = stats
            .fallbacks
            .iter()
            .any(|told| told.remedy.contains("ulimit -i"));
        assert!(told, "{stats}");
    }
}

#[test]
fn a_process_that_does_nothing_has_an_empty_profile() {
    for engine in ["auto", "timer", "process"] {
        run_child("totals::child_that_does_nothing", &[("ENGINE", engine)]);
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_does_nothing() {
    let measured = Measured::start(profiler(engine_argument(), hz_argument()));
    thread::sleep(500 * MS);
    let outcome = measured.stop();
    let cpu = outcome.stats.cpu;
    figure!(
        "nothing done: profile {:?} ns, clock {:.2?}, coverage {:.3}",
        outcome.profile.total(1),
        cpu.total,
        cpu.coverage()
    );
    assert!((0.0..=1.0).contains(&cpu.coverage()), "{}", outcome.stats);
    // The start and the stop are the program's.
    assert!(cpu.total < 100 * MS, "{}", outcome.stats);
    outcome.assert_total_within(2 * MS);
}
