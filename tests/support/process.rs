//! Tests that need a process of their own, and turns for those that share one.
#![allow(dead_code, reason = "each test binary uses a part of it")]

mod deadline;
mod soak;

use std::io::Write;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub use deadline::{output, output_of};
#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub use soak::{all_or, soak};

static TURN: Mutex<()> = Mutex::new(());

/// One recording runs at a time in a process, so tests that record take turns.
pub fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command that runs this program; by means of the one that `SIGPROF_TEST_RUNNER` names, where it
/// is an emulator that runs the program, whose machine the kernel does not know.
pub fn this_program() -> Command {
    let program = std::env::current_exe().expect("a test has an executable");
    match std::env::var_os("SIGPROF_TEST_RUNNER") {
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// A command that runs one test of this binary, which is marked `#[ignore]` with the reason "a
/// child process", in a process of its own.
pub fn child(test: &str) -> Command {
    let mut command = this_program();
    command.args([
        test,
        "--exact",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command
}

/// Runs a child to its end.
///
/// # Panics
///
/// If it fails, with what it printed, or hangs, with what it waits in.
pub fn succeed(command: &mut Command) -> Output {
    let output = output(command).expect("the child can be started");
    assert!(
        output.status.success(),
        "{command:?} failed ({}):\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs a child to its end, and shows its figures.
///
/// # Panics
///
/// If it fails, with what it printed.
pub fn succeed_and_show(command: &mut Command) -> Output {
    let output = succeed(command);
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        if line.starts_with("figure: ") {
            eprintln!("{line}");
        } else if line.contains("skipped: ") {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    output
}

/// Says that this machine cannot do what a test checks. The line goes past what the harness keeps to
/// itself; `scripts/each` looks for it.
pub fn skip(reason: &str) {
    // Nobody to tell is no reason to fail.
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

/// A figure for whoever runs the tests with `--nocapture`.
#[allow(unused_macros, reason = "each test binary uses a part of it")]
macro_rules! figure {
    ($($argument:tt)*) => {
        eprintln!("figure: {}", format_args!($($argument)*))
    };
}
#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub(crate) use figure;
