//! Threads: each has its share, whoever it was before, and however short it lives.

use std::fs;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sigprof::cpu::{Engine, Profiler};

use crate::common::{
    Load, MS, Measured, Ran, UNSAMPLED, all_or, argument, deviation, engine_argument, figure,
    has_perf_events, hz_argument, profiler, ratio, run_child, run_threads, run_threads_with, soak,
    sum,
};
use crate::process::skip;
use crate::work::{StopOnDrop, burn, thread_cpu};

#[test]
fn shares_of_uneven_threads_are_their_clocks() {
    for engine in ["auto", "timer"] {
        run_child("threads::child_of_uneven_threads", &[("ENGINE", engine)]);
    }
}

#[test]
#[ignore = "a child process"]
fn child_of_uneven_threads() {
    let measured = Measured::start(profiler(engine_argument(), 1000));
    // 64 threads; the longest works 64 times as long as the shortest.
    let seconds = 5.0 * soak();
    let unit = Duration::from_secs_f64(seconds / (64.0 * 65.0 / 2.0));
    let engine = measured.recording().stats().engine;
    let threads = (1..=64).map(|i| (format!("uneven-{i:02}"), Load::Arithmetic, unit * i));
    let ran = run_threads_with(engine, threads);
    let outcome = measured.stop();
    let times = outcome.times();
    let in_stacks = times.of_threads("uneven", "");
    let seen = ran.iter().map(|ran| ran.seen).sum();
    let mut worst = 0.0_f64;
    let mut worst_of_its_own = Duration::ZERO;
    for ran in &ran {
        let time = times.of_threads(&ran.name, "");
        let off = (ratio(time, in_stacks) - ratio(ran.seen, seen)) * 100.0;
        worst = worst.max(off.abs());
        worst_of_its_own = worst_of_its_own.max(deviation(time, [ran]));
    }
    figure!(
        "uneven threads: shares within {worst:.3} points, times within {worst_of_its_own:?}, yield {:.4}, total {:.4}, stolen {:?}, {:?}",
        ratio(in_stacks, sum(&ran)),
        outcome.ratio(),
        outcome.stolen,
        outcome.stats.engine
    );
    assert!(worst <= 1.0, "{worst:.3}\n{}", outcome.stats);
    // A share of 1 point is more than most of these threads have. A thread's own time is as exact
    // as its clock.
    let most = Duration::from_micros(2500) + outcome.stolen;
    assert!(
        worst_of_its_own <= most,
        "{worst_of_its_own:?}\n{}",
        outcome.stats
    );
    outcome.assert_total();
}

#[test]
fn a_recording_starts_while_500_threads_run() {
    for &engine in all_or(&["auto"], &["auto", "timer"]) {
        run_child("threads::child_of_500_threads", &[("ENGINE", engine)]);
    }
}

#[test]
#[ignore = "a child process"]
fn child_of_500_threads() {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    static ARE_ARMED: AtomicBool = AtomicBool::new(false);
    let threads: Vec<_> = (0..500)
        .map(|_| {
            let body = || {
                burn(MS / 10);
                STARTED.fetch_add(1, Ordering::Relaxed);
                while !ARE_ARMED.load(Ordering::Acquire) {
                    // Long, so that the threads that arm these find a CPU.
                    thread::sleep(100 * MS);
                }
                let before = thread_cpu();
                burn(10 * MS);
                thread_cpu() - before
            };
            let builder = thread::Builder::new().stack_size(64 * 1024);
            builder.name("present".into()).spawn(body).unwrap()
        })
        .collect();
    while STARTED.load(Ordering::Relaxed) < 500 {
        thread::sleep(MS);
    }
    let measured = Measured::start(profiler(engine_argument(), 1000));
    // The start leaves most perf events to the profiler's thread, which waits for a CPU as these
    // threads do.
    while measured.recording().stats().threads_armed < 501 {
        thread::sleep(MS);
    }
    ARE_ARMED.store(true, Ordering::Release);
    let cpu: Duration = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    let outcome = measured.stop();
    // Under any name: with 250 of these for each CPU, some end before the profiler's thread gets to
    // read what they are called.
    let seen = ratio(outcome.times().of_threads("", ""), cpu);
    let named = ratio(outcome.times().of_threads("present", ""), cpu);
    figure!(
        "500 threads at the start: total {:.4}, yield {seen:.4} of {cpu:.2?}, {named:.4} by name, stolen {:?}, {} armed, {:?}",
        outcome.ratio(),
        outcome.stolen,
        outcome.stats.threads_armed,
        outcome.stats.engine
    );
    // The ends of the threads, which `cpu` leaves out, are sampled, too.
    if outcome.stats.engine == Engine::PerfEvent {
        let most = 1.1 + ratio(outcome.stolen, cpu);
        assert!((0.98..most).contains(&seen), "{seen:.4}\n{}", outcome.stats);
    }
    outcome.assert_total();
}

