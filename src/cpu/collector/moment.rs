//! A moment by several clocks.
#![forbid(unsafe_code)]

use std::io;
use std::time::{Duration, Instant};

use crate::sys::clock::Clock;

/// How far apart clocks are read at most, where that can be had.
const TOGETHER: Duration = Duration::from_micros(50);
/// How often that is tried.
const TRIES: u32 = 5;

/// A moment by three clocks.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Moment {
    /// What durations are made of: the time of day can be set meanwhile.
    pub(in crate::cpu) at: Instant,
    /// Nanoseconds since the Unix epoch.
    pub(in crate::cpu) realtime_ns: u64,
    /// CPU time of the process.
    pub(in crate::cpu) process_cpu_ns: u64,
}

impl Moment {
    pub(in crate::cpu) fn now() -> io::Result<Self> {
        let (at, clocks) = at_once(|| {
            let realtime_ns = Clock::REALTIME.now_ns();
            (realtime_ns, Clock::PROCESS_CPU.now_ns())
        });
        Ok(Self {
            at,
            realtime_ns: clocks.0?,
            process_cpu_ns: clocks.1?,
        })
    }

    /// The moment when so much time has gone by on the clocks.
    #[cfg(feature = "http")]
    pub(super) fn later(self, elapsed: Duration, cpu_ns: u64) -> Self {
        Self {
            at: self.at + elapsed,
            realtime_ns: self.realtime_ns + elapsed.as_nanos() as u64,
            process_cpu_ns: self.process_cpu_ns + cpu_ns,
        }
    }
}

/// Reads clocks, and says when: at the same moment, or as near to that as a crowded machine lets it
/// be.
pub(super) fn at_once<T>(mut read: impl FnMut() -> T) -> (Instant, T) {
    let mut tries = 0;
    loop {
        let at = Instant::now();
        let clocks = read();
        tries += 1;
        if tries == TRIES || at.elapsed() < TOGETHER {
            return (at, clocks);
        }
    }
}
