//! What the handler reaches: lanes, caches, counters, the published snapshot; and the word that
//! says whether it may.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use super::births::Births;
use super::choice::SIGNAL;
use super::events::Events;
use crate::ring::{Claim, MOST_LANES, Rack, Refused, spread};
use crate::slots::Slots;
use crate::sync::Mutex;
use crate::sys::fork::{Wipeable, wiped_on_fork};
use crate::sys::futex::Futex;
use crate::sys::stack::Stack;
use crate::sys::thread_stack::BoundsPlace;
use crate::unwind::{Cache, Published, Rules, Snapshot, Subject};

/// Words of a lane: 512 KiB, some 120 of the deepest stacks or 1600 of usual ones. The flusher asks
/// for memory and for the process's mappings, so it waits for the locks of both; among many threads
/// whoever holds one can lose its CPU for some 100 ms.
const LANE_WORDS: usize = 64 * 1024;

/// The process's state of recording, in a page that a fork wipes: in a child all of it is zero,
/// which means that nothing is recorded there and that nothing of the parent's is the child's.
#[derive(Debug)]
pub(super) struct Owner {
    /// The number of the recording that runs; 0 while none does. Ticks of its timers carry it.
    pub(super) recording: AtomicU32,
    /// The number of the recording that is being started, runs, or is being stopped; 0 while there
    /// is none.
    pub(super) holder: AtomicU32,
    /// What handlers work with, allocated at the first start and never freed: a late handler finds
    /// it in place.
    recorder: AtomicPtr<Recorder>,
}

// SAFETY: all fields are atomics, valid and meaning "nothing" when zero, and need no drop.
unsafe impl Wipeable for Owner {}

/// The page of the process: allocated at the first start, never freed.
static OWNER: AtomicPtr<Owner> = AtomicPtr::new(std::ptr::null_mut());

impl Owner {
    /// The owner's page, if any recording was ever started. *Async-signal-safe.*
    pub(super) fn get() -> Option<&'static Self> {
        // Acquire: the page was zeroed before it was published.
        // SAFETY: null, or a page that is never freed.
        unsafe { OWNER.load(Ordering::Acquire).as_ref() }
    }

    /// The owner's page, made if need be.
    pub(super) fn get_or_make() -> io::Result<&'static Self> {
        if let Some(owner) = Self::get() {
            return Ok(owner);
        }
        let made = wiped_on_fork::<Self>()?;
        // Where two threads come here at once, one page stays unused; it is a page.
        let made = std::ptr::from_ref(made).cast_mut();
        let _ = OWNER.compare_exchange(
            std::ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        Ok(Self::get().expect("the page was published by this thread or another"))
    }

    /// What handlers work with, if any recording was started in this process. *Async-signal-safe.*
    pub(super) fn recorder(&self) -> Option<&'static Recorder> {
        // Acquire: the recorder was built before it was published.
        // SAFETY: null, or a recorder that is never freed.
        unsafe { self.recorder.load(Ordering::Acquire).as_ref() }
    }

    /// What handlers work with, made if need be. For whoever is the `holder`.
    pub(super) fn recorder_or_make(&self) -> io::Result<&'static Recorder> {
        if let Some(recorder) = self.recorder() {
            return Ok(recorder);
        }
        let recorder: &'static Recorder = Box::leak(Box::new(Recorder::new()?));
        let pointer = std::ptr::from_ref(recorder).cast_mut();
        self.recorder.store(pointer, Ordering::Release);
        Ok(recorder)
    }

    /// Leaves the recorder to the handlers that will not let go of it; the next recording makes its
    /// own.
    pub(super) fn abandon_recorder(&self) {
        self.recorder.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// What handlers work with.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) rack: Rack,
    pub(super) snapshot: Published<Snapshot>,
    /// Rung by a handler in whose lane much waits for the flusher.
    pub(super) doorbell: Futex,
    /// Set by a handler that met a stack which the snapshot does not know.
    pub(super) is_stale: AtomicBool,
    /// A handler met code that the snapshot does not know: a module may have been loaded.
    pub(super) met_unknown_code: AtomicBool,
    /// This process, whose forked children have no recorder.
    pid: i32,
    /// One more than the place of the bounds of threads' stacks; 0 while that is not known.
    bounds: AtomicUsize,
    /// What timers send, and programs send to themselves.
    pub(super) signal: AtomicI32,
    /// CPU time between two ticks, in nanoseconds.
    pub(super) period_ns: AtomicU64,
    /// Frames a record may have.
    pub(super) max_depth: AtomicUsize,
    pub(super) filter: Filter,
    pub(super) slots: &'static Slots,
    pub(super) events: Events,
    /// Threads that begin and end by themselves, and how they are armed.
    pub(super) births: Births,
    /// The modules of the last snapshot, whose unwind data the next recording need not compile
    /// again.
    pub(super) rules: Mutex<Vec<Arc<Rules>>>,
    counters: Box<[CachePadded<Counters>]>,
    /// One for each lane that is open.
    benches: Box<[OnceLock<Box<Workbench>>]>,
}

