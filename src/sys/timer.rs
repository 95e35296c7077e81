//! POSIX timers on the CPU clock of any thread, or of the whole process.
//!
//! They vanish at exec and are not inherited by a forked child, which the older interval timers
//! (`setitimer`) do not promise: an `ITIMER_PROF` survives exec and kills the new program, which
//! has no handler.

use std::io;
use std::time::Duration;

use super::clock::Clock;

/// A timer that sends a signal; deleted on drop.
#[derive(Debug)]
pub(crate) struct CpuTimer {
    id: libc::c_int,
}

impl CpuTimer {
    /// A timer on one thread's CPU clock, whose signal goes to that thread and carries `cookie`.
    /// Any thread of the process can make it.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the thread is gone, `EAGAIN` where `RLIMIT_SIGPENDING` allows no further
    /// timer.
    pub(crate) fn for_thread(tid: i32, signal: libc::c_int, cookie: u64) -> io::Result<Self> {
        let mut event = event(signal, cookie);
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_notify_thread_id = tid;
        Self::create(Clock::thread_cpu(tid), event)
    }

    /// A timer on the process's CPU clock. The kernel gives its signal to a thread that is running,
    /// as a rule.
    ///
    /// # Errors
    ///
    /// `EAGAIN` where `RLIMIT_SIGPENDING` allows no further timer.
    pub(crate) fn for_process(signal: libc::c_int, cookie: u64) -> io::Result<Self> {
        let mut event = event(signal, cookie);
        event.sigev_notify = libc::SIGEV_SIGNAL;
        Self::create(Clock::PROCESS_CPU, event)
    }

    fn create(clock: Clock, mut event: libc::sigevent) -> io::Result<Self> {
        let mut id: libc::c_int = 0;
        // The system call rather than libc's function: the kernel's id is an int, and both C
        // libraries agree on that. SAFETY: `event` and `id` are what the call reads and writes.
        super::check(unsafe {
            libc::syscall(
                libc::SYS_timer_create,
                clock.id(),
                &raw mut event,
                &raw mut id,
            )
        })?;
        Ok(Self { id })
    }

    /// Starts the timer: the first signal after `first`, the others every `period`. Both are CPU
    /// time of the clock, and not 0.
    pub(crate) fn arm(&self, first: Duration, period: Duration) -> io::Result<()> {
        let setting = libc::itimerspec {
            it_value: timespec(first),
            it_interval: timespec(period),
        };
        // SAFETY: `setting` is read by the call; no old setting is asked for.
        super::check(unsafe {
            libc::syscall(
                libc::SYS_timer_settime,
                self.id,
                0,
                &raw const setting,
                std::ptr::null_mut::<libc::itimerspec>(),
            )
        })?;
        Ok(())
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: the id is of a timer that this value owns.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.id) };
    }
}

fn event(signal: libc::c_int, cookie: u64) -> libc::sigevent {
    // SAFETY: a sigevent is integers and a pointer, all of which may be zero.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_signo = signal;
    event.sigev_value.sival_ptr = cookie as *mut libc::c_void;
    event
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_nsec: duration.subsec_nanos().into(),
    }
}
