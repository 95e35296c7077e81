//! What `libsigprof.so` costs a program that has it preloaded and records nothing, and how long
//! `ProfilerStart` takes. Runs with and without the library take turns; figures are medians.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[path = "../tests/capi/library.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod library;
#[path = "../tests/support/process.rs"]
mod process;

use library::{compiled, made, plain};
use process::succeed;

/// Runs of each kind.
const RUNS: usize = 301;

fn main() {
    // `cargo test` only wants to see that this works.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (profile, runs) = if is_bench {
        ("release", RUNS)
    } else {
        ("dev", 3)
    };
    let directory = tempfile::tempdir().unwrap();
    let library = made(profile);
    let program = compiled("cc", "reports.c", directory.path(), &[]);

    let [mut without, mut with, mut started] = [const { Vec::new() }; 3];
    for _ in 0..runs {
        without.push(Run::of(plain(&program)));
        let mut command = plain(&program);
        command.env("LD_PRELOAD", &library);
        with.push(Run::of(command));
        let mut command = plain(&program);
        command.env("LD_PRELOAD", &library);
        command.arg(directory.path().join("cpu.prof"));
        started.push(Run::of(command));
    }
    let [before, after] = [&without, &with].map(|runs| median(runs, |run| run.elapsed));
    let [less, more] = [&without, &with].map(|runs| median(runs, |run| run.resident_kib));
    let threads = with.iter().map(|run| run.threads).max();
    println!(
        "library, stripped: {:.2} MiB",
        stripped_bytes(&library, directory.path()) / MIB
    );
    println!("a program that does nothing: {before:.2?}; with the library preloaded: {after:.2?}");
    println!("resident: {less} KiB; with the library preloaded: {more} KiB");
    println!(
        "threads with the library preloaded: {}",
        threads.unwrap_or(0)
    );
    println!("ProfilerStart: {:.2?}", median(&started, |run| run.start));
}

const MIB: f64 = (1 << 20) as f64;

/// What a run came to.
struct Run {
    /// From before the program was started to its end.
    elapsed: Duration,
    resident_kib: u64,
    threads: u64,
    /// What `ProfilerStart` took.
    start: Duration,
}

impl Run {
    fn of(mut command: Command) -> Self {
        let begun = Instant::now();
        let output = succeed(&mut command);
        let elapsed = begun.elapsed();
        let figures = String::from_utf8(output.stdout).unwrap();
        let figures: Vec<u64> = figures
            .split_whitespace()
            .map(|figure| figure.parse().unwrap())
            .collect();
        let [resident_kib, threads, start_ns] = figures[..] else {
            panic!("{figures:?}");
        };
        Self {
            elapsed,
            resident_kib,
            threads,
            start: Duration::from_nanos(start_ns),
        }
    }
}

fn median<T: Ord>(runs: &[Run], figure: impl Fn(&Run) -> T) -> T {
    let mut figures: Vec<T> = runs.iter().map(figure).collect();
    figures.sort_unstable();
    let middle = figures.len() / 2;
    figures.swap_remove(middle)
}

fn stripped_bytes(library: &Path, directory: &Path) -> f64 {
    let stripped: PathBuf = directory.join("stripped.so");
    succeed(Command::new("strip").arg("-o").args([&stripped, library]));
    stripped.metadata().unwrap().len() as f64
}
