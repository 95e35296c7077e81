//! What was allocated within a span of time.
#![forbid(unsafe_code)]

use std::thread;
use std::time::Duration;

use super::sites::{self, Allocated};
use super::{check, report};
use crate::error::Result;
use crate::profile::Profile;
use crate::sys::clock::Clock;

/// The beginning of such a span.
#[derive(Debug)]
pub(crate) struct Mark {
    allocated: Allocated,
    time_nanos: i64,
    monotonic_ns: u64,
}

impl Mark {
    /// Begins one. Takes a moment where there are many stacks.
    ///
    /// # Errors
    ///
    /// As of [`profile`](super::profile()).
    pub(crate) fn now() -> Result<Self> {
        check()?;
        Ok(Self {
            time_nanos: Clock::REALTIME.now_ns().unwrap_or(0) as i64,
            monotonic_ns: Clock::MONOTONIC.now_ns().unwrap_or(0),
            allocated: sites::allocated(),
        })
    }

    /// What was allocated since then, and what is in use.
    ///
    /// # Errors
    ///
    /// As of [`profile`](super::profile()).
    pub(crate) fn profile(&self) -> Result<Profile> {
        check()?;
        let mut profile = report::profile(Some(&self.allocated));
        let now = Clock::MONOTONIC.now_ns().unwrap_or(0);
        profile.time_nanos = self.time_nanos;
        profile.duration_nanos = now.saturating_sub(self.monotonic_ns).max(1) as i64;
        Ok(profile)
    }
}

/// What is allocated within a duration from now, and what is in use at its end, by stack and by
/// size: the sample types are those of [`profile`](super::profile()). The calling thread sleeps
/// meanwhile.
///
/// # Errors
///
/// As of [`profile`](super::profile()).
pub fn delta(duration: Duration) -> Result<Profile> {
    let mark = Mark::now()?;
    thread::sleep(duration);
    mark.profile()
}
