//! What was allocated within a span of time.
#![forbid(unsafe_code)]

use std::thread;
use std::time::Duration;

use super::sites::Counted;
use super::{check, report};
use crate::error::Result;
use crate::profile::Profile;
use crate::sys::clock::Clock;
use crate::sys::own_threads::as_own;

/// The beginning of such a span.
#[derive(Debug)]
pub(crate) struct Mark {
    counted: Counted,
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
            counted: as_own(Counted::now),
        })
    }

    /// What was allocated since then, and what is in use.
    ///
    /// # Errors
    ///
    /// As of [`profile`](super::profile()).
    pub(crate) fn profile(&self) -> Result<Profile> {
        self.with(report::profile)
    }

    /// Which allocations since then made the bytes in use more than they had ever been.
    ///
    /// # Errors
    ///
    /// As of [`profile`](super::profile()).
    #[cfg(feature = "http")]
    pub(crate) fn growth(&self) -> Result<Profile> {
        self.with(report::growth)
    }

    fn with(&self, report: impl FnOnce(&Counted) -> Profile) -> Result<Profile> {
        check()?;
        let mut profile = as_own(|| report(&self.counted));
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
