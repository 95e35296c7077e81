//! The functions of gperftools' `profiler.h`, for programs in C and C++:
//! `include/gperftools/profiler.h` says what they do.
//!
//! What a function here is asked to do it does as the Rust API does. A panic in one is caught: it
//! ends no program.

mod activation;
#[cfg(feature = "contention")]
mod locks;
mod session;
mod stack_trace;
mod stderr;
mod toggle;

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

pub use stack_trace::ProfilerGetStackTrace;

use crate::cpu::SAMPLES_GATHERED;
use crate::env;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::signal::{self, with_signals_blocked_but, without_signals_of_writing};
use stderr::{Stderr, no_profile};

/// `struct ProfilerOptions`.
#[repr(C)]
#[derive(Debug)]
pub struct ProfilerOptions {
    /// Called at each tick, on the thread that the tick falls on; 0 drops the tick.
    pub filter_in_thread: Option<extern "C" fn(*mut c_void) -> c_int>,
    /// What the filter is called with.
    pub filter_in_thread_arg: *mut c_void,
}

/// Bytes of the name in a [`ProfilerState`].
const NAME_BYTES: usize = 1024;

/// `struct ProfilerState`.
#[repr(C)]
#[derive(Debug)]
pub struct ProfilerState {
    /// 1 while a profile is recorded.
    pub enabled: c_int,
    /// When it was started, in seconds since the epoch.
    pub start_time: libc::time_t,
    /// The file's name, which ends in zero.
    pub profile_name: [u8; NAME_BYTES],
    /// Ticks that the filter kept.
    pub samples_gathered: c_int,
}

/// Starts to record for the file `fname`: 1, or 0 with `errno`.
///
/// # Safety
///
/// `fname` is null or a string that ends in zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ProfilerStart(fname: *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { ProfilerStartWithOptions(fname, std::ptr::null()) }
}

/// As [`ProfilerStart`], with a filter.
///
/// # Safety
///
/// `fname` is null or a string that ends in zero. `options` is null or leads to options, whose
/// filter is async-signal-safe, and whose argument stays valid until the profile has been stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ProfilerStartWithOptions(
    fname: *const c_char,
    options: *const ProfilerOptions,
) -> c_int {
    // SAFETY: the caller's contract.
    let options = unsafe { options.as_ref() };
    let mut signal = libc::SIGPROF;
    let started = guarded(|| {
        if fname.is_null() {
            return Err(Error::with_source(
                ErrorKind::InvalidInput,
                "no file was given for the profile",
                std::io::Error::from_raw_os_error(libc::EINVAL),
            ));
        }
        let mut profiler =
            env::profiler().inspect_err(|error| Stderr::now().say(&no_profile(error)))?;
        signal = profiler.signal_asked();
        if let Some(options) = options
            && let Some(filter) = options.filter_in_thread
        {
            // SAFETY: the caller's contract.
            profiler = unsafe { profiler.filter(filter, options.filter_in_thread_arg) };
        }
        // SAFETY: not null, and so a string, by the caller's contract.
        let name = unsafe { CStr::from_ptr(fname) };
        session::start(Path::new(OsStr::from_bytes(name.to_bytes())), profiler)
    });
    let Err(error) = started else {
        // Whoever starts a profile wants to be in it.
        unblock_signals(signal);
        return 1;
    };
    let code = errno_of(&error);
    // Before `errno` is set, which freeing may change.
    drop(error);
    set_errno(code);
    0
}

/// Stops, and writes the file.
#[unsafe(no_mangle)]
pub extern "C" fn ProfilerStop() {
    say_if_failed(guarded(|| {
        session::stop(None);
        Ok(())
    }));
}

/// Writes the profile so far, and goes on.
#[unsafe(no_mangle)]
pub extern "C" fn ProfilerFlush() {
    say_if_failed(guarded(|| {
        session::flush();
        Ok(())
    }));
}

/// Whether a profile is recorded: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn ProfilingIsEnabledForAllThreads() -> c_int {
    guarded(|| Ok(session::is_running()))
        .is_ok_and(|is| is)
        .into()
}

/// Stores what the profile has come to.
///
/// # Safety
///
/// `state` is null or leads to room for a `ProfilerState`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ProfilerGetCurrentState(state: *mut ProfilerState) {
    if state.is_null() {
        return;
    }
    let told = guarded(|| Ok(session::state())).ok().flatten();
    let told = ProfilerState::of(told.as_ref());
    // SAFETY: room for one, by the caller's contract.
    unsafe { state.write(told) };
}

/// Unblocks the profiler's signals on the calling thread, which is recorded from its beginning, but
/// where it blocks them.
#[unsafe(no_mangle)]
pub extern "C" fn ProfilerRegisterThread() {
    if let Ok(Some(signal)) = guarded(|| Ok(session::signal())) {
        unblock_signals(signal);
    }
}

/// Unblocks a timer's signal, and that of perf events, on the calling thread, as gperftools does
/// with its own.
fn unblock_signals(signal: c_int) {
    signal::unblock(&[signal, libc::SIGURG]);
}

/// Does nothing, as in gperftools.
#[unsafe(no_mangle)]
pub extern "C" fn ProfilerEnable() {}

/// Does nothing, as in gperftools.
#[unsafe(no_mangle)]
pub extern "C" fn ProfilerDisable() {}

impl ProfilerState {
    /// Of the session that runs, if one does.
    fn of(state: Option<&session::State>) -> Self {
        let mut told = Self {
            enabled: state.is_some().into(),
            start_time: 0,
            profile_name: [0; NAME_BYTES],
            samples_gathered: 0,
        };
        let mut length = 0;
        if let Some(state) = state {
            told.start_time = state.start_time_s;
            told.samples_gathered = state.samples.try_into().unwrap_or(c_int::MAX);
            let name = state.path.as_os_str().as_bytes();
            length = name.len().min(NAME_BYTES - 1);
            told.profile_name[..length].copy_from_slice(&name[..length]);
        }
        // gperftools' own tests find the live count of samples by its address, behind the name's
        // zero, where there is room.
        let address = (&raw const SAMPLES_GATHERED)
            .expose_provenance()
            .to_ne_bytes();
        if let Some(room) = told
            .profile_name
            .get_mut(length + 1..length + 1 + address.len())
        {
            room.copy_from_slice(&address);
        }
        told
    }
}

fn set_errno(code: c_int) {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = code };
}

/// Runs what a C program asks for. Neither a panic of ours nor a write that fails ends the program.
/// Handlers of the program's wait until it is done: one that calls `exit` would have the profile
/// written amid what it interrupted. Those of the profiler do not.
fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = with_signals_blocked_but(&[libc::SIGPROF, libc::SIGURG], || {
        without_signals_of_writing(|| catch_unwind(AssertUnwindSafe(f)))
    });
    done.unwrap_or_else(|_| {
        Err(Error::new(
            ErrorKind::Unsupported,
            "sigprof panicked, which is a defect of sigprof's: please report it",
        ))
    })
}

/// A line on stderr: there is nobody to return the error to.
fn say_if_failed(done: Result<()>) {
    if let Err(error) = done {
        without_signals_of_writing(|| Stderr::now().say(&no_profile(&error)));
    }
}

fn errno_of(error: &Error) -> c_int {
    let code = error.os_error();
    code.unwrap_or(match error.kind() {
        ErrorKind::AlreadyRunning | ErrorKind::SignalInUse => libc::EBUSY,
        _ => libc::EINVAL,
    })
}
