//! Sampling by the kernel's software task clock (perf_event_open(2)): a high-resolution timer that
//! runs while a thread does.
//!
//! Unlike a POSIX timer, whose expiries are looked at when the scheduler ticks, it interrupts at
//! each period. An event is a file descriptor, with all that comes with it: a forked child inherits
//! it, and a program that closes descriptors which are not its own closes this one. So an event is
//! disabled before it is closed, and only closed while its number still means it.

use std::io;
use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::fork::holding_off_forks_briefly;
use super::limits::{open_files, open_files_limit};
use super::thread::current_tid;

/// An event that sends a signal to one thread for each period of CPU time that the thread uses;
/// closed on drop.
#[derive(Debug)]
pub(crate) struct TaskClock {
    fd: RawFd,
    /// The kernel's number of the event, which tells whether the descriptor still is it.
    id: u64,
}

/// `struct perf_event_attr` as its first version has it, which every kernel takes
/// (include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    r#type: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_address: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
const DISABLED: u64 = 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

const fn io(direction: u32, number: u32, size: usize) -> libc::c_ulong {
    ((direction << 30) | ((size as u32) << 16) | (b'$' as u32) << 8 | number) as libc::c_ulong
}

const PERF_EVENT_IOC_ENABLE: libc::c_ulong = io(0, 0, 0);
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = io(0, 1, 0);
const PERF_EVENT_IOC_REFRESH: libc::c_ulong = io(0, 2, 0);
const PERF_EVENT_IOC_PERIOD: libc::c_ulong = io(1, 4, 8);
const PERF_EVENT_IOC_ID: libc::c_ulong = io(2, 7, 8);

/// `struct f_owner_ex` and its `F_OWNER_TID` (fcntl(2)).
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    tid: libc::c_int,
}

const F_OWNER_TID: libc::c_int = 0;
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

/// Moves a descriptor away from 0, 1 and 2, which a program may have closed: it would write there.
fn above_standard_streams(fd: RawFd) -> io::Result<RawFd> {
    if fd > libc::STDERR_FILENO {
        return Ok(fd);
    }
    // SAFETY: both descriptors are of an event that was opened a moment ago.
    unsafe {
        let moved = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1);
        libc::close(fd);
        super::check(moved.into()).map(|fd| fd as RawFd)
    }
}

impl TaskClock {
    /// An event on one thread of this process, which counts its time in the kernel only
    /// `with_kernel`, and which ticks after `period` of it. It stands still until it is told to
    /// [`begin`](Self::begin).
    ///
    /// # Errors
    ///
    /// `EACCES` or `EPERM` where the system does not allow it (`perf_event_paranoid`, a sandbox),
    /// `EMFILE` where there is no descriptor left, `ESRCH` where the thread is gone, `ENOSYS` or
    /// `ENOENT` on a kernel without perf events.
    pub(crate) fn for_thread(tid: i32, period: Duration, with_kernel: bool) -> io::Result<Self> {
        let attributes = Attributes {
            r#type: PERF_TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: PERF_COUNT_SW_TASK_CLOCK,
            sample_period: period.as_nanos() as u64,
            flags: DISABLED | EXCLUDE_HV | if with_kernel { 0 } else { EXCLUDE_KERNEL },
            ..Attributes::default()
        };
        const ANY_CPU: libc::c_int = -1;
        const NO_GROUP: libc::c_int = -1;
        // A child that is forked before the descriptor is noted would keep it.
        holding_off_forks_briefly(|| {
            // SAFETY: `attributes` is read only, and as long as its size says.
            let fd = super::check(unsafe {
                libc::syscall(
                    libc::SYS_perf_event_open,
                    &raw const attributes,
                    tid,
                    ANY_CPU,
                    NO_GROUP,
                    PERF_FLAG_FD_CLOEXEC,
                )
            })? as RawFd;
            Self::of(above_standard_streams(fd)?)
        })
    }

