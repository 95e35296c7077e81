//! What takes a call chain at any moment: lanes to write it to, benches to unwind on, and the
//! published snapshot of what is loaded; and what keeps the snapshot up to date.

mod publisher;
mod workbench;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) use publisher::Publisher;
use workbench::Workbench;

use crate::ring::{Claim, MOST_LANES, Rack};
use crate::sync::Mutex;
use crate::sys::arch::Registers;
use crate::sys::futex::Futex;
use crate::sys::thread_stack::BoundsPlace;
use crate::unwind::{Cache, Published, Rules, Snapshot, StopReason, Subject};

/// Lanes, each with its bench, and the published snapshot. Never freed, once it is published.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) rack: Rack,
    pub(crate) snapshot: Published<Snapshot>,
    /// Rung where much waits for the flusher.
    pub(crate) doorbell: Futex,
    /// Set where a stack was met that the snapshot does not know.
    pub(crate) is_stale: AtomicBool,
    /// Set where code was met that the snapshot does not know: a module may have been loaded.
    pub(crate) met_unknown_code: AtomicBool,
    /// The modules of the last snapshot, whose unwind data the next one need not compile again.
    pub(crate) rules: Mutex<Vec<Arc<Rules>>>,
    /// This process, whose forked children have none of it.
    pid: i32,
    /// One more than the place of the bounds of threads' stacks; 0 while that is not known.
    bounds: AtomicUsize,
    /// One for each lane that is open.
    benches: Box<[OnceLock<Box<Workbench>>]>,
}

impl Capture {
    /// With `lanes` lanes to begin with, a power of two, of `words` words each.
    ///
    /// # Errors
    ///
    /// Those of mapping memory.
    pub(crate) fn new(lanes: usize, words: usize) -> io::Result<Self> {
        let capture = Self {
            rack: Rack::new(MOST_LANES, words),
            snapshot: Published::new(),
            doorbell: Futex::new(),
            is_stale: AtomicBool::new(false),
            met_unknown_code: AtomicBool::new(false),
            rules: Mutex::default(),
            pid: std::process::id() as i32,
            bounds: AtomicUsize::new(0),
            benches: (0..MOST_LANES).map(|_| OnceLock::new()).collect(),
        };
        capture.open_lanes(lanes)?;
        Ok(capture)
    }

    /// Opens lanes up to `lanes`, a power of two. For one caller at a time.
    fn open_lanes(&self, lanes: usize) -> io::Result<()> {
        for place in &self.benches[..lanes] {
            if place.get().is_none() {
                let _ = place.set(Box::new(Workbench::new()?));
            }
        }
        // After the benches: whoever claims a lane finds its bench.
        self.rack.open(lanes)
    }

    /// Opens more lanes where this many threads may need them, or many were found in use. For the
    /// flusher.
    pub(crate) fn open_lanes_for(&self, threads: usize) {
        let open = self.rack.len();
        let for_handlers = if self.rack.take_crowded() {
            2 * open
        } else {
            0
        };
        // A handler takes well below half of its thread's time.
        let for_threads = (threads / 2).next_power_of_two();
        let needed = for_handlers.max(for_threads).min(MOST_LANES);
        if needed > open {
            // Where no memory can be had, those that are open serve on.
            let _ = self.open_lanes(needed);
        }
    }

    /// Finds out where threads keep the bounds of their stacks. For a thread that the C library
    /// started: the flusher.
    pub(crate) fn find_bounds(&self) {
        if self.bounds.load(Ordering::Relaxed) == 0
            && let Some(place) = BoundsPlace::find()
        {
            self.bounds.store(place.index() + 1, Ordering::Relaxed);
        }
    }

    /// What unwinding must know of the process. *Async-signal-safe.*
    pub(crate) fn subject(&self) -> Subject {
        let bounds = self.bounds.load(Ordering::Relaxed);
        Subject {
            pid: self.pid,
            bounds: bounds.checked_sub(1).map(BoundsPlace::from_index),
        }
    }

    /// The workbench of a claimed lane. *Async-signal-safe.*
    pub(crate) fn bench(&self, claim: &Claim<'_>) -> Option<&Workbench> {
        self.benches.get(claim.index())?.get().map(|bench| &**bench)
    }

    /// Unwinds the stack of a thread with these registers into `frames`: how many there are, and
    /// how the stack ended. What the snapshot does not know is noted. *Async-signal-safe.*
    pub(crate) fn unwind(
        &self,
        snapshot: &Snapshot,
        registers: Registers,
        cache: &mut Cache,
        frames: &mut [u64],
    ) -> (usize, StopReason) {
        let unwound = snapshot.unwind(registers, self.subject(), cache, frames);
        if unwound.unknown_stack {
            self.is_stale.store(true, Ordering::Relaxed);
        }
        // Code that was loaded a moment ago, or a stack in a place where a shorter one was; the
        // flusher, which may be in a long sleep, finds out.
        if unwound.reason.may_be_outdated() && !self.met_unknown_code.swap(true, Ordering::Relaxed)
        {
            self.doorbell.wake_once();
        }
        (unwound.depth, unwound.reason)
    }

    /// Forgets what was noted.
    pub(crate) fn reset(&self) {
        self.is_stale.store(false, Ordering::Relaxed);
        self.met_unknown_code.store(false, Ordering::Relaxed);
    }

    /// Gives the memory of lanes and stacks back to the system, until they are used again.
    ///
    /// # Safety
    ///
    /// Nobody holds a lane, or claims one and gets to work with it.
    pub(crate) unsafe fn release_memory(&self) {
        // SAFETY: the caller's contract.
        unsafe {
            self.rack.release_memory();
            for bench in self.benches.iter().filter_map(OnceLock::get) {
                bench.release_memory();
            }
        }
    }

    /// Bytes that the lanes and their benches take.
    pub(crate) fn size_bytes(&self) -> usize {
        self.rack.size_bytes() + self.rack.len() * CACHE_BYTES
    }
}

/// What framehop's cache takes: 509 rules and gimli's evaluation context.
const CACHE_BYTES: usize = 40 * 1024;
