//! A thread gets its clock: which one, and what to do where the system refuses it.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::engine::{Engine, Rate};
use super::events::Events;
use super::handler::Cookie;
use crate::slots::Slot;
use crate::sys::clock::Clock;
use crate::sys::limits::{open_files, open_files_limit, pending_signals_limit};
use crate::sys::perf_event::{self, TaskClock};
use crate::sys::timer::CpuTimer;

/// What makes threads tick.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Choice {
    /// A perf event on each; a timer where there is none to be had.
    PerfEvent { with_kernel: bool },
    /// A timer on each.
    ThreadTimer,
    /// Nothing of their own: a timer of the process does it, or the profiler's thread looks at
    /// them.
    Nothing,
}

/// How threads are made to tick in a recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arming {
    pub(super) recording: u32,
    /// What timers send.
    pub(super) signal: libc::c_int,
    /// Timers are to be had: their signal is not the program's own by now.
    pub(super) has_timers: bool,
    /// What perf events send, and looks are asked for with.
    pub(super) quiet: libc::c_int,
    pub(super) rate: Rate,
    pub(super) choice: Choice,
}

/// What makes one thread tick, until it is dropped.
#[derive(Debug)]
pub(super) enum ThreadClock {
    PerfEvent(TaskClock),
    Timer(#[expect(dead_code, reason = "held for its drop")] CpuTimer),
}

/// A clock that the system, or consideration for the host, refused to a thread.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Refusal {
    pub(super) engine: Engine,
    pub(super) cause: Cause,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Cause {
    /// The part of the system's limit that is left to the host would have been used.
    Share,
    /// The system's error number.
    Os(i32),
}

/// How many clocks of each kind may still be made.
#[derive(Debug, Default)]
pub(super) struct Budget {
    pub(super) perf_events: AtomicI64,
    pub(super) timers: AtomicI64,
}

impl Budget {
    /// What this process may take: a quarter of the descriptors that are left to it, half of the
    /// signals that its user may have queued. The rest is the host's.
    pub(super) fn fill(&self) {
        let files = open_files_limit().saturating_sub(open_files()) / 4;
        let timers = pending_signals_limit() / 2;
        let store = |left: &AtomicI64, n: u64| {
            left.store(n.try_into().unwrap_or(i64::MAX), Ordering::Relaxed);
        };
        store(&self.perf_events, files);
        store(&self.timers, timers);
    }

    /// Has the system make room for perf events on so many threads, which can take some
    /// milliseconds.
    pub(super) fn make_room(&self, threads: usize) {
        let left = self.perf_events.load(Ordering::Relaxed).max(0) as u64;
        perf_event::make_room(left.min(threads as u64));
    }

    /// Takes one, if any is left.
    fn take(left: &AtomicI64) -> bool {
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left > 0).then_some(left - 1)
        })
        .is_ok()
    }

    /// Gives back what `clock` took.
    pub(super) fn give_back(&self, clock: &ThreadClock) {
        let left = match clock {
            ThreadClock::PerfEvent(_) => &self.perf_events,
            ThreadClock::Timer(_) => &self.timers,
        };
        left.fetch_add(1, Ordering::Relaxed);
    }
}

/// What arming a thread came to.
#[derive(Debug, Default)]
pub(super) struct Armed {
    pub(super) clock: Option<ThreadClock>,
    /// What was refused on the way. No list: it is made on threads that may not allocate.
    pub(super) refused: [Option<Refusal>; 2],
    /// The thread was gone.
    pub(super) is_gone: bool,
    /// The thread has armed itself meanwhile.
    pub(super) is_taken_over: bool,
}

