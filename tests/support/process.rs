//! Tests that need a process of their own, and turns for those that share one.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// One recording runs at a time in a process, so tests that record take turns.
pub fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command that runs this program; by means of the one that `SIGPROF_TEST_RUNNER` names, where it is an emulator that runs
/// the program, whose machine the kernel does not know.
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

/// Seconds after which a child that hangs is killed, by `SIGALRM`; as many times more as `SIGPROF_SOAK` says.
const DEADLINE_S: f64 = 300.0;

/// A command that runs one test of this binary, which is marked `#[ignore]` with the reason "a child process", in a
/// process of its own, for as long as the deadline allows.
pub fn child(test: &str) -> Command {
    let mut command = this_program();
    let factor = std::env::var("SIGPROF_SOAK").ok();
    let factor: Option<f64> = factor.and_then(|factor| factor.parse().ok());
    let deadline_s = (DEADLINE_S * factor.unwrap_or(1.0).max(1.0)) as u32;
    // SAFETY: a system call, which a forked child may make. The alarm outlives the exec.
    unsafe {
        command.pre_exec(move || {
            libc::alarm(deadline_s);
            Ok(())
        });
    }
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
/// If it fails, with what it printed.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("the child can be started");
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
        if line.starts_with("figure: ") || line.contains("skipped") {
            eprintln!("{line}");
        }
    }
    output
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
