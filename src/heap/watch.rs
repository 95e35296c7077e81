//! Notices when the heap has come to where a file is to be written.
//!
//! The thread that crosses a bound may hold any lock, so it only rings; a thread of ours writes.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use std::{io, thread};

use crate::sys::clock::Clock;
use crate::sys::futex::Futex;
use crate::sys::own_threads::is_own;
use crate::sys::per_process::PerProcess;
use crate::sys::signal::ErrnoGuard;

/// A forked child has no thread that writes, and no bounds.
static WATCH: PerProcess<Watch> = PerProcess::new();

/// How long a thread waits at most for the file that is written before the memory runs out.
const LONGEST_WAIT_NS: u64 = 10_000_000_000;

/// A bound that is never reached.
const NEVER: u64 = u64::MAX;

/// What is watched for. It changes under the mutex of the bytes in use (`peak.rs`).
#[derive(Debug)]
pub(super) struct Watch {
    bell: Futex,
    /// A file is to be written.
    is_due: AtomicBool,
    /// The last file is to be written.
    is_ending: AtomicBool,
    /// A thread writes files.
    has_writer: AtomicBool,
    /// A file is being written.
    is_writing: AtomicBool,
    allocated: Milestones,
    in_use: Milestones,
    /// Bytes in use at which the others wait until a file is written.
    last_stop: AtomicU64,
    wait: AtomicU8,
    wait_begin_ns: AtomicU64,
}

/// Nobody is to wait; the next who reaches the last stop begins a wait.
const ARMED: u8 = 0;
/// Who reaches the last stop waits, for a file that is due,
const WAITING: u8 = 1;
/// or for one that is being written.
const WRITING: u8 = 2;
/// The file is written; nobody waits until far less memory is in use.
const WRITTEN: u8 = 3;

/// Values at which something is due, each an interval above the one at which it was last.
#[derive(Debug)]
struct Milestones {
    interval: AtomicU64,
    next: AtomicU64,
}

impl Milestones {
    const fn none() -> Self {
        Self {
            interval: AtomicU64::new(NEVER),
            next: AtomicU64::new(NEVER),
        }
    }

    fn begin(&self, interval: u64, now: u64) {
        self.interval.store(interval, Ordering::Relaxed);
        self.next
            .store(now.saturating_add(interval), Ordering::Relaxed);
    }

    /// Whether the next is reached, which then is an interval farther.
    fn are_reached(&self, now: u64) -> bool {
        let is_reached = now >= self.next.load(Ordering::Relaxed);
        if is_reached {
            self.begin(self.interval.load(Ordering::Relaxed), now);
        }
        is_reached
    }
}

/// Bytes at which files are written; 0: none are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// For each so many that are allocated.
    pub(super) allocated: u64,
    /// For each so many that are in use above those at the last file.
    pub(super) in_use: u64,
    /// Where so many are in use.
    pub(super) last_stop: u64,
}

