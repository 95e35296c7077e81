//! Which clock drives a recording, and at which rate.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::sys::clock;

/// The highest frequency that can be asked for, in Hz.
pub(crate) const MAX_FREQUENCY_HZ: u32 = 10_000;

/// What is recorded: time by which clock.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Clock {
    /// CPU time of each thread, in user and in kernel mode: a thread that waits is not sampled.
    #[default]
    Cpu,
    /// Elapsed time of each thread, whether it runs or waits: all threads have equal shares of the
    /// time that they live. The profile's time is `wall/nanoseconds`, and each sample has a label
    /// `state`: `running` (on a CPU, or waiting for one) or `waiting`. One that has woken, and has
    /// not got a CPU yet, still counts as waiting.
    ///
    /// The profiler's own thread drives it. At each tick it sends `SIGURG` to up to eight threads,
    /// those that have waited for it longest first, and the time since a thread's last sample goes
    /// to the stack that was found. A thread that was found waiting, and whose CPU clock has not
    /// moved since, is taken to wait there still and gets no signal.
    ///
    /// **Interrupted system calls.** Those that Linux never restarts (`poll`, `epoll_wait`,
    /// `nanosleep`: see signal(7)) would return `EINTR` in a thread that is looked at while it waits
    /// in one: once when it is seen there for the first time, and then once each time that it has
    /// woken by itself, and not more often than the frequency says. On x86_64 such a call begins
    /// again instead, with the timeout that it was given. Where the program has a handler for a
    /// signal that the thread could take, that takes an alternate stack (`sigaltstack`) on which
    /// the handler does not run. [`Stats::calls_interrupted`](super::Stats::calls_interrupted)
    /// counts the calls that return `EINTR`.
    ///
    /// Above 1000 Hz a look stands for several periods, since the profiler's thread ticks at most
    /// so often.
    ///
    /// A thread that has waited for more than a second is checked every 100 ms. Time that it ran in
    /// between goes to the place where it is next seen to run, and the rest to the place where it
    /// waited. Which state a thread was in is exact for runs and waits that are long against a
    /// tick; of one that runs for about a tick at a time, the running share can be a quarter too
    /// low, and lower where several threads do so at once. Totals are exact all the same.
    ///
    /// Time for which no stack was found is in the frame `[unsampled]`: of a thread that blocks
    /// `SIGURG`, at a thread's end, and what a thread ran that was never seen to run.
    Wall,
}

/// What makes a recording tick.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Engine {
    /// The best that can be had: [`ThreadTimer`](Self::ThreadTimer) up to the rate of the
    /// scheduler's ticks (250 Hz, often), and above it [`PerfEvent`](Self::PerfEvent) with time in
    /// the kernel, for as many threads as there are file descriptors to spare. Where the system
    /// refuses timers to any thread at the start, [`ProcessTimer`](Self::ProcessTimer).
    #[default]
    Auto,
    /// A perf event (software task clock) on each thread: a sample at each period, also above the
    /// rate of the scheduler's ticks. It takes a file descriptor a thread; threads that get none
    /// have a timer. Where the system does not allow time in the kernel to be sampled
    /// (`kernel.perf_event_paranoid` above 1 and no privileges), it samples user time alone, and a
    /// profile shows the rest as `[kernel]`.
    PerfEvent,
    /// A POSIX timer on the CPU clock of each thread. Expiries between two of the scheduler's ticks
    /// come as one signal that says how many they were, so the totals are exact at any frequency.
    ThreadTimer,
    /// One POSIX timer on the process's CPU clock. Which thread a tick falls on is up to the
    /// kernel: shares of threads are fair only in the long run. A tick may wake one thread and be
    /// taken by another: the former's `epoll_wait`, `sigtimedwait`, `semtimedop` or call of a
    /// socket with a timeout then returns `EINTR`, of which sigprof knows nothing.
    ProcessTimer,
}

impl Engine {
    /// The engine's name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::PerfEvent => "a perf event on each thread",
            Self::ThreadTimer => "a timer on each thread's CPU clock",
            Self::ProcessTimer => "one timer on the process's CPU clock",
        }
    }
}

/// How often to sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Rate {
    /// As asked for.
    pub(super) frequency_hz: u32,
    /// CPU time between two ticks.
    pub(super) period: Duration,
}

impl Rate {
    pub(super) fn new(frequency_hz: u32) -> Result<Self> {
        if frequency_hz == 0 || frequency_hz > MAX_FREQUENCY_HZ {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "a sampling frequency of {frequency_hz} Hz was asked for; it must be from 1 to {MAX_FREQUENCY_HZ} Hz"
                ),
            ));
        }
        Ok(Self {
            frequency_hz,
            period: Duration::from_nanos(1_000_000_000 / u64::from(frequency_hz)),
        })
    }

    pub(super) fn period_ns(self) -> u64 {
        self.period.as_nanos() as u64
    }

    /// Whether several ticks can fall between two of the scheduler's.
    pub(super) fn is_finer_than_scheduler(self) -> bool {
        clock::Clock::scheduler_tick_ns().is_ok_and(|tick_ns| self.period_ns() < tick_ns)
    }
}
