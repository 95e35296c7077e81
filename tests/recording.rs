//! A recording's behaviour: what it promises, refuses and survives.

#[path = "support/compile.rs"]
mod compile;
#[path = "support/measured.rs"]
mod measured;
#[path = "support/process.rs"]
mod process;
#[path = "support/work.rs"]
mod work;

use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use compile::{as_c_string, function, library};
use measured::{assert_exact, ticks};
use process::{child, soak, succeed, turn};
use sigprof::cpu::{Engine, Profiler, Recording};
use sigprof::profile::{LabelValue, LocationId};
use sigprof::{ErrorKind, Profile};
use work::{StopOnDrop, burn, process_cpu, thread_cpu};

const SECOND: Duration = Duration::from_secs(1);

fn profiler(frequency_hz: u32) -> Profiler {
    let profiler = Profiler::new().frequency_hz(frequency_hz);
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler
}

fn start(frequency_hz: u32) -> Recording {
    profiler(frequency_hz)
        .start()
        .expect("nothing else records")
}

fn raise() {
    // SAFETY: a signal to the calling thread.
    unsafe { libc::raise(libc::SIGPROF) };
}

#[test]
fn frequencies_and_depths_out_of_range_are_refused() {
    let _turn = turn();
    for frequency_hz in [0, 10_001, u32::MAX] {
        let error = profiler(frequency_hz).start().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("from 1 to 10000 Hz"), "{error}");
    }
    for depth in [0, 513, usize::MAX] {
        let error = profiler(100).max_depth(depth).start().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("from 1 to 512"), "{error}");
    }
    for frequency_hz in [1, 10_000] {
        start(frequency_hz).stop().unwrap();
    }
}

#[test]
fn a_second_start_leaves_the_running_recording_alone() {
    let _turn = turn();
    let recording = start(1);
    for _ in 0..10 {
        raise();
    }
    let error = profiler(100).start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyRunning);
    for _ in 0..10 {
        raise();
    }
    let profile = recording.stop().unwrap();
    assert!(profile.total(0) >= 20);
    assert_eq!(profile.period, 1_000_000_000);
}

#[test]
fn a_stopped_recording_says_so_and_the_next_one_starts_clean() {
    let _turn = turn();
    let first = start(1);
    for _ in 0..5 {
        raise();
    }
    assert!(first.stop().unwrap().total(0) >= 5);
    for error in [first.stop().unwrap_err(), first.snapshot().unwrap_err()] {
        assert!(error.to_string().contains("stopped before"), "{error}");
    }
    raise();
    let second = start(1);
    assert!(second.stats().samples <= 1, "{}", second.stats());
    drop(first);
    for _ in 0..7 {
        raise();
    }
    let profile = second.stop().unwrap();
    assert!((7..=8).contains(&ticks(&profile)), "{}", second.stats());
}

#[test]
fn a_recording_that_is_dropped_is_stopped() {
    let _turn = turn();
    drop(start(1000));
    start(1000).stop().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _recording = start(1000);
        panic!("with a recording alive (this panic is part of the test)");
    }));
    assert!(panicked.is_err());
    start(1000).stop().unwrap();
}

#[test]
fn a_signal_after_the_stop_does_nothing() {
    let _turn = turn();
    start(10_000).stop().unwrap();
    for _ in 0..100 {
        raise();
    }
}

#[inline(never)]
fn raising_function(n: u32) {
    for _ in 0..n {
        raise();
    }
    std::hint::black_box(n);
}

/// Samples of the calling thread, without what its timer added: the recording ran at 1 Hz.
fn raised_by_this_thread(profile: &Profile) -> i64 {
    // SAFETY: no arguments, cannot fail.
    let tid = unsafe { libc::gettid() };
    profile
        .samples()
        .filter(|sample| {
            sample.labels.iter().any(|label| {
                profile.string(label.key) == "thread_id"
                    && matches!(label.value, LabelValue::Num { value, .. } if value == tid.into())
            })
        })
        .map(|sample| sample.values[0])
        .sum()
}

