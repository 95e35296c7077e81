//! What the handler reaches: what takes call chains, counters; and the word that says whether it
//! may.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

use super::births::Births;
use super::choice::SIGNAL;
use super::events::Events;
use crate::capture::Capture;
use crate::ring::{Refused, spread};
use crate::slots::Slots;
use crate::sys::fork::{Wipeable, wiped_on_fork};

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
    pub(super) capture: Capture,
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
    counters: Box<[CachePadded<Counters>]>,
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
    /// System calls that begin again after a tick, which would have returned `EINTR`.
    pub(super) restarted: AtomicU64,
    /// System calls that return `EINTR` because of a tick.
    pub(super) interrupted: AtomicU64,
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
        Ok(Self {
            capture: Capture::new(lanes, LANE_WORDS)?,
            signal: AtomicI32::new(SIGNAL),
            period_ns: AtomicU64::new(u64::MAX),
            max_depth: AtomicUsize::new(0),
            filter: Filter::default(),
            slots: Slots::get_or_make()?,
            events: Events::new()?,
            births: Births::default(),
            counters: (0..lanes).map(|_| CachePadded::default()).collect(),
        })
    }

    /// The counters for a thread of this hint. *Async-signal-safe.*
    pub(super) fn counters(&self, hint: u32) -> Option<&Counters> {
        let place = spread(hint, self.counters.len());
        self.counters.get(place).map(|c| &**c)
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
                restarted,
                interrupted,
            } = &**counters;
            for counter in [
                written,
                no_lane,
                lane_full,
                filtered,
                sent,
                foreign,
                restarted,
                interrupted,
            ] {
                counter.store(0, Ordering::Relaxed);
            }
        }
        self.capture.reset();
    }

    /// Bytes of this value and what it owns.
    pub(super) fn size_bytes(&self) -> usize {
        self.capture.size_bytes() + self.counters.len() * size_of::<CachePadded<Counters>>()
    }
}

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
