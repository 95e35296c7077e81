//! What a thread that has waited reaches: lanes, and the word that says whether the process is
//! watched.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::at_lock::is_timed;
use super::pace::Pace;
use super::sampling::{self, Waits};
use super::waiters::{Charge, Waiters};
use crate::capture::Capture;
use crate::ring::{RecordWriter, Role, WaitWriter};
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
    pub(super) pace: Pace,
    /// Those who wait now.
    pub(super) waiters: Waiters,
    is_watched: AtomicBool,
    /// By [`Role`].
    lost: [Lost; 2],
}

/// Waits that found no lane, no room in one, or no leave to record a stack; and their nanoseconds,
/// as they stand for all.
#[derive(Debug, Default)]
struct Lost {
    waits: AtomicU64,
    ns: AtomicU64,
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
            pace: Pace::new(),
            waiters: Waiters::new()?,
            is_watched: AtomicBool::new(false),
            lost: Default::default(),
        };
        RECORDER.get_or_make(|| recorder)
    }

    /// That of this process, if it is watched, and the calling thread is not one of the profiler's
    /// own, or in a wait that is timed already. *Async-signal-safe.*
    pub(super) fn of_watched() -> Option<&'static Self> {
        Self::get().filter(|recorder| recorder.is_watched() && !is_own() && !is_timed())
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Acquire)
    }

    pub(super) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// Waits that are in no stack since this was asked the last time.
    pub(super) fn take_lost(&self, role: Role) -> Waits {
        let Lost { waits, ns } = &self.lost[role as usize];
        let [waits, ns] = [waits, ns].map(|n| n.swap(0, Ordering::Relaxed));
        Waits {
            count: waits as f64,
            ns,
        }
    }

    /// Records waits with the stack of the calling thread, which was the waiter or ended them, if
    /// they are sampled; the registers are those of the function that stands in for the one that
    /// did. *Async-signal-safe.*
    pub(super) fn record(&self, registers: Registers, role: Role, waits: Charge, now_ns: u64) {
        let (count, waited_ns) = (waits.waiters, waits.ns.max(1));
        let mean_ns = self.pace.mean_ns();
        // A thread records one thing at a time.
        let thread = thread_pointer();
        if !sampling::is_sampled(waited_ns, mean_ns, now_ns ^ thread.rotate_left(32)) {
            return;
        }
        let writer = |epoch| WaitWriter {
            role,
            waits: count,
            waited_ns,
            mean_ns,
            epoch,
        };
        let is_recorded = match self.pace.take() {
            true => (self.write(registers, (thread >> 8) as u32, waits.caller, writer)).is_some(),
            false => {
                // So that it is paced soon.
                self.capture.doorbell.wake_once();
                false
            }
        };
        if !is_recorded {
            let Waits { count, ns } = sampling::stands_for(count, waited_ns, mean_ns);
            let lost = &self.lost[role as usize];
            lost.waits
                .fetch_add(count.round() as u64, Ordering::Relaxed);
            lost.ns.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Writes a record with the stack of the calling thread, where there is room: with the address
    /// that the waiter's call returns to in the place of the first frame, that of the stand-in.
    fn write(
        &self,
        registers: Registers,
        hint: u32,
        caller: u64,
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
                    let unwind = |frames: &mut [u64]| {
                        let unwound = capture.unwind(snapshot, registers, cache, frames);
                        if let Some(first) = frames.first_mut() {
                            *first = caller;
                        }
                        unwound
                    };
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
