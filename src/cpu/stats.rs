//! What a recording did and what it cost, in numbers and in words.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

use super::engine::Engine;

/// Figures of a recording, so far or at its end.
///
/// `ticks == samples + lost.total()` holds exactly once the recording has stopped; while it runs, a few ticks can be
/// on their way.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// The clock that drives the recording.
    pub engine: Engine,
    /// The frequency that was asked for, in Hz of CPU time.
    pub frequency_hz: u32,
    /// The frequency that the period in whole nanoseconds comes to, in Hz of CPU time.
    pub effective_hz: f64,
    /// Time since the start, or from start to stop.
    pub duration: Duration,
    /// Ticks that were delivered: expiries of the clocks and signals that the program sent to itself.
    pub ticks: u64,
    /// Ticks that are in the profile: the sum of its `samples/count`.
    pub samples: u64,
    /// Signals they came in: a signal stands for several ticks where the clock is finer than the scheduler's tick.
    pub records: u64,
    /// Distinct call chains.
    pub distinct_stacks: u64,
    /// Ticks that are not in the profile, by cause.
    pub lost: Lost,
    /// Records whose stack is not whole, by reason.
    pub truncated: Truncated,
    /// Signals that were not ours to count: of another timer, or of a recording that had ended.
    pub foreign_signals: u64,
    /// Threads that were armed.
    pub threads_armed: u64,
    /// Threads for which the system refused a timer; their time is not in the profile.
    pub threads_refused: u64,
    /// The program has put a `SIGPROF` handler of its own in place of sigprof's: what ticked after that is missing.
    pub handler_replaced: bool,
    /// CPU time of the profiler's own thread, which is not in the profile.
    pub own_cpu: Duration,
    /// Bytes of memory that the recording holds.
    pub own_memory_bytes: u64,
}

/// Ticks that are not in the profile, by cause.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Lost {
    /// Other handlers held every lane of the ring.
    pub no_lane: u64,
    /// No lane had room: the flusher was behind.
    pub lane_full: u64,
    /// The program's filter dropped them.
    pub filtered: u64,
}

impl Lost {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.no_lane + self.lane_full + self.filtered
    }
}

/// Records whose stack is not whole, by the reason that unwinding stopped.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Truncated {
    /// The stack is deeper than the depth that was set.
    pub depth: u64,
    /// A frame lies in code without unwind data, or outside every module.
    pub no_unwind_data: u64,
    /// A word of the stack could not be read.
    pub unreadable: u64,
    /// A frame did not lie above the one before.
    pub not_advancing: u64,
}

impl Truncated {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.depth + self.no_unwind_data + self.unreadable + self.not_advancing
    }
}

impl Stats {
    /// Of a recording that is not this process's.
    pub(super) fn none() -> Self {
        Self {
            engine: Engine::Auto,
            frequency_hz: 0,
            effective_hz: 0.0,
            duration: Duration::ZERO,
            ticks: 0,
            samples: 0,
            records: 0,
            distinct_stacks: 0,
            lost: Lost::default(),
            truncated: Truncated::default(),
            foreign_signals: 0,
            threads_armed: 0,
            threads_refused: 0,
            handler_replaced: false,
            own_cpu: Duration::ZERO,
            own_memory_bytes: 0,
        }
    }

    /// The figures in words, as they stand in a profile's comments: a line each.
    pub fn comments(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "sigprof {}: {}",
                env!("CARGO_PKG_VERSION"),
                self.engine.name()
            ),
            format!(
                "rate: {} Hz of CPU time asked for, {:.2} Hz effective",
                self.frequency_hz, self.effective_hz
            ),
            format!(
                "ticks: {} delivered, {} recorded in {} signals, {} lost ({} no lane, {} lane full, {} filtered)",
                self.ticks,
                self.samples,
                self.records,
                self.lost.total(),
                self.lost.no_lane,
                self.lost.lane_full,
                self.lost.filtered,
            ),
            format!(
                "stacks: {} distinct; {} of {} samples truncated ({} depth, {} no unwind data, {} unreadable, {} not advancing)",
                self.distinct_stacks,
                self.truncated.total(),
                self.records,
                self.truncated.depth,
                self.truncated.no_unwind_data,
                self.truncated.unreadable,
                self.truncated.not_advancing,
            ),
            format!("threads: {} armed", self.threads_armed),
            format!(
                "profiler: {:.1} ms CPU in its own thread, {:.1} MiB",
                self.own_cpu.as_secs_f64() * 1e3,
                self.own_memory_bytes as f64 / (1024.0 * 1024.0),
            ),
        ];
        if self.threads_refused > 0 {
            lines.push(format!(
                "threads: {} refused a timer by the system, so their time is missing; raise RLIMIT_SIGPENDING (ulimit -i)",
                self.threads_refused
            ));
        }
        if self.handler_replaced {
            lines.push("handler: the program replaced sigprof's SIGPROF handler while it recorded; ticks after that are missing".into());
        }
        if self.foreign_signals > 0 {
            lines.push(format!(
                "signals: {} SIGPROF came from elsewhere and were not counted",
                self.foreign_signals
            ));
        }
        lines
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.comments().join("\n"))
    }
}