#[test]
fn threads_that_end_while_they_are_armed_do_no_harm() {
    for engine in ["auto", "timer"] {
        for hook in ["yes", "no"] {
            run_child(
                "threads::child_of_a_storm",
                &[("ENGINE", engine), ("HOOK", hook)],
            );
        }
    }
}

/// Threads of a few hundred microseconds on all sides, while recordings start and stop.
#[test]
#[ignore = "a child process"]
fn child_of_a_storm() {
    let is_hooked = argument("HOOK").as_deref() != Some("no");
    let stop = AtomicBool::new(false);
    let threads = AtomicU32::new(0);
    let mut recordings = 0;
    let mut worst = 0.0_f64;
    thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let in_turn: Vec<_> = (0..4)
                        .map(|i| thread::spawn(move || burn(MS / 10 * i)))
                        .collect();
                    threads.fetch_add(4, Ordering::Relaxed);
                    in_turn
                        .into_iter()
                        .for_each(|thread| thread.join().unwrap());
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(1).mul_f64(soak());
        while Instant::now() < end {
            let profiler = profiler(engine_argument(), 10_000).hook_threads(is_hooked);
            let measured = Measured::start(profiler);
            thread::sleep(MS * (recordings % 20));
            let outcome = measured.stop();
            // A period for each thread is what sampling rounds to.
            outcome.assert_total_within(5 * MS);
            let stats = &outcome.stats;
            assert_eq!(stats.ticks, stats.samples + stats.lost.total(), "{stats}");
            worst = worst.max((outcome.ratio() - 1.0).abs());
            recordings += 1;
        }
    });
    figure!(
        "{recordings} recordings in a storm of {} threads, hooked {is_hooked}",
        threads.into_inner()
    );
    assert!(recordings > 10);
}

#[test]
fn each_thread_of_a_storm_of_births_has_one_clock_and_its_samples() {
    for engine in ["auto", "timer"] {
        for hz in ["1000", "10000"] {
            run_child(
                "threads::child_of_a_storm_of_births",
                &[("ENGINE", engine), ("HZ", hz)],
            );
        }
    }
}

/// Keeps the thread for some CPU time, wherever it is interrupted.
extern "C" fn burn_in_handler(_: libc::c_int) {
    burn(3 * MS);
}