/// What unwinding takes besides room for the record. It belongs to a lane: whoever holds the lane's
/// claim holds it.
#[derive(Debug)]
pub(super) struct Workbench {
    cache: UnsafeCell<Cache>,
    stack: Stack,
}

// SAFETY: only the holder of the lane's claim touches the cache (`Workbench::work`), and a claim is
// exclusive.
unsafe impl Sync for Workbench {}

impl Workbench {
    fn new() -> io::Result<Self> {
        Ok(Self {
            cache: UnsafeCell::new(Cache::new()),
            stack: Stack::new()?,
        })
    }

    /// Runs `work` on the bench's own stack, with its cache. *Async-signal-safe* if `work` is.
    ///
    /// # Safety
    ///
    /// The caller holds the claim of the bench's lane, and `work` returns.
    pub(super) unsafe fn work(&self, work: impl FnOnce(&mut Cache)) {
        // SAFETY: the claim is exclusive, and with it cache and stack.
        unsafe { self.stack.run(|| work(&mut *self.cache.get())) };
    }
}

/// Ticks by what became of them. There are some sets, chosen by thread, so that CPUs do not share
/// lines.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Weights of the records that were written.
    pub(super) written: AtomicU64,
    /// Weights that found no free lane.
    pub(super) no_lane: AtomicU64,
    /// Weights that found free lanes, but no room.
    pub(super) lane_full: AtomicU64,
    /// Weights that the program's filter dropped.
    pub(super) filtered: AtomicU64,
    /// Ticks that the program sent to itself, whatever became of them.
    pub(super) sent: AtomicU64,
    /// Signals that were not ours to count.
    pub(super) foreign: AtomicU64,
}

impl Counters {
    /// Weights that found no place, by why.
    pub(super) fn refused(&self, refused: Refused) -> &AtomicU64 {
        match refused {
            Refused::NoLane => &self.no_lane,
            Refused::LaneFull => &self.lane_full,
        }
    }
}

impl Recorder {
    fn new() -> io::Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        // Two a CPU, so that a handler that was preempted with its lane does not keep the next one
        // from recording; and enough for the threads that may begin before the flusher hears of
        // them: with 8, in a storm of births, one in 20,000 lost all of its ticks.
        let lanes = (2 * cpus).next_power_of_two().clamp(16, 32);
        let recorder = Self {
            rack: Rack::new(MOST_LANES, LANE_WORDS),
            snapshot: Published::new(),
            doorbell: Futex::new(),
            is_stale: AtomicBool::new(false),
            met_unknown_code: AtomicBool::new(false),
            pid: std::process::id() as i32,
            bounds: AtomicUsize::new(0),
            signal: AtomicI32::new(SIGNAL),
            period_ns: AtomicU64::new(u64::MAX),
            max_depth: AtomicUsize::new(0),
            filter: Filter::default(),
            slots: Slots::get_or_make()?,
            events: Events::new()?,
            births: Births::default(),
            rules: Mutex::default(),
            counters: (0..lanes).map(|_| CachePadded::default()).collect(),
            benches: (0..MOST_LANES).map(|_| OnceLock::new()).collect(),
        };
        recorder.open_lanes(lanes)?;
        Ok(recorder)
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

