//! What the kernel says about this process.

use std::fs;
use std::mem::MaybeUninit;

use crate::Result;

/// Memory of this process in KiB, from `/proc/self/status`.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub rss_kib: i64,
    pub anon_kib: i64,
    pub peak_kib: i64,
}

pub fn memory() -> Result<Memory> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<i64> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .ok_or_else(|| format!("/proc/self/status has no {name}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    Ok(Memory {
        rss_kib: field("VmRSS")?,
        anon_kib: field("RssAnon")?,
        peak_kib: field("VmHWM")?,
    })
}

/// Sets the peak back to the memory that is resident now.
pub fn reset_peak() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5")
        .map_err(|e| format!("cannot reset VmHWM through /proc/self/clear_refs: {e}").into())
}

pub fn threads() -> Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

pub fn open_files() -> Result<usize> {
    // Less the one that lists them.
    Ok(fs::read_dir("/proc/self/fd")?.count() - 1)
}

/// POSIX timers that exist, and the profiling interval timer if it is armed: the kernel does not
/// list that one.
pub fn timers() -> Result<usize> {
    let listed = fs::read_to_string("/proc/self/timers")?
        .lines()
        .filter(|line| line.starts_with("ID:"))
        .count();
    let mut interval = MaybeUninit::<libc::itimerval>::zeroed();
    // SAFETY: the pointer is to an itimerval that getitimer fills in, and all zeroes are a valid
    // one if it does not.
    let interval = unsafe {
        libc::getitimer(libc::ITIMER_PROF, interval.as_mut_ptr());
        interval.assume_init()
    };
    let armed = interval.it_value.tv_sec != 0 || interval.it_value.tv_usec != 0;
    Ok(listed + usize::from(armed))
}

/// CPU time of the whole process so far.
pub fn cpu_time_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread so far.
pub fn thread_cpu_time_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that outlives the call. The call cannot fail: every
    // Linux has these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