#[test]
fn every_signal_that_the_program_raises_is_a_sample() {
    let _turn = turn();
    const N: u32 = 20_000;
    let recording = start(1);
    raising_function(N);
    let profile = recording.stop().unwrap();
    let stats = recording.stats();
    assert_exact(&stats, &profile);
    assert_eq!(stats.lost.total(), 0, "{stats}");
    // The thread's own clock has ticked once a second of its CPU time.
    let of_timer = stats.samples - u64::from(N);
    assert!(of_timer <= 1, "{stats}");
    assert!((i64::from(N)..=i64::from(N) + 1).contains(&raised_by_this_thread(&profile)));
}

#[test]
fn a_snapshot_loses_no_tick() {
    let _turn = turn();
    let stop = AtomicBool::new(false);
    let raised = AtomicU64::new(0);
    let recording = start(1);
    let mut last = 0;
    thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    raise();
                    raised.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_micros(20));
                }
            });
        }
        for _ in 0..50 {
            let so_far = ticks(&recording.snapshot().unwrap());
            assert!(so_far >= last, "a snapshot forgets nothing");
            last = so_far;
            thread::sleep(Duration::from_millis(2));
        }
        drop(stopping);
    });
    let profile = recording.stop().unwrap();
    let stats = recording.stats();
    assert_exact(&stats, &profile);
    let raised = raised.into_inner();
    // Up to a tick a second of CPU time on each thread besides.
    assert!(
        (raised..=raised + 3).contains(&(stats.ticks)),
        "{raised} raised: {stats}"
    );
}

#[test]
fn ticks_are_cpu_time() {
    let _turn = turn();
    for (engine, frequency_hz) in [
        (Engine::ThreadTimer, 100),
        (Engine::ThreadTimer, 1000),
        (Engine::ThreadTimer, 10_000),
        (Engine::ProcessTimer, 1000),
    ] {
        let recording = profiler(frequency_hz).engine(engine).start().unwrap();
        let before = process_cpu();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| burn(SECOND / 2));
            }
        });
        let mut truth = process_cpu() - before;
        // The process's clock has the profiler's thread in it, and so have its ticks.
        if engine != Engine::ProcessTimer {
            truth -= recording.stats().own_cpu;
        }
        let profile = recording.stop().unwrap();
        let stats = recording.stats();
        assert_exact(&stats, &profile);
        assert_eq!(stats.engine, engine);
        let ratio = profile.total(1) as f64 / truth.as_nanos() as f64;
        assert!(
            (0.95..1.05).contains(&ratio),
            "{engine:?} at {frequency_hz} Hz saw {ratio:.3} of {truth:?}\n{stats}"
        );
    }
}

#[test]
fn samples_carry_their_threads_names() {
    let _turn = turn();
    let recording = start(1000);
    thread::scope(|scope| {
        for name in ["reader", "writer"] {
            thread::Builder::new()
                .name(name.into())
                .spawn_scoped(scope, || burn(SECOND / 5))
                .unwrap();
        }
    });
    let profile = recording.stop().unwrap();
    for name in ["reader", "writer"] {
        let weight: i64 = profile
            .samples()
            .filter(|sample| {
                sample.labels.iter().any(|label| {
                    profile.string(label.key) == "thread"
                        && matches!(label.value, LabelValue::Str(value) if profile.string(value) == name)
                })
            })
            .map(|sample| sample.values[0])
            .sum();
        assert!(
            (150..=230).contains(&weight),
            "{name}: {weight} of about 200"
        );
    }
}

#[test]
fn the_profilers_own_thread_is_named_and_not_sampled() {
    let _turn = turn();
    let recording = start(1000);
    // A thread sets its name itself, after the start, and one that was joined is listed for a moment.
    let wait_for_threads = |count| {
        let deadline = Instant::now() + 60 * SECOND;
        loop {
            let listed = std::fs::read_dir("/proc/self/task")
                .unwrap()
                .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
                .filter(|name| name == "sigprof\n")
                .count();
            if listed == count {
                return;
            }
            assert!(Instant::now() < deadline, "{listed} threads, not {count}");
            thread::sleep(Duration::from_millis(1));
        }
    };
    wait_for_threads(1);
    recording.stop().unwrap();
    wait_for_threads(0);
    let timers = std::fs::read_to_string("/proc/self/timers").unwrap_or_default();
    assert_eq!(timers, "", "no timer while nothing is recorded");
}

