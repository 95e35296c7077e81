//! The ordinary-code half: what waiting threads have recorded is counted, and what is loaded is
//! kept known.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::counted::{Counted, Mark};
use super::pace::Pacer;
use super::recorder::Recorder;
use super::shares::Sharer;
use super::{sampling, stand_ins};
use crate::capture::Publisher;
use crate::profile::SliceTable;
use crate::ring::Role;
use crate::sys::got::Outcome;

/// Time between two turns of the flusher where nothing is known to be missing,
const RESTING_TURN: Duration = Duration::from_millis(50);

/// and where something is.
const TURN: Duration = Duration::from_millis(10);

/// The shortest time between two snapshots for the sake of code that no module holds.
const CODE_SPACING: Duration = Duration::from_secs(1);

/// How often modules that do not change are walked for the sake of one that seems not to be
/// relocated.
const PATIENCE: u32 = 200;

/// What was collected, and what collects it.
#[derive(Debug)]
pub(super) struct Collector {
    recorder: &'static Recorder,
    publisher: Publisher,
    /// Each a word with the stack's layout and how it ended, and then return addresses: that of the
    /// waiter's call, and those of the stack.
    stacks: SliceTable<u64>,
    counted: Counted,
    pacer: Pacer,
    sharer: Sharer,
    /// When the process was first watched.
    first: Mark,
    /// What is loaded is to call the stand-ins.
    has_stand_ins: bool,
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
            counted: Counted::default(),
            pacer: Pacer::new(),
            sharer: Sharer::new(),
            first: Mark::new(Counted::default()),
            has_stand_ins: false,
            next_code_snapshot: Instant::now(),
            pending: 0,
            scratch: Vec::new(),
        }
    }

    /// Publishes what is loaded, and has all of it call the stand-ins, if it is to.
    ///
    /// # Errors
    ///
    /// Where what is loaded cannot be read, or not be changed.
    pub(super) fn begin(&mut self, has_stand_ins: bool) -> io::Result<()> {
        self.has_stand_ins = has_stand_ins;
        self.pacer.begin();
        self.sharer.begin();
        let outcome = self.look_at_modules()?;
        let Some(errno) = outcome.and_then(|outcome| outcome.refused) else {
            return Ok(());
        };
        let refused = io::Error::from_raw_os_error(errno);
        Err(io::Error::other(format!(
            "the system does not let the addresses be changed by which modules call functions \
             (mprotect: {refused}); sigprof::contention::watch_locks changes nothing"
        )))
    }

    /// What came of having all of it call the stand-ins; `None` where modules have come or gone
    /// meanwhile, or none is to.
    fn look_at_modules(&mut self) -> io::Result<Option<Outcome>> {
        let (generation, maps) = self.publisher.publish()?;
        if !self.has_stand_ins {
            self.pending = 0;
            return Ok(None);
        }
        let outcome = stand_ins::put_in(generation, &maps);
        self.pending = match outcome.is_none_or(|outcome| outcome.is_pending) {
            true => self.pending.saturating_add(1),
            false => 0,
        };
        Ok(outcome)
    }

    /// One turn of the flusher; and how long until the next.
    pub(super) fn turn(&mut self) -> Duration {
        self.drain();
        let capture = &self.recorder.capture;
        self.pacer.turn(&self.recorder.pace);
        self.sharer.turn(&self.recorder.shares);
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
            counted,
            pacer,
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
                scratch.extend_from_slice(record.frames());
                let stack = stacks.intern(scratch);
                let (waited_ns, mean_ns) = (record.waited_ns(), record.mean_ns());
                let stands_for = sampling::stands_for(record.weight(), waited_ns, mean_ns);
                counted.add(record.role(), stack, stands_for);
                pacer.note(waited_ns, sampling::stands_for(1, waited_ns, mean_ns).count);
            });
        }
        for role in [Role::Waiter, Role::Holder] {
            let (waits, timed) = recorder.take_lost(role);
            counted.add_lost(role, waits);
            if let Some(waited_ns) = waits.ns.checked_div(timed) {
                pacer.note(waited_ns, timed as f64);
            }
        }
    }

    /// Ends what [`begin`](Self::begin) has begun.
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

    pub(super) fn counted(&self) -> &Counted {
        &self.counted
    }

    /// When the process was first watched.
    pub(super) fn first(&self) -> &Mark {
        &self.first
    }
}
