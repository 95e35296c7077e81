//! Programs that nobody here wrote, with the library preloaded.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::library::library;
use crate::process::output;
use crate::support::{go_pprof, run, tool};

/// A program, without variables of ours.
fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in ["CPUPROFILE", "CPUPROFILE_FREQUENCY", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    command
}

/// The same with a profile at 1000 Hz.
fn profiled(program: &Path, file: &Path) -> Command {
    let mut command = plain(program);
    command.env("LD_PRELOAD", library());
    command
        .env("CPUPROFILE", file)
        .env("CPUPROFILE_FREQUENCY", "1000");
    command
}

/// What the line of gperftools says that a profile ends with.
struct Told {
    samples: u64,
    bytes: u64,
}

/// What the program says on stderr less that line, and what the line says.
fn without_line(output: &Output) -> (String, Option<Told>) {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    let (line, others): (Vec<&str>, Vec<&str>) = stderr
        .split_inclusive('\n')
        .partition(|line| line.starts_with("PROFILE: "));
    assert!(line.len() <= 1, "more than one profile's line:\n{stderr}");
    let Some(line) = line.first() else {
        return (stderr, None);
    };
    let figures = line.strip_prefix("PROFILE: interrupts/evictions/bytes = ");
    let figures: Vec<u64> = figures
        .expect("gperftools' words")
        .trim_end()
        .split('/')
        .map(|figure| figure.parse().unwrap())
        .collect();
    let told = Told {
        samples: figures[0],
        bytes: figures[2],
    };
    (others.concat(), Some(told))
}

/// Runs a program with and without a profile: it does the same. The profile's file, and what was
/// told of it.
fn record(directory: &Path, program: &Path, arguments: &[&OsStr]) -> (PathBuf, Option<Told>) {
    let file = directory.join("cpu.prof");
    let without = output(plain(program).args(arguments)).unwrap();
    let with = output(profiled(program, &file).args(arguments)).unwrap();
    let (stderr, told) = without_line(&with);
    assert_eq!(with.status, without.status, "{with:?}");
    assert_eq!(with.stdout, without.stdout);
    assert_eq!(stderr, String::from_utf8_lossy(&without.stderr));
    (file, told)
}

/// The names of the functions with the most time, of their own or of what they call.
fn top(go: &Path, options: &[&str], file: &Path) -> String {
    let options = [&["-top"], options].concat();
    let top = go_pprof(go, &options, file);
    top.stdout
}

/// The size of a gperftools file before its text, and the sum of its counts.
fn legacy_sizes(file: &Path) -> (u64, u64) {
    let bytes = fs::read(file).unwrap();
    let slot = |i: usize| u64::from_ne_bytes(bytes[i * 8..][..8].try_into().unwrap());
    let (mut at, mut samples) = (5, 0);
    while [slot(at), slot(at + 1), slot(at + 2)] != [0, 1, 0] {
        samples += slot(at);
        at += 2 + slot(at + 1) as usize;
    }
    (8 * (at as u64 + 3), samples)
}

#[test]
fn python_with_threads_does_the_same_and_its_interpreter_shows() {
    let (Some(python), Some(go)) = (tool("python3"), tool("go")) else {
        return;
    };
    // What is on the path can be a script that starts the interpreter.
    let itself = run(Command::new(python).args(["-c", "import sys; print(sys.executable)"]));
    let python = PathBuf::from(itself.stdout.trim_end());
    let directory = tempfile::tempdir().unwrap();
    let program = "
import threading, sys, os
def work(): sum(i * i for i in range(1000000))
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]; work(); [t.join() for t in threads]
print('done', file=sys.stderr); print(42); sys.exit(3)
";
    let arguments = [OsStr::new("-c"), OsStr::new(program)];
    let (file, told) = record(directory.path(), &python, &arguments);
    let (bytes, samples) = legacy_sizes(&file);
    let told = told.expect("python leaves stderr open");
    assert_eq!(told.bytes, bytes);
    assert!(
        told.samples > 0 && told.samples <= samples,
        "{}",
        told.samples
    );
    // One that every build of the interpreter exports.
    let top = top(&go, &["-cum"], &file);
    assert!(top.contains("PyEval_EvalCode"), "{top}");
}

#[test]
fn xz_does_the_same_and_its_search_for_matches_shows() {
    let (Some(xz), Some(go)) = (tool("xz"), tool("go")) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    // Compressed well enough to take a while.
    let text: String = (0..150_000u32)
        .map(|i| format!("{} ", i.wrapping_mul(2_654_435_761)))
        .collect();
    let input = directory.path().join("input");
    fs::write(&input, text).unwrap();
    let arguments = ["-T2", "--block-size=1MiB", "-c"].map(OsStr::new);
    let arguments = [&arguments[..], &[input.as_os_str()]].concat();
    // Before its exit it closes stderr.
    let (file, _) = record(directory.path(), &xz, &arguments);
    assert!(legacy_sizes(&file).1 > 0);
    let top = top(&go, &[], &file);
    assert!(top.contains("liblzma") || top.contains("lzma_"), "{top}");
}
