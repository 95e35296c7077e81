//! How to record: the builder.

use super::choice::SIGNAL;
use super::engine::{Clock, Engine, Rate};
use super::recorder::FilterFn;
use super::recording::Recording;
use crate::error::{Error, ErrorKind, Result};
use crate::ring::MAX_DEPTH;
use crate::sys::own_threads::as_own;
use crate::sys::signal::is_for_programs;

/// What a CPU profile is recorded with; [`start`](Self::start) does it.
///
/// ```
/// # fn main() -> sigprof::Result<()> {
/// let recording = sigprof::cpu::Profiler::new().frequency_hz(1000).start()?;
/// // … the program's work …
/// let profile = recording.stop()?;
/// println!("{}", profile.top(10));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is recorded before `start`"]
pub struct Profiler {
    frequency_hz: u32,
    max_depth: usize,
    clock: Clock,
    engine: Engine,
    signal: libc::c_int,
    filter: Option<Filter>,
    hook_threads: bool,
    #[cfg(feature = "symbolize")]
    symbolize: bool,
}

/// A filter and its argument.
#[derive(Clone, Copy, Debug)]
struct Filter {
    function: FilterFn,
    argument: *mut libc::c_void,
}

// SAFETY: the argument is only handed to the function, which by the contract of `Profiler::filter`
// may be called with it from any thread.
unsafe impl Send for Filter {}
// SAFETY: as above.
unsafe impl Sync for Filter {}

impl Default for Profiler {
    fn default() -> Self {
        Self {
            frequency_hz: 100,
            max_depth: MAX_DEPTH,
            clock: Clock::Cpu,
            engine: Engine::Auto,
            signal: SIGNAL,
            filter: None,
            hook_threads: true,
            #[cfg(feature = "symbolize")]
            symbolize: true,
        }
    }
}

impl Profiler {
    /// 100 Hz of CPU time, 512 frames deep, by the best clock there is.
    pub fn new() -> Self {
        Self::default()
    }

    /// Samples a second of each thread's time by the recording's [clock](Self::clock): from 1 to
    /// 10,000, by default 100.
    pub fn frequency_hz(mut self, frequency_hz: u32) -> Self {
        self.frequency_hz = frequency_hz;
        self
    }

    /// The most frames of a stack to keep: from 1 to 512, by default 512. A deeper stack keeps its
    /// leaf end and counts as [truncated](super::Truncated::depth).
    pub fn max_depth(mut self, frames: usize) -> Self {
        self.max_depth = frames;
        self
    }

    /// The time to record; by default CPU time.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// What makes the recording tick; by default the best there is.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// The signal that timers send, by number; by default `SIGPROF`. From the start of the
    /// recording to the end of the process the signal is sigprof's. It must not be one that a fault
    /// raises, or one that the system or the C library keeps for itself. gperftools'
    /// `CPUPROFILE_TIMER_SIGNAL`.
    pub fn signal(mut self, signal: i32) -> Self {
        self.signal = signal;
        self
    }

    /// Whether profiles get the names of functions, files and lines when they are taken; by default
    /// they do. Without, they hold addresses and mappings, which `pprof` can name later where the
    /// binaries are at hand.
    #[cfg(feature = "symbolize")]
    pub fn symbolize(mut self, symbolize: bool) -> Self {
        self.symbolize = symbolize;
        self
    }

    /// Whether threads that begin while the recording runs arm themselves, before their first
    /// instruction; by default they do.
    ///
    /// To that end the word through which each loaded library calls `pthread_create` is made to
    /// lead through a function of sigprof's until the recording stops. A thread's clock is then
    /// made on the thread: where it runs under a filter of system calls that kills on
    /// `perf_event_open` or `timer_create`, and the thread that starts the recording does not, this
    /// must be off. Without it, a new thread is found within some 10 ms, and what it did before is
    /// `[unsampled]`. A thread that was created with `SIGPROF` blocked unblocks the signal.
    pub fn hook_threads(mut self, hook: bool) -> Self {
        self.hook_threads = hook;
        self
    }

    /// Asks `function(argument)` at each tick, on the thread that it falls on, whether to keep it:
    /// 0 drops it, and counts it as [filtered](super::Lost::filtered). gperftools'
    /// `filter_in_thread`.
    ///
    /// # Safety
    ///
    /// The function is called in the signal handler, on any thread, until the recording has
    /// stopped: it must be async-signal-safe, and must not unwind or jump out; the argument must
    /// stay valid as long.
    pub unsafe fn filter(mut self, function: FilterFn, argument: *mut libc::c_void) -> Self {
        self.filter = Some(Filter { function, argument });
        self
    }

    /// Starts to record every thread of the process, those that begin later included.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a frequency or a depth out of range, a signal
    /// that cannot be had, or an engine with [`Clock::Wall`];
    /// [`AlreadyRunning`](ErrorKind::AlreadyRunning) while another recording runs, which is left as
    /// it is; [`SignalInUse`](ErrorKind::SignalInUse) where another handler of the
    /// [signal](Self::signal) is installed; [`Os`](ErrorKind::Os) where the system refuses a timer,
    /// a thread or memory.
    pub fn start(self) -> Result<Recording> {
        as_own(|| Recording::start(&self))
    }

    pub(super) fn checked(&self) -> Result<(Rate, usize)> {
        if self.clock == Clock::Wall && self.engine != Engine::Auto {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{:?} was asked for with Clock::Wall, which the profiler's own thread drives and no engine; leave the \
                     engine at Engine::Auto, or record Clock::Cpu",
                    self.engine
                ),
            ));
        }
        if self.max_depth == 0 || self.max_depth > MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "a stack depth of {} frames was asked for; it must be from 1 to {MAX_DEPTH}",
                    self.max_depth
                ),
            ));
        }
        if !is_for_programs(self.signal) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "signal {} was asked for; it must be one that a program may have a handler for, and that no fault raises, \
                     as SIGPROF is ({})",
                    self.signal,
                    libc::SIGPROF
                ),
            ));
        }
        Ok((Rate::new(self.frequency_hz)?, self.max_depth))
    }

    pub(crate) fn clock_asked(&self) -> Clock {
        self.clock
    }

    pub(super) fn engine_asked(&self) -> Engine {
        self.engine
    }

    pub(crate) fn signal_asked(&self) -> libc::c_int {
        self.signal
    }

    pub(super) fn hooks_threads(&self) -> bool {
        self.hook_threads
    }

    pub(super) fn filter_set(&self) -> Option<(FilterFn, *mut libc::c_void)> {
        self.filter.map(|f| (f.function, f.argument))
    }

    #[cfg(feature = "symbolize")]
    pub(super) fn symbolizes(&self) -> bool {
        self.symbolize
    }
}
