//! What a recording did and what it cost, in numbers and in words.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

use super::arming::Refusal;
use super::audit::Audit;
use super::engine::Engine;

/// Figures of a recording, so far or at its end.
///
/// `ticks == samples + lost.total()` holds exactly once the recording has stopped; while it runs, a
/// few ticks can be on their way. By [`Clock::Wall`](super::Clock::Wall) it always does: there a
/// tick is a period of a thread's elapsed time that has found its stack, by a look or because the
/// thread was still where the last look had found it, or that the filter dropped.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// What drives the recording; by [`Clock::Wall`](super::Clock::Wall) it is always
    /// [`Engine::Auto`].
    pub engine: Engine,
    /// The frequency that was asked for, in Hz of the recorded time.
    pub frequency_hz: u32,
    /// The frequency that the period in whole nanoseconds comes to, in Hz of the recorded time.
    pub effective_hz: f64,
    /// Time since the start, or from start to stop.
    pub duration: Duration,
    /// Ticks that were delivered: expiries of the clocks and signals that the program sent to
    /// itself.
    pub ticks: u64,
    /// Ticks that are in the profile: the sum of its `samples/count`.
    pub samples: u64,
    /// Signals they came in: a signal stands for several ticks where the clock is finer than the
    /// scheduler's tick.
    pub records: u64,
    /// Distinct call chains.
    pub distinct_stacks: u64,
    /// Ticks that are not in the profile, by cause.
    pub lost: Lost,
    /// Records whose stack is not whole, by reason.
    pub truncated: Truncated,
    /// Ticks that the program sent to itself: each is a sample of one period, which no clock saw. 0
    /// by elapsed time.
    pub sent: u64,
    /// Signals that were not ours to count: of another timer, or of a recording that had ended.
    pub foreign_signals: u64,
    /// System calls that a tick interrupted and that began again, where the kernel would have them
    /// return `EINTR`.
    pub calls_restarted: u64,
    /// System calls that returned `EINTR` when a tick had come: because a handler of the program's
    /// may have run in them, because the code before them does not tell their number, or because
    /// they cannot begin again.
    pub calls_interrupted: u64,
    /// What became of the process's CPU time; all zeros where elapsed time is recorded.
    pub cpu: CpuTime,
    /// What became of the threads' elapsed time, where that is recorded.
    pub wall: Option<WallTime>,
    /// Threads that got a clock.
    pub threads_armed: u64,
    /// New threads arm themselves, instead of being found a little later.
    pub threads_hooked: bool,
    /// Those that were armed with a perf event.
    pub threads_by_perf: u64,
    /// Threads that have no clock, because the system refused every kind; their time is
    /// `[unsampled]`.
    pub threads_refused: u64,
    /// What the system refused to threads, and what can be done about it.
    pub fallbacks: Vec<Fallback>,
    /// Threads that used CPU time while they blocked the signal of their clock (`SIGPROF`, or
    /// `SIGURG` of a perf event), by name and id: their ticks wait, and fall on the place where
    /// they unblock it, if they do.
    pub threads_blocking: Vec<String>,
    /// The program has put a handler of its own in place of sigprof's for `SIGPROF`, and what
    /// ticked after that is missing; or for `SIGURG`, and threads got timers in place of perf
    /// events.
    pub handler_replaced: bool,
    /// CPU time of the profiler's own thread, which is not in the profile.
    pub own_cpu: Duration,
    /// Bytes of memory that the recording holds.
    pub own_memory_bytes: u64,
}

/// What became of the CPU time that the process used while it was recorded, the profiler's own
/// thread left out, except with [`Engine::ProcessTimer`], whose clock does not tell threads apart.
///
/// `total` is by the process's own clock, and the parts add up to it. Where the ticks in stacks
/// come to more, which by rounding they can by a part of a period for each thread, they stand for a
/// little less than a period each.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct CpuTime {
    /// All of it.
    pub total: Duration,
    /// In stacks: ticks times the period, at most.
    pub in_stacks: Duration,
    /// In the frame `[lost]`: ticks that found no room.
    pub lost: Duration,
    /// In the frame `[unsampled]`: before a thread was found, after its last tick, or of threads
    /// that could not be sampled.
    pub unsampled: Duration,
    /// In the frame `[kernel]`: time in the kernel, where the clocks see user time alone.
    pub kernel: Duration,
    /// In the frames `[kernel: io_uring worker]` and `[kernel: worker]`, under the names of threads
    /// that work in the kernel for the process and run none of its code: io_uring's, those that
    /// poll a submission queue among them, and vhost's. No clock interrupts them; this is by their
    /// own CPU clocks.
    pub kernel_workers: Duration,
    /// Dropped by the program's filter, and in no frame.
    pub filtered: Duration,
}

impl CpuTime {
    /// The part of the total that is in stacks, from 0 to 1. The kernel's workers count as if they
    /// had some: it is known what they do.
    pub fn coverage(&self) -> f64 {
        let told = self.in_stacks + self.kernel_workers;
        match self.total.as_secs_f64() {
            0.0 => 1.0,
            total => (told.as_secs_f64() / total).min(1.0),
        }
    }
}

/// What became of the elapsed time of all threads but the profiler's own, and what it took to find
/// out.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct WallTime {
    /// Threads that lived while the recording ran.
    pub threads: u64,
    /// Time in stacks.
    pub in_stacks: Duration,
    /// Time in the frame `[unsampled]`, for which no stack was found.
    pub unsampled: Duration,
    /// Time in the frames `[kernel: io_uring worker]` and `[kernel: worker]`: of threads that work
    /// in the kernel for the process, and run none of its code.
    pub kernel_workers: Duration,
    /// Time of threads that the program's filter dropped, in no frame.
    pub filtered: Duration,
    /// Signals that were sent to look at a thread.
    pub looks: u64,
    /// Those of them that were sent to threads that waited.
    pub looks_at_waiting: u64,
}

