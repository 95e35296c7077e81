//! Which engine a recording can have, and the signals that it takes.
//!
//! Timers send `SIGPROF`, as everywhere, or what is asked for. When a program executes another one,
//! the kernel takes back what its timers have sent; a perf event's signal that was on its way is
//! delivered to the new program, which has no handler and would die of `SIGPROF`. So events, and
//! the profiler's own looks at threads, use a signal that means nothing to whoever does not ask for
//! it: `SIGURG`.

use super::arming::{Arming, Cause, Choice, Refusal};
use super::engine::{Engine, Rate};
use super::handler::{Cookie, on_signal};
use super::recording::os;
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::sys::perf_event::TaskClock;
use crate::sys::signal::Installed;
use crate::sys::thread::current_tid;
use crate::sys::timer::CpuTimer;

/// The signal of timers, and of programs that send it to themselves, where no other is asked for.
pub(super) const SIGNAL: libc::c_int = libc::SIGPROF;
/// The signal of perf events and of looks: ignored by programs that have no handler for it.
pub(super) const QUIET: libc::c_int = libc::SIGURG;

const TIMER_REMEDY: &str = "the system refused a POSIX timer; raise RLIMIT_SIGPENDING (ulimit -i), or allow timer_create \
                            in the sandbox's system call filter";

/// What a recording ticks by.
pub(super) struct Chosen {
    pub(super) engine: Engine,
    pub(super) arming: Arming,
    /// The process's timer, not armed yet, if that is it.
    pub(super) process_timer: Option<CpuTimer>,
}

impl Chosen {
    /// Elapsed time needs no clock but the flusher's.
    pub(super) fn for_wall(recording: u32, rate: Rate, signal: libc::c_int) -> Self {
        let quiet = match install_quiet() {
            Ok(()) => QUIET,
            // Looks are few, and an exec is rarely in their way.
            Err(_) => signal,
        };
        Self {
            engine: Engine::Auto,
            arming: Arming {
                quiet,
                ..arming(recording, rate, signal, Choice::Nothing)
            },
            process_timer: None,
        }
    }

    /// The engine that can be had. The calling thread stands for all; each of the others falls back
    /// by itself.
    pub(super) fn for_cpu(
        asked: Engine,
        recording: u32,
        rate: Rate,
        signal: libc::c_int,
    ) -> Result<Self> {
        let by = |engine, choice| Self {
            engine,
            arming: arming(recording, rate, signal, choice),
            process_timer: None,
        };
        let with_kernel = || by(Engine::PerfEvent, Choice::PerfEvent { with_kernel: true });
        let user_only = || by(Engine::PerfEvent, Choice::PerfEvent { with_kernel: false });
        let timers = || by(Engine::ThreadTimer, Choice::ThreadTimer);
        let one_timer = || {
            let timer = CpuTimer::for_process(signal, Cookie::of_process(recording).to_u64())
                .map_err(os(TIMER_REMEDY))?;
            Ok(Self {
                process_timer: Some(timer),
                ..by(Engine::ProcessTimer, Choice::Nothing)
            })
        };
        let try_timer = || {
            CpuTimer::for_thread(
                current_tid(),
                signal,
                Cookie::of_process(recording).to_u64(),
            )
            .map(drop)
        };
        let try_event =
            |with_kernel| TaskClock::for_thread(current_tid(), rate.period, with_kernel).map(drop);
        match asked {
            Engine::PerfEvent => {
                install_quiet()?;
                match try_event(true) {
                    Ok(()) => Ok(with_kernel()),
                    Err(_) => try_event(false).map(|()| user_only()).map_err(|error| {
                        refused_event(&Refusal {
                            engine: Engine::PerfEvent,
                            cause: Cause::Os(error.raw_os_error().unwrap_or(libc::EIO)),
                        })
                    }),
                }
            }
            Engine::ThreadTimer => try_timer().map(|()| timers()).map_err(os(TIMER_REMEDY)),
            Engine::ProcessTimer => one_timer(),
            // User time alone would leave out whatever is done in the kernel, so it is no choice to
            // be made for somebody.
            Engine::Auto
                if rate.is_finer_than_scheduler()
                    && try_event(true).is_ok()
                    && install_quiet().is_ok() =>
            {
                Ok(with_kernel())
            }
            Engine::Auto => match try_timer() {
                Ok(()) => Ok(timers()),
                Err(_) => one_timer(),
            },
        }
    }

    /// Whether [`QUIET`] is one of its signals.
    pub(super) fn uses_quiet_signal(&self) -> bool {
        // Elapsed time has its looks; the timer of a process has not.
        match self.arming.choice {
            Choice::PerfEvent { .. } => true,
            Choice::ThreadTimer => false,
            Choice::Nothing => self.process_timer.is_none() && self.arming.quiet == QUIET,
        }
    }
}

fn arming(recording: u32, rate: Rate, signal: libc::c_int, choice: Choice) -> Arming {
    Arming {
        recording,
        signal,
        has_timers: true,
        quiet: QUIET,
        rate,
        choice,
    }
}

fn install_quiet() -> Result<()> {
    match sys::signal::install(QUIET, on_signal) {
        Ok(Installed::Ours) => Ok(()),
        Ok(Installed::Foreign) => Err(Error::new(
            ErrorKind::SignalInUse,
            "the program has a handler for SIGURG, which perf events need, so Engine::PerfEvent cannot be had; \
             use Engine::Auto or Engine::ThreadTimer",
        )),
        Err(error) => Err(os("could not install a SIGURG handler")(error)),
    }
}

/// Why there is no perf event for anybody.
pub(super) fn refused_event(refusal: &Refusal) -> Error {
    Error::new(
        ErrorKind::Os,
        format!(
            "the system refused {refusal}, so Engine::PerfEvent cannot be had; {}, or use Engine::Auto",
            refusal.remedy()
        ),
    )
}
