//! What could break exact time: forks, programs that close what is not theirs, exec, and work that
//! ticks cannot interrupt.

use std::fs::{self, File};
use std::os::fd::{FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sigprof::cpu::Engine;

use crate::common::{
    Load, MS, Measured, deviation, engine_argument, figure, has_perf_events, hz_argument, profiler,
    ratio, run_child, run_threads, run_threads_with, soak, sum,
};
use crate::work::{StopOnDrop, burn, thread_cpu};

/// Descriptors of perf events that this process holds.
fn perf_events() -> usize {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    entries
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().contains("[perf_event]"))
        .count()
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: asks for a number's flags.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

#[test]
fn children_forked_while_events_record_are_left_in_peace() {
    if has_perf_events() {
        run_child("worst::child_that_forks", &[]);
    }
}

/// Runs `body` in a forked child to its end.
fn in_fork(body: impl FnOnce()) {
    // SAFETY: the child runs code that needs no lock which another thread could hold, but for the
    // allocator's, which glibc sees to; it leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: leaves without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the forked child failed");
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Puts a handler that counts in place of the one that is there.
fn count_signals() -> libc::sigaction {
    // SAFETY: zeros are a valid `sigaction`; the handler is one atomic addition.
    unsafe {
        let mut counting: libc::sigaction = std::mem::zeroed();
        counting.sa_sigaction = count as *const () as usize;
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPROF, &raw const counting, &raw mut before);
        before
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_forks() {
    let stop = AtomicBool::new(false);
    let outside = perf_events();
    let measured = Measured::start(profiler(Engine::PerfEvent, 10_000));
    let mut clocks = Duration::ZERO;
    thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let body = || {
                    while !stop.load(Ordering::Relaxed) {
                        burn(MS);
                    }
                    thread_cpu()
                };
                thread::Builder::new()
                    .name("beside".into())
                    .spawn_scoped(scope, body)
                    .unwrap()
            })
            .collect();
        for i in 0..20 {
            in_fork(|| {
                // Whatever the parent's events do, they do not signal this process.
                let before = count_signals();
                burn(10 * MS);
                assert_eq!(
                    SIGNALS.load(Ordering::Relaxed),
                    0,
                    "the child was signalled"
                );
                // SAFETY: what was there.
                unsafe { libc::sigaction(libc::SIGPROF, &raw const before, std::ptr::null_mut()) };
                if i % 4 != 0 {
                    return;
                }
                // A recording of its own works.
                let inherited = perf_events();
                let measured = Measured::start(profiler(Engine::PerfEvent, 10_000));
                let ran = run_threads([("in-fork".to_owned(), Load::Arithmetic, 100 * MS)]);
                let outcome = measured.stop();
                let seen = ratio(outcome.times().of_threads("in-fork", ""), sum(&ran));
                figure!(
                    "a forked child: yield {seen:.4}, {inherited} descriptors inherited, {} after its recording",
                    perf_events()
                );
                let tolerance = 0.03 + ratio(outcome.stolen, sum(&ran));
                assert!((seen - 1.0).abs() <= tolerance, "{}", outcome.stats);
                outcome.assert_total_within(3 * MS + outcome.stolen);
                assert!(perf_events() <= inherited, "its own are closed");
            });
        }
        drop(stopping);
        clocks = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
    });
    let outcome = measured.stop();
    let seen = ratio(outcome.times().of_threads("beside", ""), clocks);
    figure!(
        "beside forks: yield {seen:.4}, total {:.4}, stolen {:?}",
        outcome.ratio(),
        outcome.stolen
    );
    assert_eq!(perf_events(), outside, "no descriptor is left open");
    let tolerance = 0.01 + ratio(outcome.stolen, clocks);
    assert!(
        (seen - 1.0).abs() <= tolerance,
        "{seen:.4}\n{}",
        outcome.stats
    );
    outcome.assert_total_within(outcome.stolen);
}

#[test]
fn grandchildren_do_not_gather_descriptors() {
    if has_perf_events() {
        run_child("worst::child_of_many_generations", &[]);
    }
}

#[test]
#[ignore = "a child process"]
fn child_of_many_generations() {
    fn generation(left: u32) {
        let recording = profiler(Engine::PerfEvent, 1000).start().unwrap();
        let inherited = perf_events();
        if left > 0 {
            in_fork(|| generation(left - 1));
        } else {
            figure!("the fifth generation has {inherited} descriptors of events");
            // One for its one thread, and at most those of the generation before.
            assert!(inherited <= 4, "{inherited} descriptors were handed down");
        }
        recording.stop().unwrap();
    }
    generation(4);
}

#[test]
fn a_program_that_closes_every_descriptor_keeps_its_own_and_is_recorded_on() {
    if has_perf_events() {
        run_child("worst::child_that_closes_descriptors", &[]);
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_closes_descriptors() {
    let measured = Measured::start(profiler(Engine::PerfEvent, 1000));
    let stop_at = (2500 * MS).mul_f64(soak());
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let body = move || {
                burn(stop_at);
                thread_cpu()
            };
            thread::Builder::new()
                .name("outlasting".into())
                .spawn(body)
                .unwrap()
        })
        .collect();
    thread::sleep(200 * MS);
    let events = perf_events();
    assert!(events >= 3, "{events}");
    // SAFETY: what a daemon does that does not know who opened what. The test has nothing open
    // above 2 that it uses.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    assert_eq!(closed, 0);
    // The program's own files take the numbers.
    let files: Vec<(RawFd, u64)> = (0..40)
        .map(|_| {
            let file = tempfile::tempfile().unwrap();
            let inode = file.metadata().unwrap().ino();
            (file.into_raw_fd(), inode)
        })
        .collect();
    let cpu: Duration = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    // Threads that have ended may have been told to close what was theirs.
    thread::sleep(50 * MS);
    let outcome = measured.stop();
    for &(fd, inode) in &files {
        assert!(is_open(fd), "{fd} was closed");
        // SAFETY: the descriptor is open, and this test's.
        let file = unsafe { File::from_raw_fd(fd) };
        assert_eq!(
            file.metadata().unwrap().ino(),
            inode,
            "{fd} is another file"
        );
    }
    let seen = ratio(outcome.times().of_threads("outlasting", ""), cpu);
    figure!(
        "all descriptors closed: yield {seen:.4} of {cpu:.2?}, total {:.4}, {} armed",
        outcome.ratio(),
        outcome.stats.threads_armed
    );
    // Armed again within a second or so of the 5 in all.
    assert!(seen > 0.5, "{seen:.4}\n{}", outcome.stats);
    assert_eq!(perf_events(), 0, "no descriptor is left open");
    outcome.assert_total();
}