impl Watch {
    /// That of this process, if it has one.
    pub(super) fn get() -> Option<&'static Self> {
        WATCH.get()
    }

    /// That of this process, which has one from now on.
    ///
    /// # Errors
    ///
    /// Where the system has no page to give.
    pub(super) fn get_or_make() -> io::Result<&'static Self> {
        WATCH.get_or_make(Self::new)
    }

    const fn new() -> Self {
        Self {
            bell: Futex::new(),
            is_due: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            has_writer: AtomicBool::new(false),
            is_writing: AtomicBool::new(false),
            allocated: Milestones::none(),
            in_use: Milestones::none(),
            last_stop: AtomicU64::new(NEVER),
            wait: AtomicU8::new(ARMED),
            wait_begin_ns: AtomicU64::new(0),
        }
    }

    /// Begins with these bounds where so many bytes were allocated and are in use. Whoever calls it
    /// holds the mutex of the bytes in use.
    pub(super) fn begin(&self, bounds: Bounds, allocated: u64, in_use: u64) {
        let or_never = |bytes| if bytes == 0 { NEVER } else { bytes };
        self.is_due.store(false, Ordering::Relaxed);
        self.is_ending.store(false, Ordering::Relaxed);
        self.is_writing.store(false, Ordering::Relaxed);
        self.wait.store(ARMED, Ordering::Relaxed);
        self.allocated.begin(or_never(bounds.allocated), allocated);
        self.in_use.begin(or_never(bounds.in_use), in_use);
        self.last_stop
            .store(or_never(bounds.last_stop), Ordering::Relaxed);
    }

    /// Watches for nothing any more, and has nobody wait.
    pub(super) fn end(&self) {
        self.allocated.begin(NEVER, 0);
        self.in_use.begin(NEVER, 0);
        self.last_stop.store(NEVER, Ordering::Relaxed);
        self.wait.store(WRITTEN, Ordering::Release);
    }

    /// Has the writer write the last file and end.
    pub(super) fn ask_for_the_last(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.bell.wake_once();
    }

    /// Whether there was no thread that writes; there is one from now on.
    pub(super) fn claim_writer(&self) -> bool {
        !self.has_writer.swap(true, Ordering::AcqRel)
    }

    /// No thread does any more.
    pub(super) fn end_writer(&self) {
        self.has_writer.store(false, Ordering::Release);
    }

    /// Whether a thread writes files.
    pub(super) fn has_writer(&self) -> bool {
        self.has_writer.load(Ordering::Acquire)
    }

    /// Sleeps until something is due, or for so long. A file that is due is being written from then
    /// on.
    pub(super) fn sleep(&self, longest: Duration) -> Due {
        self.bell.wait(longest);
        let due = match (
            self.is_ending.load(Ordering::Acquire),
            self.is_due.load(Ordering::Acquire),
        ) {
            (true, _) => Due::Last,
            (false, true) => Due::File,
            (false, false) => return Due::Nothing,
        };
        self.is_writing.store(true, Ordering::Release);
        self.is_due.store(false, Ordering::Release);
        self.change_wait(WAITING, WRITING);
        due
    }

    /// A file is written, and so many bytes were allocated and are in use now: whoever waits for it
    /// goes on, and what was reached meanwhile is seen. Whoever calls it holds the mutex of the
    /// bytes in use.
    pub(super) fn end_file(&self, allocated: u64, in_use: u64) {
        self.is_writing.store(false, Ordering::Release);
        self.change_wait(WRITING, WRITTEN);
        self.see(allocated, in_use);
    }

    fn change_wait(&self, from: u8, to: u8) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.wait.compare_exchange(from, to, success, failure);
    }

    /// Whether threads that allocate wait for a file.
    fn is_waited_for(&self) -> bool {
        matches!(self.wait.load(Ordering::Acquire), WAITING | WRITING)
    }

    /// Whether a file is due at an interval's end. While one is being written that question waits:
    /// the writer's own memory is in use then, too.
    fn is_milestone(&self, allocated: u64, in_use: u64) -> bool {
        if self.is_due.load(Ordering::Acquire) || self.is_writing.load(Ordering::Acquire) {
            return false;
        }
        let is_reached = self.allocated.are_reached(allocated);
        self.in_use.are_reached(in_use) | is_reached
    }

    fn see(&self, allocated: u64, in_use: u64) {
        let mut is_due = self.is_milestone(allocated, in_use);
        let last_stop = self.last_stop.load(Ordering::Relaxed);
        match self.wait.load(Ordering::Relaxed) {
            ARMED if in_use >= last_stop => {
                let now = Clock::MONOTONIC.now_ns().unwrap_or(0);
                self.wait_begin_ns.store(now, Ordering::Relaxed);
                self.wait.store(WAITING, Ordering::Release);
                is_due = true;
            }
            WRITTEN if in_use < last_stop / 2 => self.wait.store(ARMED, Ordering::Relaxed),
            _ => {}
        }
        if is_due {
            self.is_due.store(true, Ordering::Release);
            self.bell.wake_once();
        }
    }
}