/// Eight threads, and others to keep CPUs from them, begin as many more as they can: threads that
/// do nothing, threads that work, and threads that the program interrupts when they begin, in the
/// middle of making their clocks.
#[test]
#[ignore = "a child process"]
fn child_of_a_storm_of_births() {
    let period = Duration::from_secs(1) / hz_argument();
    let handler = burn_in_handler as extern "C" fn(libc::c_int);
    // SAFETY: the handler reads a clock and computes.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let measured = Measured::start(profiler(engine_argument(), hz_argument()));
    let armed_at_start = measured.recording().stats().threads_armed;
    let begun = AtomicU32::new(0);
    let stop = AtomicBool::new(false);
    let spawn = |name: String, time: Duration| {
        begun.fetch_add(1, Ordering::Relaxed);
        let builder = thread::Builder::new().name(name).stack_size(128 * 1024);
        builder.spawn(move || burn(time)).unwrap()
    };
    let names = thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        for _ in 0..thread::available_parallelism().map_or(1, |n| n.get()) {
            begun.fetch_add(1, Ordering::Relaxed);
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    burn(MS);
                }
            });
        }
        let births = |parent: u32| {
            let spawn = &spawn;
            move || {
                let mut names = Vec::new();
                for turn in 0..(24.0 * soak()) as u32 {
                    let fleeting: [_; 4] =
                        std::array::from_fn(|_| spawn("fleeting".into(), Duration::ZERO));
                    let pair = ["works", "struck"].map(|kind| {
                        let name = format!("{kind}-{parent}-{turn}");
                        names.push(name.clone());
                        // Enough for a debug build, whose handler takes long at first and lets
                        // ticks pass for that.
                        spawn(name, 10 * period)
                    });
                    // SAFETY: the thread is there until it is joined, if only as a zombie.
                    unsafe { libc::pthread_kill(pair[1].as_pthread_t(), libc::SIGUSR1) };
                    fleeting
                        .into_iter()
                        .for_each(|thread| thread.join().unwrap());
                    pair.into_iter().for_each(|thread| thread.join().unwrap());
                }
                names
            }
        };
        let parents: Vec<_> = (0..8)
            .map(|parent| {
                begun.fetch_add(1, Ordering::Relaxed);
                scope.spawn(births(parent))
            })
            .collect();
        let names = parents
            .into_iter()
            .flat_map(|parent| parent.join().unwrap());
        names.collect::<Vec<String>>()
    });
    let outcome = measured.stop();
    let times = outcome.times();
    let stats = &outcome.stats;
    let without: Vec<&String> = names
        .iter()
        .filter(|name| times.of_threads(name, "").is_zero())
        .collect();
    figure!(
        "{} threads in a storm of births at {} Hz: {} of them armed, {} of {} without a sample, {} foreign signals, total {:.4}, {:?}",
        begun.load(Ordering::Relaxed),
        hz_argument(),
        stats.threads_armed - armed_at_start,
        without.len(),
        names.len(),
        stats.foreign_signals,
        outcome.ratio(),
        stats.engine
    );
    assert_eq!(stats.foreign_signals, 0, "{stats}");
    assert_eq!(
        stats.threads_armed - armed_at_start,
        u64::from(begun.into_inner()),
        "{stats}"
    );
    // Without high resolution timers a thread's CPU timer runs at the scheduler's tick, which may
    // never fall on a short thread.
    if stats.engine == Engine::PerfEvent {
        assert!(without.is_empty(), "{without:?}: {stats}");
    }
}

/// Runs a thread with the id that another one had a moment ago; `None` if the kernel gave out
/// another.
fn run_with_id(tid: i32, name: String, time: Duration) -> (i32, Ran) {
    // The kernel gives out the id after this one next.
    let _ = fs::write("/proc/sys/kernel/ns_last_pid", (tid - 1).to_string());
    let in_thread = name.clone();
    thread::Builder::new()
        .name(name)
        .spawn(move || {
            burn(time);
            // SAFETY: no arguments.
            let tid = unsafe { libc::gettid() };
            let cpu = thread_cpu();
            let ran = Ran {
                name: in_thread,
                cpu,
                seen: cpu,
            };
            (tid, ran)
        })
        .unwrap()
        .join()
        .unwrap()
}

