//! A running recording: start, snapshot, stop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::choice::{Chosen, QUIET, refused_event};
use super::collector::Collector;
use super::engine::{Clock, Engine, Rate};
use super::handler::{Cookie, on_signal};
use super::profiler::Profiler;
use super::recorder::{Owner, Recorder};
use super::stats::Stats;
use super::threads::Threads;
#[cfg(feature = "http")]
use super::windows;
use crate::aggregate::Flusher;
use crate::error::{Error, ErrorKind, Result};
use crate::profile::Profile;
use crate::slots::next_number;
#[cfg(feature = "symbolize")]
use crate::symbolize;
use crate::sync::Mutex;
use crate::sys::limits::address_space_left;
use crate::sys::own_threads::as_own;
use crate::sys::signal::{self, Installed};
use crate::sys::thread::current_tid;
use crate::sys::timer::CpuTimer;

/// How long a stop waits for handlers in flight. They take microseconds; one that takes longer
/// belongs to a thread that something keeps from running, and its memory is left to it.
const HANDLERS_LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// Address space that a recording of a small program takes, with its report. The standard library
/// ends a process that has no memory left.
const ADDRESS_SPACE: u64 = 32 << 20;

/// A running CPU profile of this process. Dropping it stops it and discards what it holds.
///
/// Made by [`Profiler::start`](super::Profiler::start); there is one at a time in a process. A
/// forked child does not inherit it: there, [`stop`](Self::stop) is an error and dropping does
/// nothing.
pub struct Recording {
    number: u32,
    owner: &'static Owner,
    recorder: &'static Recorder,
    shared: Arc<Shared>,
    flusher: Mutex<Option<Flusher>>,
    uses_quiet_signal: bool,
    #[cfg(feature = "symbolize")]
    symbolize: bool,
}

/// What a recording and its flusher thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) collector: Mutex<Collector>,
    /// The process's timer, where there is none for each thread.
    process_timer: Mutex<Option<CpuTimer>>,
    /// Somebody stops it: nobody else does.
    is_stopping: AtomicBool,
    /// The flusher is to end.
    is_over: AtomicBool,
    is_stopped: AtomicBool,
}

impl Recording {
    /// Starts recording as `profiler` has it, for the program.
    pub(super) fn start(profiler: &Profiler) -> Result<Self> {
        #[cfg(feature = "http")]
        return windows::begin_recording(profiler);
        #[cfg(not(feature = "http"))]
        return Self::start_alone(profiler, &mut |_| {});
    }

    /// Starts recording as `profiler` has it, while nothing else records. Calls `before_first_tick`
    /// as soon as there is a collector.
    pub(super) fn start_alone(
        profiler: &Profiler,
        before_first_tick: &mut dyn FnMut(&mut Collector),
    ) -> Result<Self> {
        let (rate, max_depth) = profiler.checked()?;
        let left = address_space_left();
        if left < ADDRESS_SPACE {
            return Err(Error::with_code(
                ErrorKind::Os,
                format!(
                    "{} KiB of address space are left to this process, and recording may take {}; raise RLIMIT_AS (ulimit -v)",
                    left >> 10,
                    ADDRESS_SPACE >> 10
                ),
                libc::ENOMEM,
            ));
        }
        let owner = Owner::get_or_make().map_err(os("could not get a page of memory"))?;
        let (lease, number) = Lease::take(owner)?;
        let recorder = owner
            .recorder_or_make()
            .map_err(os("could not get memory for the recording's buffers"))?;
        recorder.reset();
        recorder.max_depth.store(max_depth, Ordering::Relaxed);
        recorder
            .period_ns
            .store(rate.period_ns(), Ordering::Relaxed);
        recorder.filter.set(profiler.filter_set());
        let timer_signal = profiler.signal_asked();
        recorder.signal.store(timer_signal, Ordering::Relaxed);
        match signal::install(timer_signal, on_signal) {
            Ok(Installed::Ours) => {}
            Ok(Installed::Foreign) => {
                return Err(Error::new(
                    ErrorKind::SignalInUse,
                    format!(
                        "another {} handler is installed in this process (another profiler's?), so sampling cannot start; \
                         stop that one and restore SIG_DFL first",
                        signal::name(timer_signal)
                    ),
                ));
            }
            Err(error) => {
                let name = signal::name(timer_signal);
                return Err(Error::with_source(
                    ErrorKind::Os,
                    format!("could not install a {name} handler"),
                    error,
                ));
            }
        }

        let chosen = match profiler.clock_asked() {
            Clock::Cpu => Chosen::for_cpu(profiler.engine_asked(), number, rate, timer_signal)?,
            Clock::Wall => Chosen::for_wall(number, rate, timer_signal),
        };
        recorder.births.budget.fill();
        recorder.births.open(chosen.arming);
        let threads = Threads::new(recorder, chosen.arming).map_err(os(
            "could not open /proc/self/task to find the process's threads",
        ))?;
        let mut collector = Collector::new(recorder, chosen.engine, rate, threads).map_err(os(
            "could not read /proc/self/maps to find the process's modules",
        ))?;
        if profiler.clock_asked() == Clock::Wall {
            collector.record_wall_time();
        }
        if chosen.uses_quiet_signal() {
            collector.use_quiet_signal();
        }

        before_first_tick(&mut collector);

        let uses_quiet_signal = chosen.uses_quiet_signal();
        let shared = Arc::new(Shared {
            collector: Mutex::new(collector),
            process_timer: Mutex::new(chosen.process_timer),
            is_stopping: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        });
        recorder.slots.set_recording(true);
        // From here on ticks count, and dropping the recording ends it.
        owner.recording.store(number, Ordering::SeqCst);
        lease.keep();
        let recording = Self {
            number,
            owner,
            recorder,
            shared,
            flusher: Mutex::new(None),
            uses_quiet_signal,
            #[cfg(feature = "symbolize")]
            symbolize: profiler.symbolizes(),
        };
        if let Err(error) = recording.begin(profiler, rate) {
            // It has just begun, and nobody else has it.
            let _ = recording.end_alone(&mut || {});
            return Err(error);
        }
        Ok(recording)
    }

