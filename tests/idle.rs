//! What is left of a profiler that does not record: nothing. In a test binary of its own, whose
//! threads and files are known.

#[path = "support/process.rs"]
mod process;

use std::fs;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use process::{child, skip, soak, succeed};
use sigprof::cpu::Profiler;

fn profiler() -> Profiler {
    let profiler = Profiler::new();
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler
}

fn work() {
    for _ in 0..20 {
        // SAFETY: a signal to the calling thread.
        unsafe { libc::raise(libc::SIGPROF) };
    }
}

/// What a process holds of the system's.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Held {
    threads: Vec<String>,
    files: Vec<String>,
    timers: String,
}

impl Held {
    fn now() -> Self {
        let mut threads: Vec<String> = entries("/proc/self/task")
            .iter()
            .filter_map(|tid| fs::read_to_string(format!("/proc/self/task/{tid}/comm")).ok())
            .collect();
        threads.sort();
        let mut files = entries("/proc/self/fd");
        // The one that lists them is gone.
        files.retain(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).is_ok());
        Self {
            threads,
            files,
            // A kernel without CONFIG_CHECKPOINT_RESTORE has no such list.
            timers: fs::read_to_string("/proc/self/timers").unwrap_or_default(),
        }
    }

    /// As [`now`](Self::now), once the profiler's thread is there under its name, which the thread
    /// itself sets, and a start does not wait for that.
    fn once_named() -> Self {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let held = Self::now();
            if held.threads.iter().any(|name| name == "sigprof\n") {
                return held;
            }
            assert!(Instant::now() < deadline, "{held:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// As [`now`](Self::now), once that is `expected` or a long time has gone by: a thread that was
    /// joined is still listed for a moment, which is as long as a crowded machine keeps it from its
    /// end.
    fn settled(expected: &Self) -> Self {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let held = Self::now();
            if held == *expected || Instant::now() > deadline {
                return held;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn entries(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut entries: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    entries.sort();
    entries
}

/// Memory of the process that no file is behind, in KiB.
fn anonymous_kib() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let field = field.expect("Linux 4.5 and newer have it");
    field.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn nothing_is_left_while_nothing_is_recorded() {
    succeed(&mut child("child_that_records_in_turns"));
}

#[test]
#[ignore = "a child process"]
fn child_that_records_in_turns() {
    const WARM_UP: u32 = 50;
    const CYCLES: u32 = 300;
    /// Less than a page for each cycle: a leak of a stack, a lane or a table is more.
    const BOUND_KIB: i64 = 256;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.prof");
    let before = Held::now();
    let mut warm = 0;
    for cycle in 0..WARM_UP + CYCLES {
        match cycle % 3 {
            0 => {
                let recording = profiler().start().unwrap();
                work();
                recording.stop().unwrap();
            }
            1 => {
                let _dropped = profiler().frequency_hz(10_000).start().unwrap();
                work();
            }
            _ => {
                let _written = profiler().start_to(&path).unwrap();
                work();
            }
        }
        if cycle % 50 == 0 {
            assert_eq!(Held::settled(&before), before, "after {cycle} cycles");
        }
        if cycle + 1 == WARM_UP {
            warm = anonymous_kib();
        }
    }
    assert_eq!(Held::settled(&before), before);
    let grown = anonymous_kib() - warm;
    println!("{grown} KiB more than the {warm} KiB before");
    assert!(
        grown <= BOUND_KIB,
        "{grown} KiB more than the {warm} KiB before"
    );
}

/// Runs `f` in a forked child, which must not panic.
fn in_forked_child(f: impl FnOnce()) {
    // SAFETY: this process has no other thread but the profiler's; the child calls `f` and leaves
    // by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let code = catch_unwind(AssertUnwindSafe(f)).is_err().into();
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) };
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child made above.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child says on stderr what it found");
        }
    }
}

#[test]
fn forks_leak_nothing() {
    succeed(&mut child("child_that_forks_in_a_loop"));
}

#[test]
#[ignore = "a child process"]
fn child_that_forks_in_a_loop() {
    let before = Held::now();
    let recording = profiler().start().unwrap();
    work();
    // At this frequency it holds no file open; it opens one for a moment, now and then, which must
    // not be in what is expected.
    let recorded = Held {
        files: before.files.clone(),
        ..Held::once_named()
    };
    let mut recording = Some(recording);
    for round in 0..(15.0 * soak()) as u32 {
        in_forked_child(|| {
            let inherited = recording.take();
            let at_first = Held::now();
            assert_eq!(at_first.threads.len(), 1, "the profiler's thread is gone");
            assert_eq!(at_first.timers, "", "a timer is not handed down");
            drop(inherited);
            for _ in 0..3 {
                let own = profiler().start().unwrap();
                work();
                own.stop().unwrap();
            }
            let held = Held::settled(&at_first);
            assert_eq!(held.threads, at_first.threads);
            assert_eq!(held.timers, "");
            assert!(held.files.len() <= at_first.files.len(), "{held:?}");
        });
        let held = Held::settled(&recorded);
        assert_eq!(held, recorded, "in the parent, after {round} forks");
    }
    drop(recording);
    assert_eq!(Held::settled(&before), before);
}

#[test]
fn a_program_may_close_all_its_files() {
    succeed(&mut child("child_that_closes_all_its_files"));
}

/// What a program opens after it has closed all of its files, but the standard streams.
static OWN_FILES: OnceLock<Vec<fs::File>> = OnceLock::new();

extern "C" fn close_all_files() {
    // SAFETY: closes what daemons close; nothing of this test's is in use but the standard streams.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } == 0 {
        let own = (0..8).map(|_| fs::File::open("/dev/null").unwrap());
        OWN_FILES.set(own.collect()).unwrap();
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_closes_all_its_files() {
    // The profiler opens a file for a moment, now and then, but never during a fork: its hook takes
    // a lock. Hooks registered earlier, as this one is, run later.
    // SAFETY: the hook is a function of this program's.
    unsafe { libc::pthread_atfork(Some(close_all_files), None, None) };
    let recording = profiler().start().unwrap();
    work();
    in_forked_child(|| ());
    let Some(own) = OWN_FILES.get() else {
        return skip("it needs Linux 5.9");
    };
    recording.stop().unwrap();
    for file in own {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let target = fs::read_link(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(target, Path::new("/dev/null"), "it is the program's");
    }
}

#[test]
fn a_program_may_close_all_its_files_at_any_moment() {
    succeed(&mut child(
        "child_that_closes_all_its_files_again_and_again",
    ));
}

#[test]
#[ignore = "a child process"]
fn child_that_closes_all_its_files_again_and_again() {
    let recording = profiler().start().unwrap();
    // For as long as the profiler looks at the program's threads a few dozen times.
    for _ in 0..200_000 {
        // SAFETY: as above.
        if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } != 0 {
            return skip("it needs Linux 5.9");
        }
    }
    recording.stop().unwrap();
}

#[test]
fn generations_of_forks_hand_nothing_down() {
    succeed(&mut child("child_of_generations"));
}

#[test]
#[ignore = "a child process"]
fn child_of_generations() {
    let files = Held::now().files.len();
    generation(1, files);
}

/// Each records, and forks the next while it does.
fn generation(number: u32, files: usize) {
    let recording = profiler().start().unwrap();
    work();
    let mut recording = Some(recording);
    in_forked_child(|| {
        drop(recording.take());
        let held = Held::now().files.len();
        assert_eq!(held, files, "files of generation {number}'s child");
        if number < 5 {
            generation(number + 1, files);
        }
    });
}
