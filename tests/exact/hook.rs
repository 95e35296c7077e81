//! New threads arm themselves: those of a library that was opened meanwhile, too, and while
//! recordings start and stop.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sigprof::cpu::Engine;

use crate::common::{
    MS, Measured, Times, argument, figure, has_perf_events, profiler, ratio, run_child, soak,
};
use crate::support::{run, tool};
use crate::work::{StopOnDrop, burn};

/// A library that runs threads of its own: `threads` one after the other, each for `ns` of its CPU
/// clock, which it adds up.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

static long long clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *body(void *argument) {
    long long *ns = argument, until = *ns;
    pthread_setname_np(pthread_self(), "of-library");
    volatile unsigned x = 1;
    while (clock_ns() < until)
        for (int i = 0; i < 20000; i++) x = x * 1664525u + 1013904223u;
    *ns = clock_ns();
    return 0;
}

long long run_threads(int threads, long long ns) {
    long long sum = 0;
    for (int i = 0; i < threads; i++) {
        long long of_thread = ns;
        pthread_t thread;
        if (pthread_create(&thread, 0, body, &of_thread)) return -1;
        pthread_join(thread, 0);
        sum += of_thread;
    }
    return sum;
}
"#;

type RunThreads = extern "C" fn(libc::c_int, i64) -> i64;

fn library(directory: &Path, gcc: &Path, binding: &str) -> PathBuf {
    let source = directory.join("threads.c");
    fs::write(&source, LIBRARY).unwrap();
    let library = directory.join("libthreads.so");
    let mut command = Command::new(gcc);
    command
        .args(["-O1", "-fPIC", "-shared", "-o"])
        .arg(&library)
        .arg(&source);
    command.args(["-Wl,-z,relro", binding, "-lpthread"]);
    run(&mut command);
    library
}