    /// Starts the flusher, and the clocks.
    fn begin(&self, profiler: &Profiler, rate: Rate) -> Result<()> {
        let shared = self.shared.clone();
        let recorder = self.recorder;
        // Held until the clocks run, so that the flusher's first turn comes after this thread's
        // scan.
        let mut collector = self.shared.collector.lock();
        let flusher = Flusher::spawn("sigprof", move || {
            recorder.capture.find_bounds();
            while !shared.is_over.load(Ordering::Acquire) {
                let mut collector = shared.collector.lock();
                let wait = collector.turn();
                let is_lost = collector.has_lost_timer_signal();
                drop(collector);
                if is_lost {
                    drop(shared.process_timer.lock().take());
                }
                recorder.capture.doorbell.wait(wait);
            }
        })
        .map_err(os("could not start the profiler's thread"))?;
        collector.threads().leave_alone(flusher.tid());
        *self.flusher.lock() = Some(flusher);
        collector.threads().arm_at_start().map_err(os(
            "could not list the process's threads in /proc/self/task",
        ))?;
        if !collector.threads().knows(current_tid()) {
            return Err(no_thread());
        }
        let mut process_timer = self.shared.process_timer.lock();
        // One timer that sees all threads is better than many that leave some out, if nobody asked
        // for the many.
        let cookie = Cookie::of_process(self.number);
        if profiler.engine_asked() == Engine::Auto
            && collector.threads().refused() > 0
            && let Ok(timer) = CpuTimer::for_process(profiler.signal_asked(), cookie.to_u64())
        {
            collector.fall_back_to_process_timer();
            *process_timer = Some(timer);
        }
        if profiler.engine_asked() == Engine::PerfEvent && collector.threads().armed_by_perf() == 0
        {
            let refused = collector.threads().refusals().next();
            return Err(match refused {
                Some((refusal, _)) => refused_event(&refusal),
                None => no_thread(),
            });
        }
        collector.settle_engine();
        // After that, so that new threads arm themselves as the others were.
        if profiler.hooks_threads() {
            collector.hook_new_threads();
        }
        if let Some(timer) = &*process_timer {
            timer
                .arm(rate.period, rate.period)
                .map_err(os("could not set the process's CPU timer"))?;
        }
        Ok(())
    }

    /// The profile so far. The recording keeps running and loses no tick.
    ///
    /// # Errors
    ///
    /// In a forked child, and after [`stop`](Self::stop).
    pub fn snapshot(&self) -> Result<Profile> {
        if self.is_stopped() {
            return Err(already_stopped());
        }
        self.check_owner()?;
        Ok(as_own(|| {
            let profile = self.shared.collector.lock().profile();
            self.finished(profile)
        }))
    }

    /// What the recording did so far, or did until it was stopped; all zeros in a forked child.
    pub fn stats(&self) -> Stats {
        if !self.is_own() {
            // A lock may have been held when the child was made.
            return Stats::none();
        }
        self.shared.collector.lock().stats()
    }

    /// Ticks in the profile so far; 0 in a forked child.
    #[cfg(feature = "capi")]
    pub(crate) fn samples(&self) -> u64 {
        match self.is_own() {
            true => self.shared.collector.lock().samples(),
            // A lock may have been held when the child was made.
            false => 0,
        }
    }

    /// Stops the recording and returns its profile. Waits for handlers in flight, so the profile
    /// holds every tick that was delivered and not [lost](Stats::lost).
    ///
    /// # Errors
    ///
    /// When it has been stopped before, and in a forked child, where nothing is recorded.
    pub fn stop(&self) -> Result<Profile> {
        as_own(|| {
            self.end()?;
            let profile = self.shared.collector.lock().profile();
            Ok(self.finished(profile))
        })
    }

