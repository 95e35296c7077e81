//! What a request's query asks for.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::cpu::{Clock, MAX_FREQUENCY_HZ, Profiler};

/// The parameters of a request, as they were sent.
#[derive(Debug)]
pub(super) struct Query<'q>(&'q str);

/// The shortest and the longest window, in seconds.
const SECONDS: RangeInclusive<u64> = 1..=300;
/// The lowest and the highest rate, in Hz of the recorded time.
const HZ: RangeInclusive<u32> = 1..=MAX_FREQUENCY_HZ;
/// What a request without `seconds` gets, as of gperftools and Go.
const DEFAULT_SECONDS: u64 = 30;

impl<'q> Query<'q> {
    /// The part of a URI behind its `?`.
    pub(super) fn of(query: &'q str) -> Self {
        Self(query)
    }

    /// How long the window is to be.
    ///
    /// # Errors
    ///
    /// A sentence, where `seconds` is no whole number in its range.
    pub(super) fn seconds(&self) -> Result<Duration, String> {
        let asked = self.seconds_asked()?;
        Ok(asked.unwrap_or(Duration::from_secs(DEFAULT_SECONDS)))
    }

    /// How long the window is to be, if the request says it.
    ///
    /// # Errors
    ///
    /// As of [`seconds`](Self::seconds).
    pub(super) fn seconds_asked(&self) -> Result<Option<Duration>, String> {
        let Some(seconds) = self.get("seconds") else {
            return Ok(None);
        };
        let number = seconds.parse().ok();
        number
            .filter(|number| SECONDS.contains(number))
            .map(|number| Some(Duration::from_secs(number)))
            .ok_or_else(|| {
                format!(
                    "seconds must be a whole number from {} to {}",
                    SECONDS.start(),
                    SECONDS.end()
                )
            })
    }

    /// What to record: how often by `hz`, and elapsed time in place of CPU time by `wall=1`.
    ///
    /// # Errors
    ///
    /// A sentence, where `hz` is no whole number in its range, or `wall` neither 0 nor 1.
    pub(super) fn profiler(&self) -> Result<Profiler, String> {
        let profiler = match self.is_set("wall")? {
            false => Profiler::new(),
            true => Profiler::new().clock(Clock::Wall),
        };
        let Some(hz) = self.get("hz") else {
            return Ok(profiler);
        };
        let number = hz.parse().ok().filter(|number| HZ.contains(number));
        number
            .map(|number| profiler.frequency_hz(number))
            .ok_or_else(|| {
                format!(
                    "hz must be a whole number from {} to {}",
                    HZ.start(),
                    HZ.end()
                )
            })
    }

    /// Whether the answer is to be a text that people read: `debug` with a number that is not 0, as
    /// of Go.
    pub(super) fn is_for_people(&self) -> bool {
        let debug = self.get("debug");
        debug.is_some_and(|debug| debug.parse::<i32>().is_ok_and(|number| number != 0))
    }

    /// Whether waits for condition variables and of parked threads are asked for, by `idle=1`.
    ///
    /// # Errors
    ///
    /// A sentence, where `idle` is neither 0 nor 1.
    #[cfg(feature = "contention")]
    pub(super) fn shows_idle(&self) -> Result<bool, String> {
        self.is_set("idle")
    }

    /// What the answer is to be sent as, in the request's words.
    pub(super) fn format(&self) -> Option<String> {
        self.get("format")
    }

    fn is_set(&self, name: &str) -> Result<bool, String> {
        match self.get(name).as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(_) => Err(format!("{name} must be 0 or 1")),
        }
    }

    fn get(&self, name: &str) -> Option<String> {
        form_urlencoded::parse(self.0.as_bytes())
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_a_whole_number_in_their_range() {
        let seconds = |query| Query::of(query).seconds().map(|time| time.as_secs());
        assert_eq!(seconds(""), Ok(30));
        assert_eq!(seconds("hz=7"), Ok(30));
        assert_eq!(seconds("a=b&seconds=1"), Ok(1));
        assert_eq!(seconds("seconds=%330"), Ok(30));
        assert_eq!(seconds("seconds=300"), Ok(300));
        for wrong in [
            "",
            "0",
            "-1",
            "301",
            "1e9",
            "NaN",
            "2.5",
            "99999999999999999999",
        ] {
            let query = format!("seconds={wrong}");
            let error = Query::of(&query).seconds().unwrap_err();
            assert!(error.contains("from 1 to 300"), "{wrong}: {error}");
        }
    }
}
