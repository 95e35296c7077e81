//! The references: handlers that only count, driven by nothing, by ITIMER_PROF, or by a timer or a
//! perf event for each thread.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Recorder, Tally};
use crate::Result;
use crate::options::Options;

static SIGNALS: AtomicU64 = AtomicU64::new(0);
static EXPIRIES: AtomicU64 = AtomicU64::new(0);

pub enum Recording {
    /// An empty handler, for signals that are raised.
    Empty,
    Interval,
    Threads(Vec<libc::timer_t>),
    Events(Vec<OwnedFd>),
}

impl Recorder for Recording {
    fn start(options: &Options) -> Result<Self> {
        let interval_ns = 1_000_000_000 / i64::from(options.frequency_hz);
        match options.engine.as_str() {
            "auto" => {
                handle(on_nothing)?;
                Ok(Self::Empty)
            }
            "interval" => {
                handle(on_expiry)?;
                set_interval_timer(interval_ns / 1000)?;
                Ok(Self::Interval)
            }
            "thread" => {
                handle(on_expiry)?;
                for_each_thread(|tid| arm_thread(tid, interval_ns)).map(Self::Threads)
            }
            "perf" => {
                handle(on_expiry)?;
                for_each_thread(|tid| open_event(tid, interval_ns as u64)).map(Self::Events)
            }
            other => Err(format!("the bare subject has no engine \"{other}\"").into()),
        }
    }

    fn stop(self) -> Result<Tally> {
        match self {
            Self::Empty => (),
            Self::Interval => set_interval_timer(0)?,
            Self::Events(events) => drop(events),
            Self::Threads(timers) => {
                for timer in timers {
                    // SAFETY: the timer was made by timer_create and is deleted only here.
                    unsafe { libc::timer_delete(timer) };
                }
            }
        }
        let signals = SIGNALS.load(Ordering::Relaxed);
        let expiries = EXPIRIES.load(Ordering::Relaxed);
        Ok(Tally {
            weight: expiries,
            in_stacks: expiries,
            signals,
            distinct_stacks: 0,
            deepest: 0,
        })
    }

    fn write(self, _options: &Options) -> Result<Tally> {
        self.stop()
    }
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

extern "C" fn on_nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

/// How a timer's `siginfo_t` begins: the fields of signal(7)'s `si_overrun`, which the libc crate
/// does not name.
#[repr(C)]
struct TimerInfo {
    signal: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    padding: libc::c_int,
    timer: libc::c_int,
    overrun: libc::c_int,
}

extern "C" fn on_expiry(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: SA_SIGINFO passes a siginfo_t, which is larger than TimerInfo and aligned to more.
    let info = unsafe { &*info.cast::<TimerInfo>() };
    let overrun = match info.code {
        libc::SI_TIMER => info.overrun.max(0) as u64,
        _ => 0,
    };
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    EXPIRIES.fetch_add(1 + overrun, Ordering::Relaxed);
}

fn handle(handler: Handler) -> Result<()> {
    // SAFETY: all zeroes are a valid sigaction: the default action, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is complete, and the handlers of this module only touch atomics.
    check(unsafe { libc::sigaction(libc::SIGPROF, &action, ptr::null_mut()) })
}

fn set_interval_timer(interval_us: i64) -> Result<()> {
    let interval = libc::timeval {
        tv_sec: interval_us / 1_000_000,
        tv_usec: interval_us % 1_000_000,
    };
    let timer = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    // SAFETY: the pointer is to a complete itimerval.
    check(unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, ptr::null_mut()) })
}

fn for_each_thread<T>(mut arm: impl FnMut(libc::pid_t) -> Result<T>) -> Result<Vec<T>> {
    std::fs::read_dir("/proc/self/task")?
        .map(|task| arm(task?.file_name().to_string_lossy().parse()?))
        .collect()
}

/// `struct perf_event_attr` as its first version has it (include/uapi/linux/perf_event.h): type,
/// size, config, period, and what is 0 here.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period_ns: u64,
    rest: [u64; 5],
}

/// `struct f_owner_ex` (fcntl(2)).
#[repr(C)]
struct EventOwner {
    kind: libc::c_int,
    tid: libc::pid_t,
}

/// A software task clock (type 1, config 1) that sends the thread a SIGPROF for each period.
fn open_event(tid: libc::pid_t, period_ns: u64) -> Result<OwnedFd> {
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
    const F_SETSIG: libc::c_int = 10;
    const F_SETOWN_EX: libc::c_int = 15;
    let attributes = Attributes {
        kind: 1,
        size: 64,
        config: 1,
        period_ns,
        rest: [0; 5],
    };
    let (any_cpu, no_group) = (-1, -1);
    // SAFETY: the attributes are as long as they say, and read only.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            tid,
            any_cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    check(fd.min(0) as libc::c_int)?;
    // SAFETY: the descriptor was opened above and is nobody else's.
    let event = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    let owner = EventOwner { kind: 0, tid };
    // SAFETY: the owner is read only.
    unsafe {
        check(libc::fcntl(
            event.as_raw_fd(),
            F_SETOWN_EX,
            &raw const owner,
        ))?;
        check(libc::fcntl(event.as_raw_fd(), F_SETSIG, libc::SIGPROF))?;
        check(libc::fcntl(event.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC))?;
    }
    Ok(event)
}

fn arm_thread(tid: libc::pid_t, interval_ns: i64) -> Result<libc::timer_t> {
    // SAFETY: all zeroes are a valid sigevent.
    let mut event: libc::sigevent = unsafe { mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGPROF;
    event.sigev_notify_thread_id = tid;
    // The kernel's CPUCLOCK_SCHED (2) of one thread (4).
    let clock = (!tid << 3) | 6;
    let mut timer = MaybeUninit::uninit();
    // SAFETY: both pointers are to live values of the right types.
    check(unsafe { libc::timer_create(clock, &mut event, timer.as_mut_ptr()) })?;
    // SAFETY: timer_create succeeded, so it has written the timer.
    let timer = unsafe { timer.assume_init() };
    let interval = libc::timespec {
        tv_sec: interval_ns / 1_000_000_000,
        tv_nsec: interval_ns % 1_000_000_000,
    };
    let setting = libc::itimerspec {
        it_interval: interval,
        it_value: interval,
    };
    // SAFETY: the timer exists and the setting is complete.
    check(unsafe { libc::timer_settime(timer, 0, &setting, ptr::null_mut()) })?;
    Ok(timer)
}

fn check(returned: libc::c_int) -> Result<()> {
    match returned {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().into()),
    }
}