#[test]
fn a_library_opened_while_recording_has_its_threads_seen() {
    let (Some(gcc), true) = (tool("gcc"), has_perf_events()) else {
        return;
    };
    for binding in ["-Wl,-z,now", "-Wl,-z,lazy"] {
        let directory = tempfile::tempdir().unwrap();
        let library = library(directory.path(), &gcc, binding);
        run_child(
            "hook::child_that_opens_a_library",
            &[("LIBRARY", library.to_str().unwrap()), ("BINDING", binding)],
        );
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_opens_a_library() {
    let path = CString::new(argument("LIBRARY").unwrap()).unwrap();
    let run_threads = |library: *mut libc::c_void| {
        // SAFETY: the library has the function, of this type.
        unsafe {
            let function = libc::dlsym(library, c"run_threads".as_ptr());
            assert!(!function.is_null());
            std::mem::transmute::<*mut libc::c_void, RunThreads>(function)
        }
    };
    let open = || {
        // SAFETY: a library of the test's, without constructors.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        assert!(!library.is_null());
        library
    };
    let mut seen = Vec::new();
    for round in 0..3 {
        let measured = Measured::start(profiler(Engine::PerfEvent, 10_000));
        let library = open();
        let function = run_threads(library);
        // The call is bound before the hook comes in every second round.
        if round % 2 == 1 {
            assert!(function(1, 1_000_000) > 0);
        }
        // A look at the modules keeps to a small part of a CPU, and costs ten times as much without
        // optimization.
        thread::sleep(if cfg!(debug_assertions) {
            500 * MS
        } else {
            50 * MS
        });
        let before = measured.recording().snapshot().unwrap();
        let before = Times::of(&before).of_threads("of-library", "");
        let cpu = function(24, 10_000_000);
        assert!(cpu > 0);
        let outcome = measured.stop();
        assert!(outcome.stats.threads_hooked, "{}", outcome.stats);
        let in_stacks = outcome.times().of_threads("of-library", "") - before;
        let part = ratio(in_stacks, Duration::from_nanos(cpu as u64));
        figure!(
            "threads of a library, {}: yield {part:.4}, total {:.4}",
            argument("BINDING").unwrap(),
            outcome.ratio()
        );
        outcome.assert_total();
        seen.push((
            part,
            ratio(outcome.stolen, Duration::from_nanos(cpu as u64)),
        ));
        // After the stop the library's threads are its own affair; and it may be closed.
        assert!(function(2, 1_000_000) > 0);
        // SAFETY: none of the library's threads runs, and nothing of it is used later.
        assert_eq!(unsafe { libc::dlclose(library) }, 0);
    }
    // Threads of 10 ms that are found by a look every 10 ms would be seen by half.
    for (part, of_stolen) in seen {
        assert!((part - 1.0).abs() <= 0.03 + of_stolen.min(0.1), "{part:.4}");
    }
}

/// What leads to `pthread_create` in this program is, after the stop, what it was before the start.
#[test]
fn libraries_come_and_go_while_recordings_do() {
    if let Some(gcc) = tool("gcc") {
        let directory = tempfile::tempdir().unwrap();
        let library = library(directory.path(), &gcc, "-Wl,-z,now");
        run_child(
            "hook::child_of_passing_libraries",
            &[("LIBRARY", library.to_str().unwrap())],
        );
    }
}

#[test]
#[ignore = "a child process"]
fn child_of_passing_libraries() {
    let path = CString::new(argument("LIBRARY").unwrap()).unwrap();
    let stop = AtomicBool::new(false);
    let opened = AtomicU32::new(0);
    let mut recordings = 0;
    thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the library has the function, of this type; its threads have ended when
                // it is closed.
                unsafe {
                    let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
                    assert!(!library.is_null());
                    let function = libc::dlsym(library, c"run_threads".as_ptr());
                    let function = std::mem::transmute::<*mut libc::c_void, RunThreads>(function);
                    assert!(function(2, 200_000) > 0);
                    assert_eq!(libc::dlclose(library), 0);
                }
                opened.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                thread::spawn(|| burn(MS / 5)).join().unwrap();
            }
        });
        let end = Instant::now() + Duration::from_secs(2).mul_f64(soak());
        while Instant::now() < end {
            let measured = Measured::start(profiler(Engine::Auto, 1000));
            thread::sleep(MS * (recordings % 15));
            measured.stop().assert_total_within(10 * MS);
            recordings += 1;
        }
    });
    figure!(
        "{recordings} recordings while a library was opened and closed {} times",
        opened.into_inner()
    );
    assert!(recordings > 10);
}

#[test]
fn the_words_of_new_threads_are_put_back() {
    run_child("hook::child_whose_words_are_compared", &[]);
}

/// The executable's and its libraries' own pages of calls, as the process has them: relocated data
/// that nothing writes to later.
fn relocated_words() -> Vec<(usize, Vec<u8>)> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let memory = fs::File::open("/proc/self/mem").unwrap();
    let mut pages = Vec::new();
    for line in maps.lines() {
        // Read-only pages of files that were written to once: RELRO, which is where a program
        // linked by rustc has its words.
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [range, "r--p", offset, _, _, path, ..] = columns[..] else {
            continue;
        };
        if offset == "00000000" || !path.starts_with('/') {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).unwrap());
        let mut bytes = vec![0; end - start];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, start as u64).unwrap();
        pages.push((start, bytes));
    }
    pages
}

#[test]
#[ignore = "a child process"]
fn child_whose_words_are_compared() {
    // Once, so that what is bound at the first call, is.
    profiler(Engine::Auto, 1000)
        .start()
        .unwrap()
        .stop()
        .unwrap();
    let before = relocated_words();
    let recording = profiler(Engine::Auto, 1000).start().unwrap();
    assert!(recording.stats().threads_hooked, "{}", recording.stats());
    let meanwhile = relocated_words();
    recording.stop().unwrap();
    let after = relocated_words();
    let bytes: usize = before.iter().map(|(_, bytes)| bytes.len()).sum();
    figure!(
        "{bytes} bytes compared in {} mappings; changed meanwhile: {}",
        before.len(),
        before != meanwhile
    );
    assert!(
        before != meanwhile,
        "no word was changed, so nothing is compared"
    );
    assert!(before == after, "a word is not what it was");
}
