//! gperftools, as Debian builds it: unwinds with libunwind, writes addresses without names.

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::{By, Counts, Recorder, Tally};
use crate::Result;
use crate::known::PARTS;
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

/// Starts the program anew with the frequency in its environment: gperftools takes it from nowhere
/// else, and reads it before `main`.
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
        // SAFETY: the pointer is to a ProfilerState that is valid when zeroed and that the call
        // fills in.
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

    /// The file holds addresses, and nothing of threads.
    fn count(self, options: &Options, by: By, names: &[&str]) -> Result<Counts> {
        let By::Function = by else {
            return Err("gperftools does not say which thread a sample is of".into());
        };
        self.discard()?;
        let file = std::fs::read(&options.path)?;
        let samples = samples(&file).ok_or("gperftools wrote no profile that can be read")?;
        let samples = samples.iter().map(|(count, stack)| {
            let part = PARTS
                .iter()
                .find(|part| stack.iter().any(|&address| part.holds(address)));
            let name = part.and_then(|part| names.iter().position(|&name| name == part.name));
            (*count, name)
        });
        Ok(Counts::of(names.len(), samples))
    }
}

/// Counts and stacks of a file of gperftools: words of the machine's size. Five of header, of which
/// the second says how many follow the first two; then records of a count, a depth and so many
/// addresses; at the end one of the count 0.
///
/// <https://gperftools.github.io/gperftools/cpuprofile-fileformat.html>
fn samples(file: &[u8]) -> Option<Vec<(u64, Vec<u64>)>> {
    let mut words = file
        .chunks_exact(size_of::<u64>())
        .map(|word| u64::from_ne_bytes(word.try_into().expect("chunks of a word's size")));
    let (_zero, header) = (words.next()?, words.next()?);
    words.nth(usize::try_from(header).ok()?.checked_sub(1)?)?;
    let mut samples = Vec::new();
    loop {
        let (count, depth) = (words.next()?, words.next()?);
        let mut stack = Vec::new();
        for frame in 0..depth {
            // But for the innermost, these are return addresses: the call is before them.
            stack.push(words.next()? - u64::from(frame > 0));
        }
        if count == 0 {
            return Some(samples);
        }
        samples.push((count, stack));
    }
}
