//! A deadline for every process that a test waits for.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::soak;

/// What a process gets, as many times more as `SIGPROF_SOAK` says; `SIGPROF_TEST_DEADLINE_S` has
/// another number.
const DEADLINE_S: f64 = 300.0;

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
/// If it has not ended at its deadline, or another process holds its output open then; with its
/// command, what it has printed and what the threads of either wait in. It is killed then, and so
/// are its descendants and whoever holds the output.
pub fn output_of(command: &mut Command, input: Stdio) -> io::Result<Output> {
    // SAFETY: system calls, which a forked child may make.
    unsafe {
        command.pre_exec(|| {
            // Whoever runs the tests may ignore what they send to their programs, as `perf` does.
            libc::signal(libc::SIGUSR1, libc::SIG_DFL);
            libc::signal(libc::SIGUSR2, libc::SIG_DFL);
            // The end of the thread that waits is the child's: where the test's own process is
            // killed, no child outlives it.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command.stdin(input);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let pipes = [
        Pipe::read(child.stdout.take().expect("a pipe")),
        Pipe::read(child.stderr.take().expect("a pipe")),
    ];

    let time = deadline();
    let end = Instant::now() + time;
    let left = || end.saturating_duration_since(Instant::now());
    let open: Vec<_> = pipes
        .iter()
        .filter(|pipe| !pipe.ends_within(left()))
        .collect();
    // Most end right after their pipes.
    let mut pause = Duration::from_micros(100);
    let status = loop {
        let status = child.try_wait()?;
        if status.is_some() || left().is_zero() {
            break status;
        }
        thread::sleep(pause.min(left()));
        pause = (pause * 2).min(Duration::from_millis(10));
    };
    let (ending, kept) = match status {
        Some(status) if open.is_empty() => {
            let [stdout, stderr] = pipes.each_ref().map(Pipe::bytes);
            return Ok(Output {
                status,
                stdout,
                stderr,
            });
        }
        Some(status) => (
            format!(
                "has ended ({status}), and others hold its output open after {time:?} and are \
                 killed. They wait in:"
            ),
            open.into_iter().flat_map(Pipe::holders).collect(),
        ),
        None => (
            format!("has not ended after {time:?} and is killed. It waits in:"),
            vec![child.id()],
        ),
    };
    let waits: String = kept.into_iter().map(kill).collect();
    child.wait()?;
    let [stdout, stderr] = pipes.each_ref().map(Pipe::bytes);
    panic!(
        "{command:?} {ending}\n{waits}\nIt has printed:\n{}\n{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
}

fn deadline() -> Duration {
    let number = |name| std::env::var(name).ok()?.parse::<f64>().ok();
    let seconds = number("SIGPROF_TEST_DEADLINE_S");
    Duration::from_secs_f64(seconds.unwrap_or_else(|| DEADLINE_S * soak()))
}

/// A pipe that is read to its end by a thread.
struct Pipe {
    /// What has come so far.
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Closed at the end of the pipe.
    end: Receiver<()>,
    descriptor: RawFd,
}

impl Pipe {
    fn read(mut pipe: impl Read + AsRawFd + Send + 'static) -> Pipe {
        let (until_end, end) = mpsc::channel();
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (descriptor, so_far) = (pipe.as_raw_fd(), bytes.clone());
        thread::spawn(move || {
            let _until_end = until_end;
            let mut part = [0; 1 << 16];
            // What came before an error is what there is.
            while let Ok(len @ 1..) = pipe.read(&mut part) {
                let mut bytes = so_far.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&part[..len]);
            }
        });
        Pipe {
            bytes,
            end,
            descriptor,
        }
    }

    fn ends_within(&self, time: Duration) -> bool {
        self.end.recv_timeout(time) == Err(RecvTimeoutError::Disconnected)
    }

    fn bytes(&self) -> Vec<u8> {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.clone()
    }

    /// The other processes that have the pipe open, which has not ended.
    fn holders(&self) -> Vec<u32> {
        let this = std::process::id();
        let Ok(pipe) = fs::read_link(format!("/proc/{this}/fd/{}", self.descriptor)) else {
            return Vec::new();
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter(|&id| id != this)
            .filter(|id| {
                let files = fs::read_dir(format!("/proc/{id}/fd"));
                let mut files = files.into_iter().flatten().flatten();
                files.any(|file| fs::read_link(file.path()).is_ok_and(|target| target == pipe))
            })
            .collect()
    }
}

/// Kills a process, which is a child that nobody has waited for or was there just now, and its
/// descendants; what they waited in.
fn kill(id: u32) -> String {
    let waits = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/waits");
    let mut look = Command::new("timeout");
    look.args(["--signal=KILL", "120", waits, "--kill"]);
    let said = look.arg(id.to_string()).output();
    // SAFETY: a system call. Of a number that another process has by now there is no telling.
    unsafe { libc::kill(id as libc::pid_t, libc::SIGKILL) };
    match said {
        Ok(said) => String::from_utf8_lossy(&said.stdout).into_owned(),
        Err(error) => format!("{waits}: {error}"),
    }
}
