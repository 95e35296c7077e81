//! The profile that a process records through its C functions or its environment: one at a time.
#![forbid(unsafe_code)]

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cpu::{Guard, Profiler};
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
    /// The file, as the program named it.
    name: CString,
    started: SystemTime,
}

/// What a session has come to.
#[derive(Debug)]
pub(super) struct State {
    /// The file, as the program named it.
    pub(super) name: CString,
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
pub(super) fn start(name: &CStr, profiler: Profiler) -> Result<()> {
    let session = SESSION.get_or_make(Mutex::default).map_err(no_memory)?;
    let mut session = session.lock();
    if session.is_some() {
        return Err(Error::new(
            ErrorKind::AlreadyRunning,
            "a profile is recorded already and goes on; stop it first",
        ));
    }
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let started = SystemTime::now();
    *session = Some(Session {
        guard: Guard::start_for(profiler, path)?,
        name: name.to_owned(),
        started,
    });
    Ok(())
}

/// Stops the session, if one runs, and writes its file.
///
/// # Errors
///
/// Those of [`Guard::finish`].
pub(super) fn stop() -> Result<()> {
    let Some(session) = SESSION.get() else {
        return Ok(());
    };
    let mut session = session.lock();
    match session.take() {
        Some(session) => session.guard.finish().map(drop),
        None => Ok(()),
    }
}

/// Writes the profile so far, if a session runs, which goes on.
///
/// # Errors
///
/// Those of [`Guard::flush`].
pub(super) fn flush() -> Result<()> {
    let Some(session) = SESSION.get() else {
        return Ok(());
    };
    match &*session.lock() {
        Some(session) => session.guard.flush(),
        None => Ok(()),
    }
}

/// What the session has come to, if one runs.
pub(super) fn state() -> Option<State> {
    let session = SESSION.get()?.lock();
    let session = session.as_ref()?;
    let start_time = session.started.duration_since(UNIX_EPOCH);
    Some(State {
        name: session.name.clone(),
        start_time_s: start_time.map_or(0, |time| time.as_secs() as i64),
        samples: session.guard.recording().samples(),
    })
}

/// Whether a session runs.
pub(super) fn is_running() -> bool {
    SESSION
        .get()
        .is_some_and(|session| session.lock().is_some())
}

fn no_memory(source: io::Error) -> Error {
    Error::with_source(ErrorKind::Os, "could not get a page of memory", source)
}
