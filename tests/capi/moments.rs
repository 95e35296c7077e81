//! What programs do that know nothing of a profile, with the library preloaded: they do the same as
//! without, and the profile is there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::legacy::Legacy;
use crate::library::{compiled, library, plain};
use crate::process::{skip, succeed};

/// CPU time that a case works for at a time, in periods of the clock.
const WORK: u64 = 200;

/// A case of `moments.c` that has run.
struct Moment {
    /// Where it ran.
    directory: TempDir,
    stderr: String,
}

/// Runs a case of `moments.c`, recorded for the file `cpu` in a directory of its own.
fn run(case: &str) -> Moment {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    let output = succeed(recorded(&program, directory.path()).arg(case));
    Moment::new(directory, output)
}

/// A program that is recorded for the file `cpu` in a directory.
fn recorded(program: &Path, directory: &Path) -> Command {
    let mut command = plain(program);
    command.current_dir(directory);
    command.env("LD_PRELOAD", library());
    command.env("CPUPROFILE", "cpu");
    command.env("CPUPROFILE_FREQUENCY", "1000");
    command
}

impl Moment {
    fn new(directory: TempDir, output: Output) -> Self {
        let stderr = String::from_utf8(output.stderr).unwrap();
        Self { directory, stderr }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("cpu")
    }

    /// Asserts that the file has the work of so many times, and at least this part of it with
    /// stacks.
    fn has_work(&self, times: u64) -> &Self {
        let legacy = Legacy::read(&self.file());
        let counted = legacy.counted();
        assert!(
            counted >= times * WORK * 95 / 100,
            "{counted}: {}",
            self.stderr
        );
        self
    }

    /// Asserts that nothing was said but gperftools' line, where there is a stderr to say it.
    fn is_quiet(&self) {
        let is_line = |line: &str| line.starts_with("PROFILE: interrupts/evictions/bytes = ");
        let lines: Vec<&str> = self.stderr.lines().collect();
        assert!(lines.len() == 1 && is_line(lines[0]), "{}", self.stderr);
    }
}

#[test]
fn a_program_that_does_nothing_but_work() {
    run("nothing").has_work(1).is_quiet();
}

#[test]
fn a_program_that_closes_all_descriptors() {
    // There is no stderr to say anything on: what has its number is the program's.
    assert_eq!(run("closes_descriptors").has_work(2).stderr, "");
}

#[test]
fn a_program_that_blocks_all_signals() {
    run("blocks_signals").has_work(2).is_quiet();
}

#[test]
fn a_program_that_takes_the_signal() {
    run("uses_sigprof").has_work(2).is_quiet();
}

#[test]
fn a_program_that_waits_for_any_child() {
    run("has_no_children").has_work(1).is_quiet();
}

#[test]
fn a_program_that_keeps_pointers_into_its_environment() {
    let moment = run("spawns_with_old_environment");
    moment.has_work(1);
}

#[test]
fn a_program_that_another_thread_ends() {
    run("another_thread_exits").has_work(1).is_quiet();
}

#[test]
fn a_program_whose_children_go_on() {
    run("forks").has_work(1).is_quiet();
}

/// Whether this process may become any other.
fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    let is = unsafe { libc::geteuid() } == 0;
    if !is {
        skip("only root changes a process's root and user");
    }
    is
}

#[test]
fn a_program_that_changes_its_root() {
    if is_root() {
        run("changes_root").has_work(2).is_quiet();
    }
}

#[test]
fn a_program_that_changes_its_user() {
    if is_root() {
        run("changes_user").has_work(2).is_quiet();
    }
}
