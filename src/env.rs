//! `CPUPROFILE` and its relatives, as gperftools' users know them, for programs that ask for them.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::cpu::{Guard, Profiler};
use crate::error::Result;
use crate::sys::process;

/// What gperftools takes for a frequency that is missing, or makes no sense.
const DEFAULT_FREQUENCY_HZ: u32 = 100;
/// What gperftools limits the variable to.
const MAX_FREQUENCY_HZ: u32 = 4000;

/// Starts a CPU profile if the environment asks for one; `None` where it does not. Keep the guard
/// until the end of what is to be profiled, as with [`profile_to`](crate::profile_to).
///
/// | variable | meaning |
/// |---|---|
/// | `CPUPROFILE` | the file to write; unset or empty: no profile. An extension of [ours](crate::Format::from_path) picks that format, any other path is gperftools' CPU file. Ignored in a program that runs with more rights than its user (setuid, setgid). |
/// | `CPUPROFILE_FREQUENCY` | samples a second, at most 4000; missing, 0, negative or not a number: 100 |
///
/// # Errors
///
/// Those of [`Profiler::start_to`].
pub fn from_env() -> Result<Option<Guard>> {
    let path = std::env::var_os("CPUPROFILE").unwrap_or_default();
    if path.is_empty() || process::has_elevated_rights() {
        return Ok(None);
    }
    Guard::start_for(profiler(), Path::new(&path)).map(Some)
}

/// What the environment has a profile recorded with.
pub(crate) fn profiler() -> Profiler {
    let frequency = frequency_hz(std::env::var_os("CPUPROFILE_FREQUENCY"));
    Profiler::new().frequency_hz(frequency)
}

/// A whole number or nothing: not a number's prefix.
fn frequency_hz(value: Option<OsString>) -> u32 {
    match value
        .as_deref()
        .and_then(OsStr::to_str)
        .map(str::parse::<u64>)
    {
        Some(Ok(hz @ 1..)) => hz.min(MAX_FREQUENCY_HZ.into()) as u32,
        _ => DEFAULT_FREQUENCY_HZ,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_that_make_no_sense_are_the_default() {
        let parsed = |text: &str| frequency_hz(Some(text.into()));
        assert_eq!(frequency_hz(None), 100);
        for junk in ["", "0", "-5", "12x", "x", "1e3", "99999999999999999999"] {
            assert_eq!(parsed(junk), 100, "{junk:?}");
        }
        assert_eq!(parsed("1"), 1);
        assert_eq!(parsed("250"), 250);
        assert_eq!(parsed("4000"), 4000);
        assert_eq!(parsed("4001"), 4000);
        assert_eq!(parsed("10000000000"), 4000);
    }
}
