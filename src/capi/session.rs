//! The profile that a process records through its C functions or its environment: one at a time.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use super::stderr::{Stderr, no_profile};
use crate::cpu::{Guard, Profiler, SAMPLES_GATHERED};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Mutex;
use crate::sys::per_process::PerProcess;

/// The session that runs, if one does. A forked child has none, and no lock that a thread of its
/// parent held.
static SESSION: PerProcess<Mutex<Option<Session>>> = PerProcess::new();

/// A profile that is recorded for a file.
#[derive(Debug)]
struct Session {
    guard: Guard,
    /// The file, as the program or the environment named it.
    path: PathBuf,
    started: SystemTime,
    stderr: Stderr,
    /// What its timers send.
    signal: i32,
}

/// What a session has come to.
#[derive(Debug)]
pub(super) struct State {
    /// The file, as the program or the environment named it.
    pub(super) path: PathBuf,
    /// Seconds since the epoch.
    pub(super) start_time_s: i64,
    /// Ticks in the profile so far.
    pub(super) samples: u64,
}

/// Starts to record for a file, as `profiler` has it. The file's name says in which format;
/// gperftools' CPU file where it says nothing.
///
/// # Errors
///
/// [`AlreadyRunning`](ErrorKind::AlreadyRunning) while a session runs, which is left as it is; else
/// those of [`Profiler::start_to`].
pub(super) fn start(path: &Path, profiler: Profiler) -> Result<()> {
    let session = SESSION.get_or_make(Mutex::default).map_err(no_memory)?;
    let mut session = session.lock();
    if session.is_some() {
        return Err(Error::new(
            ErrorKind::AlreadyRunning,
            "a profile is recorded already and goes on; stop it first",
        ));
    }
    let (started, signal) = (SystemTime::now(), profiler.signal_asked());
    *session = Some(Session {
        guard: Guard::start_for(profiler, path)?.left_to_caller(),
        path: path.to_owned(),
        started,
        stderr: Stderr::now(),
        signal,
    });
    Ok(())
}

/// Stops the session, if one runs, writes its file, and says so on stderr, as gperftools does. What
/// `remark` says of the process then is said on stderr and in the profile's comments. Whether one
/// ran.
pub(super) fn stop(remark: Option<fn() -> Option<String>>) -> bool {
    let Some(mut session) = SESSION.get().map(Mutex::lock) else {
        return false;
    };
    let Some(session) = session.take() else {
        return false;
    };
    let remark = remark.and_then(|remark| remark());
    let comments = remark.iter().cloned().collect();
    let mut left_out = None;
    let line = match session.guard.finish_and_measure(comments) {
        Ok((bytes, sentence)) => {
            left_out = sentence;
            let samples = SAMPLES_GATHERED.load(Ordering::Relaxed);
            // gperftools evicts stacks from its table when they fall on the same place there.
            format!("PROFILE: interrupts/evictions/bytes = {samples}/0/{bytes}")
        }
        Err(error) => no_profile(&error),
    };
    session.stderr.say(&line);
    for remark in left_out.into_iter().chain(remark) {
        session.stderr.say(&format!("sigprof: {remark}"));
    }
    true
}

/// Writes the profile so far, if a session runs, which goes on.
pub(super) fn flush() {
    let Some(session) = SESSION.get().map(Mutex::lock) else {
        return;
    };
    if let Some(session) = &*session
        && let Err(error) = session.guard.flush()
    {
        session.stderr.say(&no_profile(&error));
    }
}

/// What the session has come to, if one runs.
pub(super) fn state() -> Option<State> {
    let session = SESSION.get()?.lock();
    let session = session.as_ref()?;
    let start_time = session.started.duration_since(UNIX_EPOCH);
    Some(State {
        path: session.path.clone(),
        start_time_s: start_time.map_or(0, |time| time.as_secs() as i64),
        samples: session.guard.recording().samples(),
    })
}

/// The signal that the session's timers send, if one runs.
pub(super) fn signal() -> Option<i32> {
    let session = SESSION.get()?.lock();
    session.as_ref().map(|session| session.signal)
}

/// Whether a session runs.
pub(super) fn is_running() -> bool {
    SESSION
        .get()
        .is_some_and(|session| session.lock().is_some())
}

pub(super) fn no_memory(source: io::Error) -> Error {
    Error::with_source(ErrorKind::Os, "could not get a page of memory", source)
}
