//! What a thread that has waited reaches: lanes, and the word that says whether the process is
//! watched.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::sampling;
use crate::capture::Capture;
use crate::ring::{RecordWriter, WaitWriter};
use crate::sys::arch::Registers;
use crate::sys::own_threads::is_own;
use crate::sys::per_process::PerProcess;
use crate::sys::thread::thread_pointer;

/// A forked child is not watched.
static RECORDER: PerProcess<Recorder> = PerProcess::new();

/// Words of a lane: 128 KiB, some 400 stacks of usual depth.
const LANE_WORDS: usize = 16 * 1024;

/// Lanes to begin with.
const LANES: usize = 8;

/// The deepest stack that is recorded, in frames.
const MAX_DEPTH: usize = 128;

/// What the threads of a process work with that wait. Never freed.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) capture: Capture,
    is_watched: AtomicBool,
    /// Waits that found no lane or no room in one, and their nanoseconds, as they stand for all.
    lost: AtomicU64,
    lost_ns: AtomicU64,
}

impl Recorder {
    /// That of this process, if it was ever watched. *Async-signal-safe.*
    pub(super) fn get() -> Option<&'static Self> {
        RECORDER.get()
    }

    /// The same, made if need be.
    pub(super) fn get_or_make() -> io::Result<&'static Self> {
        if let Some(recorder) = Self::get() {
            return Ok(recorder);
        }
        let recorder = Self {
            capture: Capture::new(LANES, LANE_WORDS)?,
            is_watched: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            lost_ns: AtomicU64::new(0),
        };
        RECORDER.get_or_make(|| recorder)
    }

    /// That of this process, if it is watched, and the calling thread is not one of the profiler's
    /// own. *Async-signal-safe.*
    pub(super) fn of_watched() -> Option<&'static Self> {
        Self::get().filter(|recorder| recorder.is_watched() && !is_own())
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Acquire)
    }

    pub(super) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// Waits that are in no stack since this was asked the last time, and their nanoseconds.
    pub(super) fn take_lost(&self) -> (u64, u64) {
        let [lost, lost_ns] = [&self.lost, &self.lost_ns].map(|n| n.swap(0, Ordering::Relaxed));
        (lost, lost_ns)
    }

    /// Records a wait of the calling thread, if it is sampled; the registers are those of the
    /// function that stands in for the one that has waited. *Async-signal-safe.*
    pub(super) fn waited(&self, registers: Registers, begin_ns: u64, end_ns: u64) {
        let waited_ns = end_ns.saturating_sub(begin_ns).max(1);
        let mean_ns = sampling::mean_ns();
        // Two waits of one thread do not end at one time.
        let thread = thread_pointer();
        if !sampling::is_sampled(waited_ns, mean_ns, end_ns ^ thread.rotate_left(32)) {
            return;
        }
        let writer = |epoch| WaitWriter {
            waited_ns,
            mean_ns,
            epoch,
        };
        if self
            .write(registers, (thread >> 8) as u32, writer)
            .is_none()
        {
            let (count, ns) = sampling::stands_for(waited_ns, mean_ns);
            self.lost.fetch_add(count.round() as u64, Ordering::Relaxed);
            self.lost_ns.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Writes a record with the stack of the calling thread, where there is room.
    fn write(
        &self,
        registers: Registers,
        hint: u32,
        writer: impl FnOnce(u32) -> WaitWriter,
    ) -> Option<()> {
        let capture = &self.capture;
        let words = RecordWriter::words(MAX_DEPTH);
        let epoch = capture.snapshot.epoch();
        let claim = capture.rack.claim(hint, epoch, words);
        if capture.rack.is_crowded() {
            capture.doorbell.wake_once();
        }
        let mut claim = claim.inspect_err(|_| capture.doorbell.wake_once()).ok()?;
        // A watch that ended before the claim could be seen is seen here (the claim ends in a
        // fence), and one that ends later waits for it.
        if !self.is_watched() {
            return Some(());
        }
        // SAFETY: the claim carries the epoch that was read before it, and lives until the end of
        // this function.
        let snapshot = unsafe { capture.snapshot.get() }?;
        let bench = capture.bench(&claim)?;
        let writer = writer(snapshot.epoch());
        let mut is_urgent = None;
        // SAFETY: the claim is held; unwinding returns.
        unsafe {
            bench.work(|cache| {
                is_urgent = claim.write(words, |space| {
                    let unwind =
                        |frames: &mut [u64]| capture.unwind(snapshot, registers, cache, frames);
                    writer.write(space, unwind)
                });
            });
        }
        if is_urgent? {
            capture.doorbell.wake_once();
        }
        Some(())
    }
}