extern "C" fn keep_none(_: *mut libc::c_void) -> libc::c_int {
    0
}

extern "C" fn keep_odd(counter: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the test passes a counter that outlives the recording.
    let counter = unsafe { &*counter.cast::<AtomicU64>() };
    (counter.fetch_add(1, Ordering::Relaxed) % 2) as libc::c_int
}

#[test]
fn a_filter_drops_ticks_and_they_are_counted() {
    let _turn = turn();
    // SAFETY: the function does nothing.
    let recording = unsafe { profiler(1).filter(keep_none, std::ptr::null_mut()) }
        .start()
        .unwrap();
    raising_function(100);
    let profile = recording.stop().unwrap();
    assert_eq!(ticks(&profile), 0);
    assert!(recording.stats().lost.filtered >= 100);
    assert_exact(&recording.stats(), &profile);

    let counter = AtomicU64::new(0);
    let argument = std::ptr::from_ref(&counter).cast_mut().cast();
    // SAFETY: one atomic addition to a counter that outlives the recording.
    let recording = unsafe { profiler(1).filter(keep_odd, argument) }
        .start()
        .unwrap();
    raising_function(100);
    let profile = recording.stop().unwrap();
    assert!(
        (50..=51).contains(&ticks(&profile)),
        "{}",
        recording.stats()
    );
    assert_exact(&recording.stats(), &profile);
}

#[inline(never)]
fn recurse(depth: u32, at_the_leaf: &mut dyn FnMut()) {
    match depth {
        0 => at_the_leaf(),
        _ => recurse(depth - 1, at_the_leaf),
    }
    std::hint::black_box(depth);
}

fn name_of(profile: &Profile, location: LocationId) -> &str {
    let line = profile.location(location).lines.first();
    line.map_or("", |line| {
        profile.string(profile.function(line.function).name)
    })
}

#[test]
fn a_stack_deeper_than_asked_for_keeps_its_leaf_end_and_counts() {
    let _turn = turn();
    for (depth, max_depth) in [(600, 512), (100, 10), (100, 1)] {
        let recording = profiler(1).max_depth(max_depth).start().unwrap();
        recurse(depth, &mut || raising_function(10));
        let profile = recording.stop().unwrap();
        let stats = recording.stats();
        assert!((10..=11).contains(&stats.truncated.depth), "{stats}");
        let deepest = profile.samples().max_by_key(|s| s.stack.len()).unwrap();
        let (root, frames) = deepest.stack.split_last().unwrap();
        assert_eq!(frames.len(), max_depth);
        assert_eq!(name_of(&profile, *root), "[truncated: depth]");
    }
}

#[test]
fn whole_stacks_end_at_their_roots() {
    let _turn = turn();
    let recording = start(1000);
    thread::scope(|scope| {
        scope.spawn(|| recurse(100, &mut || burn(SECOND / 5)));
        recurse(50, &mut || burn(SECOND / 5));
    });
    recording.stop().unwrap();
    let stats = recording.stats();
    assert!(stats.records > 50, "{stats}");
    // A tick that falls into the kernel's entry of a new thread, or into code without unwind data,
    // may be cut.
    assert!(stats.truncated.total() * 50 <= stats.records, "{stats}");
}

#[test]
fn errno_is_left_alone() {
    let _turn = turn();
    let recording = start(10_000);
    let end = thread_cpu() + SECOND;
    while thread_cpu() < end {
        for value in [0, libc::EAGAIN, 12345] {
            // SAFETY: errno of this thread.
            unsafe { *libc::__errno_location() = value };
            let mut i = 0;
            while i < 2000 {
                i = std::hint::black_box(i) + 1;
            }
            // SAFETY: as above.
            assert_eq!(unsafe { *libc::__errno_location() }, value);
        }
    }
    assert!(recording.stats().records > 100, "{}", recording.stats());
}