    /// The event behind a descriptor that was opened a moment ago.
    fn of(fd: RawFd) -> io::Result<Self> {
        match id(fd) {
            Some(id) if note(fd) => Ok(Self { fd, id }),
            Some(_) => {
                // SAFETY: the event that was opened a moment ago.
                unsafe { libc::close(fd) };
                Err(io::Error::from_raw_os_error(libc::EMFILE))
            }
            // Somebody has closed it, and the number may be a file of theirs by now.
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Says which signal each tick is to send to which thread.
    pub(crate) fn direct(&self, signal: libc::c_int, tid: i32) -> io::Result<()> {
        let owner = Owner {
            kind: F_OWNER_TID,
            tid,
        };
        // SAFETY: the descriptor is this value's; `owner` is read only.
        unsafe {
            super::check(libc::fcntl(self.fd, F_SETOWN_EX, &raw const owner).into())?;
            super::check(libc::fcntl(self.fd, F_SETSIG, signal).into())?;
        }
        Ok(())
    }

    /// From now on the event counts. Its ticks send a signal, with the descriptor in `si_fd`. The
    /// first one also stops the event, and says so; what receives it has it [go on](go_on). A first
    /// period can be short, and a thread that blocks the signal would else be interrupted that
    /// often by the kernel for as long as it does, and get nowhere.
    pub(crate) fn begin(&self) -> io::Result<()> {
        const TICKS: libc::c_int = 1;
        // Of the flags that can be set so, a new event has none.
        // SAFETY: the descriptor is this value's.
        unsafe {
            super::check(libc::fcntl(self.fd, libc::F_SETFL, libc::O_ASYNC).into())?;
            super::check(libc::ioctl(self.fd, PERF_EVENT_IOC_REFRESH, TICKS).into())?;
        }
        Ok(())
    }

    /// The descriptor's number.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Whether the number still means this event: the program may have closed it, and opened
    /// something else.
    pub(crate) fn is_open(&self) -> bool {
        id(self.fd) == Some(self.id)
    }
}

impl Drop for TaskClock {
    fn drop(&mut self) {
        if self.is_open() {
            forget(self.fd);
            // Disabled, because a forked child may hold the descriptor, and the event with it, for
            // longer. SAFETY: the descriptor means this event, which this value owns.
            unsafe {
                libc::ioctl(self.fd, PERF_EVENT_IOC_DISABLE, 0);
                libc::close(self.fd);
            }
        }
    }
}

/// Has the kernel make room for `count` more events at once. A process of several threads waits for
/// all CPUs to pass through the scheduler each time that its table of descriptors grows, which is
/// when their number doubles.
pub(crate) fn make_room(count: u64) {
    let highest = open_files().saturating_add(count).min(open_files_limit());
    let Ok(highest) = RawFd::try_from(highest.saturating_sub(1)) else {
        return;
    };
    // An event, so that a child that is forked meanwhile closes it. Forks are not held off for that
    // long.
    let Ok(event) = TaskClock::for_thread(current_tid(), Duration::from_secs(1), false) else {
        return;
    };
    // SAFETY: a copy of a descriptor, which has the lowest number from `highest` that is free.
    let copy =
        unsafe { note(highest).then(|| libc::fcntl(event.fd, libc::F_DUPFD_CLOEXEC, highest)) };
    forget(highest);
    if let Some(copy @ 0..) = copy {
        // SAFETY: closes the copy.
        unsafe { libc::close(copy) };
    }
}

/// Descriptors that can be events.
pub(crate) const DESCRIPTORS: usize = 64 * 1024;

/// Those that are: a bit each. A forked child inherits the descriptors, and closes them.
static OPEN: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
static CHILDREN_CLOSE: Once = Once::new();

/// Has forked children close the descriptor. False for a number that is too high.
fn note(fd: RawFd) -> bool {
    CHILDREN_CLOSE.call_once(|| {
        // SAFETY: the hook makes system calls and changes atomics, as a forked child of a threaded
        // program may.
        unsafe { libc::pthread_atfork(None, None, Some(close_inherited)) };
    });
    let Some(word) = OPEN.get(fd as usize / 64) else {
        return false;
    };
    word.fetch_or(1 << (fd % 64), Ordering::Relaxed);
    true
}

fn forget(fd: RawFd) {
    if let Some(word) = OPEN.get(fd as usize / 64) {
        word.fetch_and(!(1 << (fd % 64)), Ordering::Relaxed);
    }
}

/// In a forked child: closes the parent's events.
extern "C" fn close_inherited() {
    for (index, word) in OPEN.iter().enumerate() {
        let mut fds = word.swap(0, Ordering::Relaxed);
        while fds != 0 {
            let fd = (index * 64) as RawFd + fds.trailing_zeros() as RawFd;
            fds &= fds - 1;
            // What the program put in its place is the program's.
            if id(fd).is_some() {
                // SAFETY: an event that this process was left with.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// The number of the event behind a descriptor; `None` where it is not one.
fn id(fd: RawFd) -> Option<u64> {
    let mut id = 0_u64;
    // SAFETY: the request writes a u64 for perf events, and is unknown to anything else (its number
    // has perf's own `$`).
    (unsafe { libc::ioctl(fd, PERF_EVENT_IOC_ID, &raw mut id) } == 0).then_some(id)
}

/// Has the event behind a descriptor go on after its first tick: the next ones come every period
/// from now on. *Async-signal-safe.*
pub(crate) fn go_on(fd: RawFd, period_ns: u64) {
    // SAFETY: the first request reads a u64 for perf events; both are unknown to anything else.
    unsafe {
        libc::ioctl(fd, PERF_EVENT_IOC_PERIOD, &raw const period_ns);
        libc::ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
    }
}

#[cfg(test)]
pub(crate) mod open {
    use super::RawFd;

    /// The descriptors of the perf events that this process has.
    pub(crate) fn all() -> Vec<RawFd> {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap();
        let event = |entry: std::fs::DirEntry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            let is_event = target.to_string_lossy().contains("[perf_event]");
            is_event.then(|| entry.file_name().to_str()?.parse().ok())?
        };
        entries.filter_map(|entry| event(entry.ok()?)).collect()
    }

    /// Closes them, as a program does that closes every descriptor it does not know.
    pub(crate) fn close_all() {
        for fd in all() {
            // SAFETY: a clock asks whether a descriptor is still its event before it uses the
            // descriptor.
            unsafe { libc::close(fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock::Clock;

    /// The nanoseconds that an event has counted.
    fn counted(clock: &TaskClock) -> u64 {
        let mut count = [0; 8];
        // SAFETY: reads into `count`, which is as long as it says.
        let read = unsafe { libc::read(clock.fd(), count.as_mut_ptr().cast(), count.len()) };
        assert_eq!(read, 8);
        u64::from_ne_bytes(count)
    }

    #[test]
    fn the_first_tick_stops_an_event_until_it_is_to_go_on() {
        let tid = crate::sys::thread::current_tid();
        const SHORT: Duration = Duration::from_micros(20);
        let clock = match TaskClock::for_thread(tid, SHORT, false) {
            Ok(clock) => clock,
            Err(_) => return crate::process::skip("perf events are not allowed here"),
        };
        // Ignored by a program that has no handler: as good as blocked.
        clock.direct(libc::SIGURG, tid).unwrap();
        let burn = || {
            let until = Clock::THREAD_CPU.now_ns().unwrap() + 50_000_000;
            while Clock::THREAD_CPU.now_ns().unwrap() < until {
                (0..1000).for_each(|n| _ = std::hint::black_box(n));
            }
        };
        burn();
        assert_eq!(counted(&clock), 0);
        clock.begin().unwrap();
        burn();
        let first = counted(&clock);
        burn();
        assert!(first > 0);
        assert_eq!(counted(&clock), first, "it has stopped");
        go_on(clock.fd(), 1_000_000);
        burn();
        // A thousand times the first period.
        assert!(counted(&clock) - first > 20_000_000);
    }

    #[test]
    fn a_descriptor_that_was_taken_away_is_left_alone() {
        let tid = crate::sys::thread::current_tid();
        let Ok(clock) = TaskClock::for_thread(tid, Duration::from_secs(1), false) else {
            return crate::process::skip("perf events are not allowed here");
        };
        assert!(clock.is_open());
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: replaces the event by a file, as a program does that closes what it does not know
        // and opens its own.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), clock.fd()) };
        assert!(!clock.is_open());
        let fd = clock.fd();
        drop(clock);
        // SAFETY: asks for the flags of a descriptor, and closes it: it is this test's.
        unsafe {
            assert!(libc::fcntl(fd, libc::F_GETFD) >= 0, "it is still open");
            libc::close(fd);
        }
    }
}
