//! Programs that nobody here wrote, with the library preloaded.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sigprof::Profile;

use crate::legacy::Legacy;
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

/// Runs a program with and without a profile, and asserts that `function` shows among what ran or
/// called what ran, by the name that the program exports, and that no tick was lost.
fn shows(directory: &Path, program: &Path, arguments: &[&OsStr], function: &str) {
    let file = directory.join("cpu.prof");
    let told = record(&file, program, arguments);
    let profile = Profile::open(&file).unwrap();
    let mut names = profile.functions().iter().map(|f| profile.string(f.name));
    assert!(names.all(|name| name != "[lost]"), "ticks were lost");
    if let Some(told) = told {
        assert!(told.samples > 0);
        assert_eq!(told.bytes, Legacy::read(&file).bytes);
    }
    let mut tables = Vec::new();
    if let Some(go) = tool("go") {
        // Which looks for no names in a library that has been stripped of all but its exports.
        let file = directory.join("cpu.pb.gz");
        let told = record(&file, program, arguments);
        assert!(told.is_none_or(|told| told.bytes == file.metadata().unwrap().len()));
        tables.push(go_pprof(&go, &["-top", "-cum"], &file).stdout);
    }
    if let Some(google_pprof) = tool("google-pprof") {
        let mut command = Command::new(google_pprof);
        command.args(["--text", "--cum"]).arg(program).arg(&file);
        tables.push(run(&mut command).stdout);
    }
    for table in tables {
        let shows = table.lines().any(|row| row.contains(function));
        assert!(shows, "{function} is not in\n{table}");
    }
}

#[test]
fn python_with_threads_does_the_same_and_its_interpreter_shows() {
    let Some(python) = tool("python3") else {
        return;
    };
    // What is on the path can be a script that starts the interpreter.
    let itself = run(Command::new(python).args(["-c", "import sys; print(sys.executable)"]));
    let python = PathBuf::from(itself.stdout.trim_end());
    let program = "
import threading, sys, os
def work(): sum(i * i for i in range(1000000))
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]; work(); [t.join() for t in threads]
print('done', file=sys.stderr); print(42); sys.exit(3)
";
    let arguments = ["-c", program].map(OsStr::new);
    let directory = tempfile::tempdir().unwrap();
    // One that every build of the interpreter exports.
    shows(directory.path(), &python, &arguments, "PyEval_EvalCode");
}

#[test]
fn xz_does_the_same_and_its_compression_shows() {
    let Some(xz) = tool("xz") else { return };
    let directory = tempfile::tempdir().unwrap();
    // Compressed well enough to take a while.
    let text: String = (0..150_000u32)
        .map(|i| format!("{} ", i.wrapping_mul(2_654_435_761)))
        .collect();
    let input = directory.path().join("input");
    fs::write(&input, text).unwrap();
    let arguments = ["-T2", "--block-size=1MiB", "-c"].map(OsStr::new);
    let arguments = [&arguments[..], &[input.as_os_str()]].concat();
    // What runs on its threads has no name in a library that was stripped of it.
    shows(directory.path(), &xz, &arguments, "lzma");
}

#[test]
fn perl_does_the_same_and_its_interpreter_shows() {
    let Some(perl) = tool("perl") else { return };
    let program = "
my %h; $h{$_ % 1000} .= sprintf('%x', $_ * 7) for 1 .. 600_000;
print STDERR scalar(keys %h), qq(\n); print length($h{7}), qq(\n); exit 3";
    let arguments = ["-e", program].map(OsStr::new);
    let directory = tempfile::tempdir().unwrap();
    shows(directory.path(), &perl, &arguments, "Perl_");
}

#[test]
fn sqlite_does_the_same_and_its_statement_shows() {
    let Some(sqlite) = tool("sqlite3") else {
        return;
    };
    let statement =
        "WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n WHERE x < 400000)
SELECT count(DISTINCT x * 7 % 1009), sum(x * x) FROM n";
    let arguments = [":memory:", statement].map(OsStr::new);
    let directory = tempfile::tempdir().unwrap();
    shows(directory.path(), &sqlite, &arguments, "sqlite3_");
}