    /// Opens more lanes where this many threads may need them, or handlers have found that many are
    /// in use. For the flusher.
    pub(super) fn open_lanes_for(&self, threads: usize) {
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

    /// The counters for a thread of this hint. *Async-signal-safe.*
    pub(super) fn counters(&self, hint: u32) -> Option<&Counters> {
        let place = spread(hint, self.counters.len());
        self.counters.get(place).map(|c| &**c)
    }

    /// What unwinding must know of the process. *Async-signal-safe.*
    pub(super) fn subject(&self) -> Subject {
        let bounds = self.bounds.load(Ordering::Relaxed);
        Subject {
            pid: self.pid,
            bounds: bounds.checked_sub(1).map(BoundsPlace::from_index),
        }
    }

    /// Finds out where threads keep the bounds of their stacks. For a thread that the C library
    /// started: the flusher.
    pub(super) fn find_bounds(&self) {
        if self.bounds.load(Ordering::Relaxed) == 0
            && let Some(place) = BoundsPlace::find()
        {
            self.bounds.store(place.index() + 1, Ordering::Relaxed);
        }
    }

    /// The workbench of a claimed lane. *Async-signal-safe.*
    pub(super) fn bench(&self, claim: &Claim<'_>) -> Option<&Workbench> {
        self.benches.get(claim.index())?.get().map(|bench| &**bench)
    }

    /// Gives the memory of lanes and stacks back to the system, until the next recording uses it.
    ///
    /// # Safety
    ///
    /// No handler holds a lane, or claims one and gets to work with it.
    pub(super) unsafe fn release_memory(&self) {
        // SAFETY: the caller's contract.
        unsafe {
            self.rack.release_memory();
            for bench in self.benches.iter().filter_map(OnceLock::get) {
                bench.stack.release_memory();
            }
        }
    }

    /// One counter, summed.
    pub(super) fn sum(&self, counter: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        self.counters
            .iter()
            .map(|c| counter(c).load(Ordering::Relaxed))
            .sum()
    }

    /// Sets all counters to 0, while nothing is recorded.
    pub(super) fn reset(&self) {
        for counters in &self.counters {
            let Counters {
                written,
                no_lane,
                lane_full,
                filtered,
                sent,
                foreign,
            } = &**counters;
            for counter in [written, no_lane, lane_full, filtered, sent, foreign] {
                counter.store(0, Ordering::Relaxed);
            }
        }
        self.is_stale.store(false, Ordering::Relaxed);
        self.met_unknown_code.store(false, Ordering::Relaxed);
    }

    /// Bytes of this value and what it owns.
    pub(super) fn size_bytes(&self) -> usize {
        self.rack.size_bytes()
            + self.counters.len() * size_of::<CachePadded<Counters>>()
            + self.rack.len() * CACHE_BYTES
    }
}

/// What framehop's cache takes: 509 rules and gimli's evaluation context.
const CACHE_BYTES: usize = 40 * 1024;

/// A function of the program's that says which ticks to keep.
pub(super) type FilterFn = extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// The filter of the running recording, if it has one.
#[derive(Debug, Default)]
pub(super) struct Filter {
    function: AtomicPtr<libc::c_void>,
    argument: AtomicPtr<libc::c_void>,
}

impl Filter {
    /// Sets or removes the filter, while nothing is recorded.
    pub(super) fn set(&self, filter: Option<(FilterFn, *mut libc::c_void)>) {
        let (function, argument) = match filter {
            Some((function, argument)) => (function as *mut libc::c_void, argument),
            None => (std::ptr::null_mut(), std::ptr::null_mut()),
        };
        self.argument.store(argument, Ordering::Relaxed);
        self.function.store(function, Ordering::Release);
    }

    /// Whether a tick of the calling thread is to be kept. *Async-signal-safe* if the filter is.
    pub(super) fn keeps(&self) -> bool {
        let function = self.function.load(Ordering::Acquire);
        if function.is_null() {
            return true;
        }
        // SAFETY: only `set` stores there, and it stores a `FilterFn`.
        let function: FilterFn = unsafe { std::mem::transmute(function) };
        function(self.argument.load(Ordering::Relaxed)) != 0
    }
}
