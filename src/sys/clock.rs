//! Clocks: CPU time of a thread and of the process, elapsed and calendar time.

use std::io;

/// A clock of the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Clock(libc::clockid_t);

impl Clock {
    /// CPU time, user and system, of all threads of this process, the ended ones included.
    pub(crate) const PROCESS_CPU: Self = Self(libc::CLOCK_PROCESS_CPUTIME_ID);
    /// CPU time, user and system, of the calling thread.
    pub(crate) const THREAD_CPU: Self = Self(libc::CLOCK_THREAD_CPUTIME_ID);
    /// Time since the Unix epoch.
    pub(crate) const REALTIME: Self = Self(libc::CLOCK_REALTIME);

    /// Time since some moment in the past. Where the kernel lends its clock to programs
    /// (everywhere, as a rule), reading it takes no system call. *Async-signal-safe.*
    pub(crate) const MONOTONIC: Self = Self(libc::CLOCK_MONOTONIC);

    /// CPU time, user and system, of one thread of this process.
    pub(crate) fn thread_cpu(tid: i32) -> Self {
        // The kernel's encoding (include/linux/posix-timers_types.h): the complement of the id
        // above three bits, of which 4 says "one thread" and 2 "scheduler time", the nanosecond
        // clock.
        Self((!tid << 3) | 4 | 2)
    }

    /// CPU time, user and system, of a thread that has not been joined.
    pub(super) fn of_thread(thread: libc::pthread_t) -> io::Result<Self> {
        let mut clock = 0;
        // SAFETY: `clock` is a clock's id to be written.
        match unsafe { libc::pthread_getcpuclockid(thread, &mut clock) } {
            0 => Ok(Self(clock)),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// The kernel's id of the thread that has this clock: see [`thread_cpu`](Self::thread_cpu).
    pub(super) fn tid(self) -> i32 {
        !(self.0 >> 3)
    }

    /// The time from one of the scheduler's ticks to the next, in nanoseconds: the resolution of
    /// the clock that moves with them.
    pub(crate) fn scheduler_tick_ns() -> io::Result<u64> {
        let mut resolution = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let clock = libc::CLOCK_MONOTONIC_COARSE;
        // SAFETY: `resolution` is a timespec to be written.
        super::check(unsafe { libc::clock_getres(clock, &mut resolution) }.into())?;
        Ok(resolution.tv_sec as u64 * 1_000_000_000 + resolution.tv_nsec as u64)
    }

    pub(super) fn id(self) -> libc::clockid_t {
        self.0
    }

    /// The time on this clock, in nanoseconds. Fails where the thread behind the clock is
    /// gone. *Async-signal-safe.*
    pub(crate) fn now_ns(self) -> io::Result<u64> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is a timespec to be written.
        super::check(unsafe { libc::clock_gettime(self.0, &mut time) }.into())?;
        Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_own_clock_is_read_by_its_id() {
        let tid = crate::sys::thread::current_tid();
        let mine = Clock::THREAD_CPU;
        assert_eq!(Clock::thread_cpu(tid).tid(), tid);
        let before = mine.now_ns().unwrap();
        let seen = Clock::thread_cpu(tid).now_ns().unwrap();
        let after = mine.now_ns().unwrap();
        assert!(before <= seen && seen <= after);
        assert!(Clock::PROCESS_CPU.now_ns().unwrap() >= after);
    }
}