impl Arming {
    /// Gives a thread its clock, which ticks only after the right to it is
    /// [confirmed](Slot::confirm).
    ///
    /// `phase` is the time until its first tick, in (0, period]. `early` is as random, and by how
    /// much before each tick of an event a period ends: a tick that is late or early, by the CPU
    /// clock, then counts for one more or less as often as that is right, and the sum of them is
    /// not biased.
    pub(super) fn arm(
        &self,
        tid: i32,
        (cookie, slot): (Cookie, &Slot),
        [phase, early]: [Duration; 2],
        budget: &Budget,
        events: &Events,
    ) -> Armed {
        let mut armed = Armed::default();
        if let Choice::PerfEvent { with_kernel } = self.choice {
            // Where the event sees all time, the thread's CPU clock says what a tick stands for.
            let due_ns = match Clock::thread_cpu(tid).now_ns() {
                Ok(now_ns) if with_kernel => {
                    let due_ns = now_ns.wrapping_add(phase.as_nanos() as u64);
                    due_ns.wrapping_sub(early.as_nanos() as u64).max(1)
                }
                _ => 0,
            };
            let made = attempt(&budget.perf_events, || {
                let event = self.perf_event(tid, cookie, phase, with_kernel, events)?;
                let is_confirmed = slot.confirm(cookie.serial);
                if is_confirmed {
                    slot.due_ns.store(due_ns, Ordering::Relaxed);
                    event.begin()?;
                } else {
                    events.clear(event.fd(), cookie);
                }
                Ok(is_confirmed.then_some(ThreadClock::PerfEvent(event)))
            });
            match made {
                Ok(clock) => armed.have(clock),
                Err(Cause::Os(libc::ESRCH)) => armed.is_gone = true,
                Err(cause) => {
                    let engine = Engine::PerfEvent;
                    armed.refused[0] = Some(Refusal { engine, cause });
                }
            }
        }
        if self.choice != Choice::Nothing && self.has_timers && armed.is_open() {
            let made = attempt(&budget.timers, || {
                let timer = CpuTimer::for_thread(tid, self.signal, cookie.to_u64())?;
                let is_confirmed = slot.confirm(cookie.serial);
                if is_confirmed {
                    // Timers say what they stand for. An event that the thread had before may have
                    // used it.
                    slot.due_ns.store(0, Ordering::Relaxed);
                    timer.arm(phase, self.rate.period)?;
                }
                Ok(is_confirmed.then_some(ThreadClock::Timer(timer)))
            });
            match made {
                Ok(clock) => armed.have(clock),
                // What `timer_create` says of a thread that is gone.
                Err(Cause::Os(libc::EINVAL)) => armed.is_gone = true,
                Err(cause) => {
                    let engine = Engine::ThreadTimer;
                    armed.refused[1] = Some(Refusal { engine, cause });
                }
            }
        }
        if armed.clock.is_none() && !armed.is_taken_over {
            // It has none, or had one of its own and is gone.
            armed.is_taken_over = !slot.confirm(cookie.serial);
        }
        armed
    }

    /// An event that stands still yet. It has no phase of its own: the first tick comes after a
    /// period of that length, and the handler has it go on with the right one then.
    fn perf_event(
        &self,
        tid: i32,
        cookie: Cookie,
        phase: Duration,
        with_kernel: bool,
        events: &Events,
    ) -> io::Result<TaskClock> {
        let clock = TaskClock::for_thread(tid, phase, with_kernel)?;
        if !events.set(clock.fd(), cookie) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        clock.direct(self.quiet, tid)?;
        Ok(clock)
    }
}

impl Armed {
    /// Whether there is still a clock to be had.
    fn is_open(&self) -> bool {
        self.clock.is_none() && !self.is_gone && !self.is_taken_over
    }

    /// The clock, unless the thread has taken over the right to it.
    fn have(&mut self, clock: Option<ThreadClock>) {
        self.is_taken_over = clock.is_none();
        self.clock = clock;
    }
}

/// Makes a clock, if the budget has one left. What is not made is given back.
fn attempt(
    left: &AtomicI64,
    make: impl FnOnce() -> io::Result<Option<ThreadClock>>,
) -> Result<Option<ThreadClock>, Cause> {
    if !Budget::take(left) {
        return Err(Cause::Share);
    }
    let made = make();
    if !matches!(made, Ok(Some(_))) {
        left.fetch_add(1, Ordering::Relaxed);
    }
    made.map_err(|error| Cause::Os(error.raw_os_error().unwrap_or(libc::EIO)))
}

impl Refusal {
    /// What can be done about it.
    pub(super) fn remedy(&self) -> &'static str {
        const MORE_FILES: &str = "raise RLIMIT_NOFILE (ulimit -n)";
        const MORE_SIGNALS: &str = "raise RLIMIT_SIGPENDING (ulimit -i)";
        match (self.engine, self.cause) {
            (Engine::PerfEvent, Cause::Share | Cause::Os(libc::EMFILE | libc::ENFILE)) => {
                MORE_FILES
            }
            (Engine::PerfEvent, Cause::Os(libc::EACCES | libc::EPERM)) => {
                "set kernel.perf_event_paranoid to 1 or less (sysctl), give the program CAP_PERFMON, or allow perf_event_open in \
                 the sandbox's system call filter"
            }
            (Engine::PerfEvent, Cause::Os(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP)) => {
                "allow perf_event_open in the sandbox's system call filter, or run a kernel with CONFIG_PERF_EVENTS"
            }
            (_, Cause::Share | Cause::Os(libc::EAGAIN)) => MORE_SIGNALS,
            (Engine::PerfEvent, _) => "let the program use perf_event_open",
            _ => "allow timer_create in the sandbox's system call filter",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.engine {
            Engine::PerfEvent => "a perf event",
            _ => "a timer",
        };
        match self.cause {
            Cause::Share => write!(
                f,
                "{what} beyond the share of the system's limit that sigprof takes"
            ),
            Cause::Os(number) => {
                write!(f, "{what} ({})", io::Error::from_raw_os_error(number))
            }
        }
    }
}
