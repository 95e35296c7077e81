//! Programs that nobody here wrote, with the library preloaded.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::library::{library, plain};
use crate::process::output;
use crate::support::{go_pprof, run, tool};

/// A program with a profile at 1000 Hz.
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

/// Runs a program with and without a profile: it does the same. What was told of the profile.
fn record(file: &Path, program: &Path, arguments: &[&OsStr]) -> Option<Told> {
    let without = output(plain(program).args(arguments)).unwrap();
    let with = output(profiled(program, file).args(arguments)).unwrap();
    let (stderr, told) = without_line(&with);
    assert_eq!(with.status, without.status, "{with:?}");
    assert_eq!(with.stdout, without.stdout);
    assert_eq!(stderr, String::from_utf8_lossy(&without.stderr));
    told
}

/// The names of the functions with the most time, of their own or of what they call.
fn top(go: &Path, options: &[&str], file: &Path) -> String {
    let options = [&["-top"], options].concat();
    let top = go_pprof(go, &options, file);
    top.stdout
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
    let file = directory.path().join("cpu.pb.gz");
    let told = record(&file, &python, &arguments).expect("python leaves stderr open");
    assert_eq!(told.bytes, file.metadata().unwrap().len());
    assert!(told.samples > 0);
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
    let file = directory.path().join("cpu.prof");
    record(&file, &xz, &arguments);
    let top = top(&go, &[], &file);
    assert!(top.contains("liblzma") || top.contains("lzma_"), "{top}");
}