    /// Ends the recording, for the program.
    fn end(&self) -> Result<()> {
        if self.is_stopped() {
            return Err(already_stopped());
        }
        self.check_owner()?;
        #[cfg(feature = "http")]
        return windows::end_recording(self);
        #[cfg(not(feature = "http"))]
        return self.end_alone(&mut || {});
    }

    /// Ends the clocks, the flusher and the handlers' work, and lets the next recording start. Calls
    /// `when_counted` between the two.
    pub(super) fn end_alone(&self, when_counted: &mut dyn FnMut()) -> Result<()> {
        if self.shared.is_stopping.swap(true, Ordering::AcqRel) {
            return Err(already_stopped());
        }
        drop(self.shared.process_timer.lock().take());
        self.recorder.births.close();
        let timer_signal = self.recorder.signal.load(Ordering::Relaxed);
        // What cannot be asked is taken to be as it was.
        let is_replaced = |number| signal::is_installed(number, on_signal).is_ok_and(|is| !is);
        let handler_replaced =
            is_replaced(timer_signal) || self.uses_quiet_signal && is_replaced(QUIET);
        self.shared.collector.lock().disarm(handler_replaced);
        // Handlers that come from here on see that nothing is recorded; the others hold a lane.
        self.owner.recording.store(0, Ordering::SeqCst);
        // Only now, since the books of the end hold the time of the flusher's thread.
        self.shared.is_over.store(true, Ordering::Release);
        self.recorder.capture.doorbell.wake_once();
        if let Some(flusher) = self.flusher.lock().take() {
            flusher.join();
        }
        let deadline = Instant::now() + HANDLERS_LEAVE_WITHIN;
        let mut in_flight = self.recorder.capture.rack.oldest_epoch().is_some();
        while in_flight && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(50));
            in_flight = self.recorder.capture.rack.oldest_epoch().is_some();
        }
        let mut collector = self.shared.collector.lock();
        if in_flight {
            collector.leak();
            self.owner.abandon_recorder();
        } else {
            // SAFETY: every lane was seen free after the recording had been marked as ended, and a
            // handler that claims one later looks at that mark before it does anything else.
            unsafe { collector.finish() };
        }
        drop(collector);
        when_counted();
        self.shared.is_stopped.store(true, Ordering::Release);
        self.owner.holder.store(0, Ordering::Release);
        Ok(())
    }

    #[cfg(feature = "http")]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// In a forked child the owner's page reads as zeros, or belongs to a recording of the child's
    /// own.
    fn check_owner(&self) -> Result<()> {
        if self.is_own() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ForeignProcess,
            "this recording was started by the process that this one was forked from and does not run here; \
             start a new one in the child",
        ))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire)
    }

    fn is_own(&self) -> bool {
        self.is_stopped() || self.owner.holder.load(Ordering::Acquire) == self.number
    }

    /// Names for the addresses, where that was asked for.
    fn finished(&self, profile: Profile) -> Profile {
        #[cfg(feature = "symbolize")]
        if self.symbolize {
            let mut profile = profile;
            symbolize::add_names(&mut profile);
            return profile;
        }
        profile
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.is_own() {
            // An error says that it has been stopped.
            let _ = self.end();
            return;
        }
        // A forked child: the timers and the thread are the parent's and do not exist here, and a
        // lock may have been held when the child was made. All of it is left as it is.
        std::mem::forget(self.flusher.get_mut().take());
        std::mem::forget(self.shared.clone());
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("number", &self.number)
            .field("is_stopped", &self.shared.is_stopped)
            .finish_non_exhaustive()
    }
}

/// The right to start a recording, given back when dropped unless it was kept.
struct Lease(&'static Owner);

impl Lease {
    /// The right, and the recording's number.
    fn take(owner: &'static Owner) -> Result<(Self, u32)> {
        let taken =
            owner
                .holder
                .compare_exchange(0, next_number(), Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_err() {
            return Err(Error::new(
                ErrorKind::AlreadyRunning,
                "a recording is already running in this process and was left as it is; stop it first, \
                 or take a snapshot of it",
            ));
        }
        // Taken after the recording before has ended, so that it is greater than those of all its
        // threads.
        let number = next_number();
        owner.holder.store(number, Ordering::Release);
        Ok((Self(owner), number))
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.holder.store(0, Ordering::Release);
    }
}

pub(super) fn os(what: &str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::with_source(ErrorKind::Os, what, source)
}

fn no_thread() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "/proc/self/task does not list the calling thread, so no thread would be sampled: /proc is of another PID \
         namespace; mount it anew in this one (unshare --mount-proc)",
    )
}

fn already_stopped() -> Error {
    Error::new(
        ErrorKind::AlreadyStopped,
        "this recording has been stopped before; its profile went to whoever stopped it",
    )
}