impl From<&Audit> for CpuTime {
    fn from(audit: &Audit) -> Self {
        Self {
            total: audit.cpu,
            in_stacks: audit.in_stacks,
            lost: audit.lost,
            unsampled: audit.unsampled,
            kernel: audit.kernel,
            kernel_workers: audit.kernel_workers,
            filtered: audit.filtered,
        }
    }
}

/// A kind of clock that the system refused to threads, so that they have another or none.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Fallback {
    /// The engine that was refused.
    pub engine: Engine,
    /// To how many threads.
    pub threads: u64,
    /// What was refused and why.
    pub reason: String,
    /// What can be done about it.
    pub remedy: &'static str,
}

impl Fallback {
    pub(super) fn of((refusal, threads): (Refusal, u64)) -> Self {
        Self {
            engine: refusal.engine,
            threads,
            reason: refusal.to_string(),
            remedy: refusal.remedy(),
        }
    }
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
            sent: 0,
            foreign_signals: 0,
            calls_restarted: 0,
            calls_interrupted: 0,
            cpu: CpuTime::default(),
            wall: None,
            threads_armed: 0,
            threads_hooked: false,
            threads_by_perf: 0,
            threads_refused: 0,
            fallbacks: Vec::new(),
            threads_blocking: Vec::new(),
            handler_replaced: false,
            own_cpu: Duration::ZERO,
            own_memory_bytes: 0,
        }
    }

    /// The figures in words, as they stand in a profile's comments: a line each.
    pub fn comments(&self) -> Vec<String> {
        let (driver, time) = match self.wall {
            Some(_) => ("looks at threads by elapsed time", "wall"),
            None => (self.engine.name(), "CPU"),
        };
        let of_time = match self.wall {
            Some(wall) => wall.to_string(),
            None => self.cpu.to_string(),
        };
        let mut lines = vec![
            format!("sigprof {}: {driver}", env!("CARGO_PKG_VERSION")),
            format!(
                "rate: {} Hz of {time} time asked for, {:.2} Hz effective",
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
            of_time,
        ];
        if self.wall.is_none() {
            lines.push(format!(
                "threads: {} armed, {} of them with a perf event",
                self.threads_armed, self.threads_by_perf
            ));
        }
        lines.push(format!(
            "profiler: {:.1} ms CPU in its own thread, {:.1} MiB",
            self.own_cpu.as_secs_f64() * 1e3,
            self.own_memory_bytes as f64 / (1024.0 * 1024.0),
        ));
        for fallback in self
            .fallbacks
            .iter()
            .filter(|fallback| fallback.threads > 0)
        {
            lines.push(format!(
                "threads: {} were refused {}; {}",
                fallback.threads, fallback.reason, fallback.remedy
            ));
        }
        if self.threads_refused > 0 {
            lines.push(format!(
                "threads: {} have no clock, so their time is [unsampled]",
                self.threads_refused
            ));
        }
        if !self.threads_blocking.is_empty() {
            lines.push(format!(
                "threads: {} block the signal of their clock, so their ticks wait: {}",
                self.threads_blocking.len(),
                self.threads_blocking.join(", ")
            ));
        }
        if self.handler_replaced {
            lines.push("handler: the program replaced sigprof's signal handler while it recorded; samples are missing".into());
        }
        if self.sent > 0 {
            lines.push(format!(
                "signals: {} ticks were sent by the program itself; they stand for {:.1} ms that no clock saw",
                self.sent,
                self.sent as f64 / self.effective_hz * 1e3
            ));
        }
        if self.foreign_signals > 0 {
            lines.push(format!(
                "signals: {} came from elsewhere, or from clocks that had been deleted, and were not counted",
                self.foreign_signals
            ));
        }
        if self.calls_interrupted > 0 {
            lines.push(format!(
                "signals: {} system calls of the program returned EINTR because of a tick",
                self.calls_interrupted
            ));
        }
        lines
    }
}

impl fmt::Display for CpuTime {
    /// "99.7 % of 12.41 s CPU in stacks", and where the rest is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cpu: {:.1} % of {:.2} s CPU in stacks",
            self.coverage() * 100.0,
            self.total.as_secs_f64()
        )?;
        if !self.kernel_workers.is_zero() {
            let workers_ms = self.kernel_workers.as_secs_f64() * 1e3;
            write!(f, " ({workers_ms:.1} ms of it the kernel's workers)")?;
        }
        for (time, what) in [
            (self.lost, "[lost]"),
            (self.unsampled, "[unsampled]"),
            (self.kernel, "[kernel]"),
            (self.filtered, "filtered"),
        ] {
            if !time.is_zero() {
                write!(f, ", {:.1} ms {what}", time.as_secs_f64() * 1e3)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for WallTime {
    /// "wall: 3 threads, 30.01 s in stacks, …", and how many signals that took.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "wall: {} threads, {:.2} s in stacks, {:.1} ms [unsampled]",
            self.threads,
            self.in_stacks.as_secs_f64(),
            self.unsampled.as_secs_f64() * 1e3
        )?;
        if !self.kernel_workers.is_zero() {
            let workers = self.kernel_workers.as_secs_f64();
            write!(f, ", {workers:.2} s the kernel's workers")?;
        }
        if !self.filtered.is_zero() {
            write!(f, ", {:.1} ms filtered", self.filtered.as_secs_f64() * 1e3)?;
        }
        write!(
            f,
            ", {} looks (signals), {} of them at waiting threads",
            self.looks, self.looks_at_waiting
        )
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.comments().join("\n"))
    }
}