/// Whether the next thread's id can be chosen.
fn can_choose_ids() -> bool {
    let path = "/proc/sys/kernel/ns_last_pid";
    let can_write = fs::OpenOptions::new().write(true).open(path).is_ok()
        && fs::write(path, fs::read(path).unwrap_or_default()).is_ok();
    if !can_write {
        skip(&format!("it needs to write to {path}"));
    }
    can_write
}

#[test]
fn an_id_that_is_used_again_at_once_is_another_threads() {
    if !can_choose_ids() {
        return;
    }
    for engine in ["auto", "timer"] {
        for hook in ["yes", "no"] {
            run_child(
                "threads::child_of_one_id",
                &[("ENGINE", engine), ("HOOK", hook)],
            );
        }
    }
}

#[test]
#[ignore = "a child process"]
fn child_of_one_id() {
    let is_hooked = argument("HOOK").as_deref() != Some("no");
    let measured = Measured::start(profiler(engine_argument(), 1000).hook_threads(is_hooked));
    // Without the hook a thread is found within 10 ms, more on a busy machine.
    let time = if is_hooked { 10 * MS } else { 40 * MS };
    let mut ran: Vec<Ran> = Vec::new();
    let mut reused = 0;
    let (mut tid, _) = run_with_id(0, "first".into(), MS);
    // Other programs begin threads, too, and take the id.
    while reused < 20 && sum(&ran) < 5000 * MS {
        let (next, of) = run_with_id(tid, format!("reused-{:03}", ran.len()), time);
        reused += u32::from(next == tid);
        tid = next;
        ran.push(of);
    }
    let outcome = measured.stop();
    let times = outcome.times();
    let seen = ratio(times.of_threads("reused", ""), sum(&ran));
    let most = ran
        .iter()
        .map(|ran| ratio(times.of_threads(&ran.name, ""), ran.cpu))
        .fold(0.0, f64::max);
    let least = ran
        .iter()
        .map(|ran| ratio(times.of_threads(&ran.name, ""), ran.cpu))
        .fold(9.0, f64::min);
    let named = ratio(times.of_threads("", ""), sum(&ran));
    figure!(
        "{reused} of {} ids reused, hooked {is_hooked}: total {:.4}, yield {seen:.4} ({least:.2} to {most:.2} a thread), under any name {named:.4}, stolen {:?}, {:?}",
        ran.len(),
        outcome.ratio(),
        outcome.stolen,
        outcome.stats.engine
    );
    if reused == 0 {
        return skip("the kernel gave out other ids");
    }
    // Nothing twice, and nothing under another's name: each has at most its own, but for what
    // periods and ticks round.
    let rounding = if outcome.stats.engine == Engine::PerfEvent {
        2 * MS
    } else {
        16 * MS
    } + outcome.stolen;
    for ran in &ran {
        let time = times.of_threads(&ran.name, "");
        assert!(
            time <= ran.cpu + rounding,
            "{}: {time:?} of {:?}\n{}",
            ran.name,
            ran.cpu,
            outcome.stats
        );
    }
    if is_hooked && outcome.stats.engine == Engine::PerfEvent {
        let tolerance = 0.04 + ratio(outcome.stolen, sum(&ran));
        assert!(
            (seen - 1.0).abs() <= tolerance,
            "{seen:.4}\n{}",
            outcome.stats
        );
    }
    // Where events count what a hypervisor took, there is more in stacks than the clock has.
    outcome.assert_total_within(outcome.stolen);
}

/// C11's threads, which the C library begins without a look at its own `pthread_create`: so no hook
/// sees them.
#[cfg(target_env = "gnu")]
mod c11 {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        pub fn thrd_create(
            thread: *mut libc::pthread_t,
            start: extern "C" fn(*mut c_void) -> c_int,
            argument: *mut c_void,
        ) -> c_int;
        pub fn thrd_join(thread: libc::pthread_t, result: *mut c_int) -> c_int;
    }
}