#[test]
fn hundreds_of_starts_and_stops_under_load() {
    let _turn = turn();
    // From then on the signal has a handler, and harms nobody while nothing is recorded.
    drop(start(10_000));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    burn(Duration::from_millis(1));
                    raise();
                }
            });
        }
        for _ in 0..(300.0 * soak()) as u32 {
            let recording = start(10_000);
            let profile = recording.stop().unwrap();
            assert_exact(&recording.stats(), &profile);
        }
        drop(stopping);
    });
}

#[test]
fn thousands_of_threads_of_a_millisecond() {
    let _turn = turn();
    let recording = start(10_000);
    for _ in 0..(300.0 * soak()) as u32 {
        thread::scope(|scope| {
            // With the one that starts them no more than there are lanes: each can lose its CPU in
            // its handler, where that takes long (without optimization, before there are tables).
            for _ in 0..7 {
                scope.spawn(|| burn(Duration::from_millis(1)));
            }
        });
    }
    let profile = recording.stop().unwrap();
    let stats = recording.stats();
    assert_exact(&stats, &profile);
    assert!(stats.threads_armed > 100, "{stats}");
    assert_eq!(stats.lost.no_lane + stats.lost.lane_full, 0, "{stats}");
}

#[test]
fn panics_unwind_while_sampled() {
    let _turn = turn();
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let recording = start(10_000);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let end = thread_cpu() + SECOND;
                let mut caught = 0;
                while thread_cpu() < end {
                    let result = catch_unwind(|| recurse(20, &mut || panic!("of the test")));
                    caught += u32::from(result.is_err());
                }
                assert!(caught > 10);
            });
        }
        scope.spawn(|| {
            let end = thread_cpu() + SECOND;
            while thread_cpu() < end {
                std::hint::black_box(std::backtrace::Backtrace::force_capture().to_string());
            }
        });
    });
    let profile = recording.stop().unwrap();
    std::panic::set_hook(quiet);
    assert_exact(&recording.stats(), &profile);
    assert!(recording.stats().records > 300, "{}", recording.stats());
}

#[test]
fn a_foreign_handler_is_an_error_and_stays() {
    succeed(&mut child("child_with_a_foreign_handler"));
}

extern "C" fn foreign_handler(_: libc::c_int) {
    FOREIGN.fetch_add(1, Ordering::Relaxed);
}

static FOREIGN: AtomicU64 = AtomicU64::new(0);

#[test]
#[ignore = "a child process"]
fn child_with_a_foreign_handler() {
    // SAFETY: the handler is one atomic addition.
    unsafe { libc::signal(libc::SIGPROF, foreign_handler as *const () as usize) };
    let error = profiler(100).start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SignalInUse);
    assert!(
        error.to_string().contains("another SIGPROF handler"),
        "{error}"
    );
    raise();
    assert_eq!(FOREIGN.load(Ordering::Relaxed), 1);
    // SAFETY: the default action.
    unsafe { libc::signal(libc::SIGPROF, libc::SIG_DFL) };
    start(100).stop().unwrap();
}

/// Runs `f` in a forked child, which must return true; `fork` in the middle of other threads' work.
fn in_forked_child(f: impl FnOnce() -> bool) {
    // SAFETY: the child calls `f` and leaves by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let good = catch_unwind(AssertUnwindSafe(f)).unwrap_or(false);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(if good { 0 } else { 1 }) };
        }
        child => {
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: waits for the child made above.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                "the child ended with status {status:#x}"
            );
        }
    }
}

#[test]
fn a_forked_child_is_stopped_and_may_start_its_own() {
    succeed(&mut child("child_that_forks"));
}

