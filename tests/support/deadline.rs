//! A deadline for every process that a test waits for.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use super::soak;

/// What a process gets, as many times more as `SIGPROF_SOAK` says; `SIGPROF_TEST_DEADLINE_S` has
/// another number.
const DEADLINE_S: f64 = 300.0;

/// How long the pipes of a process that was killed may stay open: a descendant that left it can
/// have them.
const GRACE: Duration = Duration::from_secs(5);

/// Runs a process without input to its end; what it printed.
///
/// # Errors
///
/// See [`output_of`].
///
/// # Panics
///
/// See [`output_of`].
pub fn output(command: &mut Command) -> io::Result<Output> {
    output_of(command, Stdio::null())
}

/// Runs a process with an input to its end; what it printed.
///
/// # Errors
///
/// Of the system, where the program cannot be started.
///
/// # Panics
///
/// If it has not ended at its deadline, with its command, what it has printed and what its threads
/// wait in. It is killed then, and so are its descendants.
pub fn output_of(command: &mut Command, input: Stdio) -> io::Result<Output> {
    // SAFETY: a system call, which a forked child may make.
    unsafe {
        command.pre_exec(|| {
            // The end of the thread that waits is the child's: where the test's own process is
            // killed, no child outlives it.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command.stdin(input);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stdout = read(child.stdout.take().expect("a pipe"));
    let stderr = read(child.stderr.take().expect("a pipe"));

    let time = deadline();
    let end = Instant::now() + time;
    let left = || end.saturating_duration_since(Instant::now());
    let (mut out, mut err) = (stdout.recv_timeout(left()), stderr.recv_timeout(left()));
    // Most end right after their pipes.
    let mut pause = Duration::from_micros(100);
    let status = loop {
        match child.try_wait()? {
            Some(status) if out.is_ok() && err.is_ok() => break status,
            _ if left().is_zero() => {
                let waits = kill(child.id());
                child.wait()?;
                out = out.or_else(|_| stdout.recv_timeout(GRACE));
                err = err.or_else(|_| stderr.recv_timeout(GRACE));
                panic!(
                    "{command:?} has not ended after {time:?} and is killed. It waits in:\n{waits}\n\
                     It has printed:\n{}\n{}",
                    String::from_utf8_lossy(&out.unwrap_or_default()),
                    String::from_utf8_lossy(&err.unwrap_or_default())
                );
            }
            _ => thread::sleep(pause.min(left())),
        }
        pause = (pause * 2).min(Duration::from_millis(10));
    };
    let (stdout, stderr) = (out.unwrap_or_default(), err.unwrap_or_default());
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

fn deadline() -> Duration {
    let number = |name| std::env::var(name).ok()?.parse::<f64>().ok();
    let seconds = number("SIGPROF_TEST_DEADLINE_S");
    Duration::from_secs_f64(seconds.unwrap_or_else(|| DEADLINE_S * soak()))
}

/// All that comes from a pipe.
fn read(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is what there is.
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// Kills a process and its descendants; what they waited in.
fn kill(id: u32) -> String {
    let waits = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/waits");
    let said = Command::new(waits)
        .arg("--kill")
        .arg(id.to_string())
        .output();
    // SAFETY: a system call; the process has not been waited for, so the number is still its own.
    unsafe { libc::kill(id as libc::pid_t, libc::SIGKILL) };
    match said {
        Ok(said) => String::from_utf8_lossy(&said.stdout).into_owned(),
        Err(error) => format!("{waits}: {error}"),
    }
}