#[cfg(target_env = "gnu")]
#[test]
fn an_id_of_a_thread_that_has_ended_is_found_on_one_that_is_not_hooked() {
    if !can_choose_ids() {
        return;
    }
    for engine in ["auto", "timer"] {
        run_child("threads::child_of_an_unhooked_heir", &[("ENGINE", engine)]);
    }
}

/// Works until it is told to stop, and says which id it has.
#[cfg(target_env = "gnu")]
struct Heir {
    tid: AtomicI32,
    is_enough: AtomicBool,
}

#[cfg(target_env = "gnu")]
extern "C" fn inherit(heir: *mut std::ffi::c_void) -> std::ffi::c_int {
    // SAFETY: who began this thread keeps the heir until it has joined it.
    let heir = unsafe { &*heir.cast::<Heir>() };
    // SAFETY: no arguments.
    heir.tid.store(unsafe { libc::gettid() }, Ordering::Release);
    while !heir.is_enough.load(Ordering::Acquire) {
        burn(MS);
    }
    0
}

#[cfg(target_env = "gnu")]
#[test]
#[ignore = "a child process"]
fn child_of_an_unhooked_heir() {
    let measured = Measured::start(profiler(engine_argument(), 1000));
    let mut inherited = 0;
    // Other programs begin threads, too, and take the id.
    for _ in 0..20 {
        let armed = measured.recording().stats().threads_armed;
        let (last, _) = run_with_id(0, "ancestor".into(), MS);
        let heir = Heir {
            tid: AtomicI32::new(0),
            is_enough: AtomicBool::new(false),
        };
        let _ = fs::write("/proc/sys/kernel/ns_last_pid", (last - 1).to_string());
        let mut thread = 0;
        let argument = (&raw const heir).cast_mut().cast();
        // SAFETY: the heir outlives the thread, which is joined below.
        let error = unsafe { c11::thrd_create(&mut thread, inherit, argument) };
        assert_eq!(error, 0);
        // The ancestor was armed when it began, if that was heard of by then.
        let deadline = Instant::now() + Duration::from_secs(60);
        while measured.recording().stats().threads_armed < armed + 2 && Instant::now() < deadline {
            thread::sleep(MS);
        }
        let found = measured.recording().stats().threads_armed - armed;
        heir.is_enough.store(true, Ordering::Release);
        // SAFETY: joined once.
        unsafe { c11::thrd_join(thread, std::ptr::null_mut()) };
        assert_eq!(found, 2, "{}", measured.recording().stats());
        inherited += u32::from(heir.tid.into_inner() == last);
        if inherited == 3 {
            break;
        }
    }
    let outcome = measured.stop();
    figure!(
        "{inherited} ids inherited, total {:.4}, {:?}",
        outcome.ratio(),
        outcome.stats.engine
    );
    if inherited == 0 {
        skip("the kernel gave out other ids");
    }
    // A period for each thread is what sampling rounds to.
    outcome.assert_total_within(6 * MS);
}

#[test]
fn a_thread_that_blocks_the_signal_is_told_of_and_in_the_total() {
    for engine in ["auto", "timer"] {
        run_child(
            "threads::child_that_blocks_the_signal",
            &[("ENGINE", engine)],
        );
    }
}