#[test]
#[ignore = "a child process"]
fn child_that_forks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.prof");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    burn(Duration::from_millis(1));
                }
            });
        }
        let mut guard = profiler(10_000).start_to(&path).unwrap();
        for round in 0..(25.0 * soak()) as u32 {
            let mut inherited = Some(guard);
            in_forked_child(|| {
                let guard = inherited.take().unwrap();
                raise();
                burn(Duration::from_millis(2));
                let error = guard.recording().stop().unwrap_err();
                let foreign = error.kind() == ErrorKind::ForeignProcess;
                let nothing = guard.recording().stats().ticks == 0;
                drop(guard);
                let no_file = !path.exists();
                // Every other child profiles itself.
                if round % 2 == 0 {
                    let own = start(1);
                    raising_function(10);
                    let samples = ticks(&own.stop().unwrap());
                    return foreign && nothing && no_file && (10..=11).contains(&samples);
                }
                foreign && nothing && no_file
            });
            guard = inherited.take().unwrap();
        }
        let profile = guard.finish().unwrap();
        assert!(profile.total(0) > 0);
        assert!(path.exists());
        drop(stopping);
    });
}

#[test]
fn nothing_of_ours_survives_exec() {
    let output = succeed(&mut child("child_that_execs"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("the new program ends"));
}

#[test]
#[ignore = "a child process"]
fn child_that_execs() {
    let _recording = profiler(10_000)
        .engine(Engine::ProcessTimer)
        .start()
        .unwrap();
    burn(SECOND / 20);
    // Some 100 ms of CPU time in a program that has no SIGPROF handler.
    let error = Command::new("sh")
        .args([
            "-c",
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo the new program ends",
        ])
        .exec();
    panic!("{error}");
}

#[test]
fn children_of_a_recorded_process_run_to_their_end() {
    let _turn = turn();
    let recording = start(10_000);
    for _ in 0..20 {
        let script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done";
        succeed(Command::new("sh").args(["-c", script]));
    }
    recording.stop().unwrap();
}

#[test]
fn main_may_return_with_a_recording_alive() {
    for how in ["return", "exit"] {
        succeed(child("child_that_leaves_a_recording").env("HOW", how));
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_leaves_a_recording() {
    let stop_never = || loop {
        burn(SECOND);
    };
    for _ in 0..2 {
        thread::spawn(stop_never);
    }
    Box::leak(Box::new(start(10_000)));
    burn(SECOND / 5);
    if std::env::var("HOW").unwrap() == "exit" {
        std::process::exit(0);
    }
}

#[test]
fn libraries_come_and_go_while_sampled() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let library = library(
        directory.path(),
        "lib.c",
        "unsigned spin(unsigned n) { unsigned x = 1; for (unsigned i = 0; i < n; i++) x = x * 31 + i; return x; }\n\
         unsigned call_back(unsigned (*f)(void)) { volatile unsigned r = f(); return r + 1; }\n",
        &[],
    );
    let library = as_c_string(&library);

    extern "C" fn callback() -> libc::c_uint {
        burn(Duration::from_micros(200));
        7
    }
    let recording = start(10_000);
    let end = Instant::now() + (2 * SECOND).mul_f64(soak());
    let opened = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < end {
                    // SAFETY: the library has no constructors; its functions have these types; it
                    // is closed after use.
                    unsafe {
                        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
                        assert!(!handle.is_null());
                        let spin: extern "C" fn(libc::c_uint) -> libc::c_uint =
                            std::mem::transmute(function(handle, c"spin"));
                        let call_back: extern "C" fn(
                            extern "C" fn() -> libc::c_uint,
                        ) -> libc::c_uint = std::mem::transmute(function(handle, c"call_back"));
                        std::hint::black_box(spin(20_000));
                        assert_eq!(call_back(callback), 8);
                        assert_eq!(libc::dlclose(handle), 0);
                    }
                    opened.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let profile = recording.stop().unwrap();
    assert!(opened.into_inner() > 100);
    assert_exact(&recording.stats(), &profile);
    for location in profile.locations() {
        if let Some(mapping) = location.mapping {
            let mapping = profile.mapping(mapping);
            assert!((mapping.memory_start..mapping.memory_limit).contains(&location.address));
        }
    }
}