/// What is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Due {
    Nothing,
    File,
    /// A file, after which there are no more.
    Last,
}

/// Sees what was allocated and is in use after a sample. Whoever calls it holds the mutex of the
/// bytes in use.
pub(super) fn see(allocated: u64, in_use: u64) {
    if let Some(watch) = WATCH.get() {
        watch.see(allocated, in_use);
    }
}

/// Waits where memory may run out until a file is written, but not for long: the calling thread may
/// hold a lock that the writer needs. Threads of the profiler's own do not wait: the writer may
/// wait for one.
pub(super) fn wait_at_last_stop() {
    let Some(watch) = WATCH.get() else { return };
    let _errno = ErrnoGuard::new();
    let is_over = || {
        let now = Clock::MONOTONIC.now_ns().unwrap_or(u64::MAX);
        now.saturating_sub(watch.wait_begin_ns.load(Ordering::Relaxed)) > LONGEST_WAIT_NS
    };
    while watch.is_waited_for() && watch.has_writer() && !is_own() {
        if is_over() {
            watch.change_wait(WAITING, WRITTEN);
            watch.change_wait(WRITING, WRITTEN);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn watch(bounds: Bounds) -> Watch {
        let watch = Watch::new();
        watch.begin(bounds, 1000, 500);
        assert_eq!(watch.sleep(NOW), Due::Nothing);
        watch
    }

    #[test]
    fn a_file_is_due_at_each_interval() {
        let watch = watch(Bounds {
            allocated: 100,
            in_use: 10,
            last_stop: 0,
        });
        watch.see(1050, 509);
        assert_eq!(watch.sleep(NOW), Due::Nothing);
        for (allocated, in_use) in [(1050, 510), (1100, 515), (1150, 525)] {
            watch.see(allocated, in_use);
            assert_eq!(watch.sleep(NOW), Due::File);
            watch.end_file(allocated, in_use);
            assert_eq!(watch.sleep(NOW), Due::Nothing);
            watch.see(allocated, in_use);
            assert_eq!(watch.sleep(NOW), Due::Nothing);
        }
        watch.ask_for_the_last();
        assert_eq!(watch.sleep(NOW), Due::Last);
    }

    #[test]
    fn what_the_writer_uses_meanwhile_makes_no_file_due() {
        let watch = watch(Bounds {
            allocated: 0,
            in_use: 10,
            last_stop: 0,
        });
        watch.see(0, 512);
        watch.see(0, 530);
        assert_eq!(watch.sleep(NOW), Due::File);
        watch.see(0, 900);
        watch.end_file(0, 521);
        assert_eq!(watch.sleep(NOW), Due::Nothing);
        watch.see(0, 522);
        assert_eq!(watch.sleep(NOW), Due::File);
        // What the program has come to meanwhile does.
        watch.see(0, 535);
        watch.end_file(0, 532);
        assert_eq!(watch.sleep(NOW), Due::File);
    }

    #[test]
    fn whoever_reaches_the_last_stop_waits_for_a_file_that_begins_later() {
        let watch = watch(Bounds {
            allocated: 100,
            in_use: 0,
            last_stop: 800,
        });
        watch.see(1100, 799);
        assert_eq!(watch.sleep(NOW), Due::File);
        watch.see(1100, 800);
        watch.end_file(1100, 800);
        assert!(watch.is_waited_for());
        assert_eq!(watch.sleep(NOW), Due::File);
        assert!(watch.is_waited_for());
        watch.end_file(1100, 800);
        assert!(!watch.is_waited_for());
        // The next waits after the use was below half of it.
        for (in_use, is_due) in [(900, false), (399, false), (799, false), (800, true)] {
            watch.see(1100, in_use);
            assert_eq!(watch.is_waited_for(), is_due, "{in_use}");
            assert_eq!(watch.sleep(NOW) == Due::File, is_due, "{in_use}");
        }
        watch.end();
        assert!(!watch.is_waited_for());
    }
}