fn block_signal(how: libc::c_int) {
    // SAFETY: changes the calling thread's mask by the signals that clocks send.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPROF);
        libc::sigaddset(&mut set, libc::SIGURG);
        assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_blocks_the_signal() {
    let measured = Measured::start(profiler(engine_argument(), 1000));
    let spawn = |name: &str, is_blocking: bool| {
        let body = move || {
            if is_blocking {
                block_signal(libc::SIG_BLOCK);
            }
            burn(600 * MS);
            thread_cpu()
        };
        thread::Builder::new()
            .name(name.into())
            .spawn(body)
            .unwrap()
    };
    let (deaf, hears) = (spawn("deaf", true), spawn("hears", false));
    let (deaf, hears) = (deaf.join().unwrap(), hears.join().unwrap());
    let outcome = measured.stop();
    let times = outcome.times();
    figure!(
        "blocked signal: total {:.4}, in stacks {:.4} deaf and {:.4} hearing, unsampled {:.4} deaf; stolen {:?}, told of {:?}, {:?}",
        outcome.ratio(),
        ratio(times.of_threads("deaf", ""), deaf),
        ratio(times.of_threads("hears", ""), hears),
        ratio(times.of_threads("deaf", UNSAMPLED), deaf),
        outcome.stolen,
        outcome.stats.threads_blocking,
        outcome.stats.engine
    );
    let [blocking] = &outcome.stats.threads_blocking[..] else {
        panic!("{}", outcome.stats);
    };
    assert!(blocking.starts_with("deaf ("), "{blocking}");
    assert!(
        outcome.stats.to_string().contains("block the signal"),
        "{}",
        outcome.stats
    );
    assert!(
        ratio(times.of_threads("deaf", UNSAMPLED), deaf) > 0.95,
        "{}",
        outcome.stats
    );
    outcome.assert_total();
}

#[test]
fn threads_that_are_created_with_the_signal_blocked_have_their_time() {
    for engine in ["auto", "timer"] {
        run_child("threads::child_of_deaf_births", &[("ENGINE", engine)]);
    }
}

/// As liblzma's workers, and those of many a library.
#[test]
#[ignore = "a child process"]
fn child_of_deaf_births() {
    let measured = Measured::start(profiler(engine_argument(), 1000));
    block_signal(libc::SIG_BLOCK);
    let threads = (0..4).map(|i| (format!("born-{i}"), Load::Arithmetic, 300 * MS));
    // Each has a timer: what perf events send may be the program's own.
    let ran = run_threads_with(Engine::ThreadTimer, threads);
    block_signal(libc::SIG_UNBLOCK);
    let outcome = measured.stop();
    let times = outcome.times();
    let in_stacks = times.of_threads("born", "");
    figure!(
        "born with the signal blocked: {:.4} in stacks, {:?}",
        ratio(in_stacks, sum(&ran)),
        outcome.stats.engine
    );
    for ran in &ran {
        let off = deviation(times.of_threads(&ran.name, ""), [ran]);
        let most = Duration::from_micros(2500) + outcome.stolen;
        assert!(off <= most, "{}: {off:?}\n{}", ran.name, outcome.stats);
    }
    assert_eq!(outcome.stats.threads_blocking, [""; 0], "{}", outcome.stats);
    outcome.assert_total();
}

#[test]
fn threads_without_perf_events_of_their_own_are_hooked_or_found() {
    if has_perf_events() {
        for hook in ["yes", "no"] {
            run_child("threads::child_of_late_threads", &[("HOOK", hook)]);
        }
    }
}

/// What the hook is for: threads of a few milliseconds.
#[test]
#[ignore = "a child process"]
fn child_of_late_threads() {
    let is_hooked = argument("HOOK").as_deref() != Some("no");
    let profiler: Profiler = profiler(Engine::PerfEvent, 10_000).hook_threads(is_hooked);
    let measured = Measured::start(profiler);
    assert_eq!(measured.recording().stats().threads_hooked, is_hooked);
    let mut ran = Vec::new();
    for _ in 0..50 {
        ran.extend(run_threads(
            (0..2).map(|_| ("late".into(), Load::Arithmetic, 5 * MS)),
        ));
    }
    let outcome = measured.stop();
    let seen = ratio(outcome.times().of_threads("late", ""), sum(&ran));
    figure!(
        "threads of 5 ms, hooked {is_hooked}: total {:.4}, yield {seen:.4}",
        outcome.ratio()
    );
    if is_hooked {
        assert!((seen - 1.0).abs() <= 0.03, "{seen:.4}\n{}", outcome.stats);
    }
    outcome.assert_total();
}
