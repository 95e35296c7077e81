//! The ordinary-code half: what waiting threads have recorded is counted, and what is loaded is
//! kept known.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::recorder::Recorder;
use super::{sampling, stand_in};
use crate::capture::Publisher;
use crate::profile::SliceTable;
use crate::sys::clock::Clock;

/// Time between two turns of the flusher where nothing is known to be missing,
const RESTING_TURN: Duration = Duration::from_millis(50);

/// and where something is.
const TURN: Duration = Duration::from_millis(10);

/// The shortest time between two snapshots for the sake of code that no module holds.
const CODE_SPACING: Duration = Duration::from_secs(1);

/// How often modules that do not change are walked for the sake of one that seems not to be
/// relocated.
const PATIENCE: u32 = 200;

/// How many waits there were, and how long they took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Waits {
    /// What samples stand for, which is no whole number each.
    pub(super) count: f64,
    pub(super) ns: u64,
}

impl Waits {
    fn add(&mut self, (count, ns): (f64, u64)) {
        self.count += count;
        self.ns = self.ns.saturating_add(ns);
    }
}

/// What was collected, and what collects it.
#[derive(Debug)]
pub(super) struct Collector {
    recorder: &'static Recorder,
    publisher: Publisher,
    /// Each a word with the stack's layout and how it ended, and then return addresses.
    stacks: SliceTable<u64>,
    /// By the number of the stack.
    waits: HashMap<u32, Waits>,
    /// Those that are in no stack.
    lost: Waits,
    /// When the process was first watched, by the monotonic clock.
    begun_ns: u64,
    next_code_snapshot: Instant,
    /// Walks that have found a module not relocated yet; 0 where the last one found none.
    pending: u32,
    /// A stack with its layout in front, reused.
    scratch: Vec<u64>,
}

impl Collector {
    pub(super) fn new(recorder: &'static Recorder) -> Self {
        Self {
            recorder,
            publisher: Publisher::new(&recorder.capture),
            stacks: SliceTable::default(),
            waits: HashMap::new(),
            lost: Waits::default(),
            begun_ns: Clock::MONOTONIC.now_ns().unwrap_or(0),
            next_code_snapshot: Instant::now(),
            pending: 0,
            scratch: Vec::new(),
        }
    }

    /// Publishes what is loaded, and has all of it call the stand-in.
    pub(super) fn look_at_modules(&mut self) -> std::io::Result<()> {
        let (generation, maps) = self.publisher.publish()?;
        let is_pending = stand_in::put_in(generation, &maps).is_none_or(|done| done.is_pending);
        self.pending = match is_pending {
            true => self.pending.saturating_add(1),
            false => 0,
        };
        Ok(())
    }

    /// One turn of the flusher; and how long until the next.
    pub(super) fn turn(&mut self) -> Duration {
        self.drain();
        let capture = &self.recorder.capture;
        let now = Instant::now();
        // Code that no module holds is in no list of the loader's: a just-in-time compiler's.
        let has_new_code =
            capture.met_unknown_code.load(Ordering::Relaxed) && now >= self.next_code_snapshot;
        let is_pending = (1..PATIENCE).contains(&self.pending);
        if self.publisher.is_outdated() || has_new_code || is_pending {
            capture.met_unknown_code.store(false, Ordering::Relaxed);
            self.next_code_snapshot = now + CODE_SPACING;
            // Where the maps cannot be read, the next turn may.
            let _ = self.look_at_modules();
        }
        self.publisher.reclaim();
        self.compile_rules();
        match (1..PATIENCE).contains(&self.pending) {
            true => TURN,
            false => RESTING_TURN,
        }
    }

    fn compile_rules(&mut self) {
        let recorder = self.recorder;
        // SAFETY: only this collector's publisher replaces snapshots.
        if let Some(snapshot) = unsafe { recorder.capture.snapshot.get() } {
            snapshot.compile_rules(&mut || self.drain());
        }
    }

    /// Counts everything that threads have recorded.
    pub(super) fn drain(&mut self) {
        let Self {
            recorder,
            publisher,
            stacks,
            waits,
            lost,
            scratch,
            ..
        } = self;
        recorder.capture.open_lanes_for(0);
        // SAFETY: `&mut self` makes this the only consumer.
        unsafe {
            recorder.capture.rack.drain(|record| {
                let layout = publisher.layouts().of_epoch(record.epoch());
                scratch.clear();
                scratch.push(u64::from(layout) | (record.stop_reason() as u64) << 32);
                // The first frame is that of the stand-in.
                scratch.extend_from_slice(record.frames().get(1..).unwrap_or_default());
                let stack = stacks.intern(scratch);
                let stands_for = sampling::stands_for(record.waited_ns(), record.mean_ns());
                waits.entry(stack).or_default().add(stands_for);
            });
        }
        let (count, ns) = recorder.take_lost();
        lost.add((count as f64, ns));
    }

    /// Ends what [`look_at_modules`](Self::look_at_modules) has begun.
    ///
    /// # Safety
    ///
    /// Nobody holds a lane, or claims one and gets to read a snapshot.
    pub(super) unsafe fn finish(&mut self) {
        self.drain();
        // SAFETY: the caller's contract.
        unsafe { self.publisher.finish() };
    }

    /// Leaves snapshots to threads that do not let go of them.
    pub(super) fn leak(&mut self) {
        self.drain();
        self.publisher.leak();
    }

    /// What the addresses of all stacks are of.
    pub(super) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    pub(super) fn stacks(&self) -> &SliceTable<u64> {
        &self.stacks
    }

    /// The waits of a stack.
    pub(super) fn waits(&self, stack: u32) -> Waits {
        self.waits.get(&stack).copied().unwrap_or_default()
    }

    pub(super) fn lost(&self) -> Waits {
        self.lost
    }

    /// Nanoseconds since the process was first watched.
    pub(super) fn age_ns(&self) -> u64 {
        let now = Clock::MONOTONIC.now_ns().unwrap_or(0);
        now.saturating_sub(self.begun_ns)
    }
}
