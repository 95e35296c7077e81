//! gperftools, as Debian builds it: unwinds with libunwind, writes addresses without names.

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::{Recorder, Tally};
use crate::Result;
use crate::options::Options;

/// gperftools/profiler.h's `struct ProfilerState`.
#[repr(C)]
struct ProfilerState {
    enabled: c_int,
    start_time: libc::time_t,
    profile_name: [c_char; 1024],
    samples_gathered: c_int,
}

#[link(name = "profiler")]
unsafe extern "C" {
    fn ProfilerStart(path: *const c_char) -> c_int;
    fn ProfilerStop();
    fn ProfilerGetCurrentState(state: *mut ProfilerState);
}

/// gperftools falls back to 100 Hz above this (profile-handler.cc, kMaxFrequency).
const MAX_FREQUENCY_HZ: u32 = 4000;

/// Starts the program anew with the frequency in its environment: gperftools takes it from nowhere else, and reads it
/// before `main`.
pub fn prepare(options: &Options) -> Result<()> {
    let frequency = options.frequency_hz.to_string();
    if std::env::var(FREQUENCY_VARIABLE).is_ok_and(|set| set == frequency) {
        return Ok(());
    }
    let error = Command::new("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .env(FREQUENCY_VARIABLE, frequency)
        .exec();
    Err(format!("cannot start the subject anew: {error}").into())
}

const FREQUENCY_VARIABLE: &str = "CPUPROFILE_FREQUENCY";

pub struct Recording(());

impl Recorder for Recording {
    fn start(options: &Options) -> Result<Self> {
        if options.frequency_hz > MAX_FREQUENCY_HZ {
            return Err(format!("gperftools samples at {MAX_FREQUENCY_HZ} Hz at most").into());
        }
        let path = CString::new(options.path.as_os_str().as_bytes())?;
        // SAFETY: the path is a C string that outlives the call.
        match unsafe { ProfilerStart(path.as_ptr()) } {
            0 => Err("gperftools did not start".into()),
            _ => Ok(Self(())),
        }
    }

    fn stop(self) -> Result<Tally> {
        let mut state = MaybeUninit::<ProfilerState>::zeroed();
        // SAFETY: the pointer is to a ProfilerState that is valid when zeroed and that the call fills in.
        let state = unsafe {
            ProfilerGetCurrentState(state.as_mut_ptr());
            state.assume_init()
        };
        self.discard()?;
        Ok(Tally::of_samples(state.samples_gathered.try_into()?))
    }

    fn discard(self) -> Result<()> {
        // SAFETY: no preconditions.
        unsafe { ProfilerStop() };
        Ok(())
    }

    /// The file has been written all along, under the path it was started with.
    fn write(self, _options: &Options) -> Result<Tally> {
        self.stop()
    }
}