#[test]
fn a_program_started_by_exec_has_nothing_of_the_recording() {
    for engine in ["auto", "timer", "process"] {
        let arguments = [("ENGINE", engine), ("HZ", "10000")];
        let output = run_child("worst::child_that_execs", &arguments);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.contains("descriptors:"), "{stdout}");
        assert!(!stdout.contains("perf_event"), "{stdout}");
        assert!(stdout.contains("alive"), "{stdout}");
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_execs() {
    use std::os::unix::process::CommandExt;
    let _recording = profiler(engine_argument(), hz_argument()).start().unwrap();
    for _ in 0..4 {
        thread::spawn(|| burn(Duration::from_secs(20)));
    }
    burn(50 * MS);
    // CPU time enough for any clock that is left to tick, in a program without a handler.
    let script = "echo descriptors:; ls -l /proc/self/fd; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo alive";
    let error = std::process::Command::new("/bin/sh")
        .args(["-c", script])
        .exec();
    panic!("{error}");
}

#[test]
fn a_stop_while_threads_are_born_leaves_nothing_behind() {
    for engine in ["auto", "timer"] {
        run_child("worst::child_that_stops_at_births", &[("ENGINE", engine)]);
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_stops_at_births() {
    let stop = AtomicBool::new(false);
    let mut recordings = 0;
    thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let threads: Vec<_> = (0..8).map(|_| thread::spawn(|| burn(MS / 20))).collect();
                    threads
                        .into_iter()
                        .for_each(|thread| thread.join().unwrap());
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(2).mul_f64(soak());
        while Instant::now() < end {
            // At once: the stop comes while threads that the start saw begin are about to arm
            // themselves.
            let recording = profiler(engine_argument(), 1000).start().unwrap();
            thread::sleep(MS / 5 * (recordings % 7));
            recording.stop().unwrap();
            recordings += 1;
        }
    });
    // A thread that was late drops its clock itself, maybe a moment after the stop.
    thread::sleep(20 * MS);
    let timers = fs::read_to_string("/proc/self/timers").unwrap_or_default();
    figure!(
        "{recordings} stops among births; left behind: {} events, {} timers",
        perf_events(),
        timers.matches("ID:").count()
    );
    assert_eq!(perf_events(), 0);
    assert_eq!(timers, "");
    // And the next recording is as exact as the first.
    let measured = Measured::start(profiler(engine_argument(), 1000));
    let engine = measured.recording().stats().engine;
    let threads = (0..2).map(|i| (format!("after-{i}"), Load::Arithmetic, 600 * MS));
    let ran = run_threads_with(engine, threads);
    let outcome = measured.stop();
    let in_stacks = outcome.times().of_threads("after", "");
    let off = deviation(in_stacks, &ran);
    figure!(
        "after them: yield {:.4}, off by {off:?}, total {:.4}",
        ratio(in_stacks, sum(&ran)),
        outcome.ratio()
    );
    assert!(
        off <= sum(&ran).mul_f64(0.015) + outcome.stolen,
        "{off:?}\n{}",
        outcome.stats
    );
    outcome.assert_total();
}

#[test]
fn long_system_calls_are_in_stacks() {
    for engine in ["auto", "timer"] {
        run_child("worst::child_of_long_system_calls", &[("ENGINE", engine)]);
    }
}

/// Calls that take many periods each: a signal is delivered when a call returns, so one has to
/// stand for all of them.
#[test]
#[ignore = "a child process"]
fn child_of_long_system_calls() {
    let measured = Measured::start(profiler(engine_argument(), 10_000));
    let body = || {
        const LEN: usize = 32 * 1024 * 1024;
        // SAFETY: a file in memory; a name that ends in zero.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"long".as_ptr(), 0)) };
        let mut buffer = vec![1_u8; LEN];
        file.write_all_at(&buffer, 0).unwrap();
        while thread_cpu() < 800 * MS {
            // Some milliseconds in one call, which no signal cuts short.
            file.read_exact_at(&mut buffer, 0).unwrap();
        }
        // The kernel frees 64 MiB, which is work that the clock is to have, too.
        drop((file, buffer));
        thread_cpu()
    };
    let thread = thread::Builder::new()
        .name("in-kernel".into())
        .spawn(body)
        .unwrap();
    let cpu = thread.join().unwrap();
    let outcome = measured.stop();
    let seen = ratio(outcome.times().of_threads("in-kernel", ""), cpu);
    figure!(
        "long system calls: yield {seen:.4}, total {:.4}, {:?}",
        outcome.ratio(),
        outcome.stats.engine
    );
    outcome.assert_total();
    let tolerance = 0.015 + ratio(outcome.stolen, cpu);
    assert!(
        (seen - 1.0).abs() <= tolerance,
        "{seen:.4}\n{}",
        outcome.stats
    );
}
