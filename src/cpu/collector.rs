//! The ordinary-code half of a recording: what the flusher does at each of its turns, under one lock.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::engine::{Engine, Rate};
use super::recorder::Recorder;
use super::stats::{Lost, Stats, Truncated};
use super::threads::Threads;
use crate::aggregate::{Layouts, Recorded, StackTable, build};
use crate::profile::Profile;
use crate::sys::clock::Clock;
use crate::sys::maps::Maps;
use crate::sys::modules::{self, Generation};
use crate::unwind::{Snapshot, StopReason};

/// Time between two turns of the flusher.
pub(super) const TURN: Duration = Duration::from_millis(10);

/// A new snapshot is not begun before this many times the last one's cost has gone by: a process with a huge address space
/// and stacks in odd places does not keep a CPU busy with reading its maps.
const REFRESH_SPACING: u32 = 20;

/// What was collected, and what collects it.
#[derive(Debug)]
pub(super) struct Collector {
    recorder: &'static Recorder,
    engine: Engine,
    rate: Rate,
    threads: Threads,
    table: StackTable,
    layouts: Layouts,
    truncated: [u64; StopReason::ALL.len()],
    generation: Generation,
    /// Snapshots that were replaced, with the last epoch they can be read in.
    retired: Vec<(Box<Snapshot>, u32)>,
    snapshot_bytes: usize,
    next_turn: Instant,
    next_refresh: Instant,
    started: Instant,
    start_realtime_ns: u64,
    stopped_after: Option<Duration>,
    /// The figures at the stop: the next recording counts in the same place.
    final_stats: Option<Stats>,
    own_cpu: Duration,
    handler_replaced: bool,
}

impl Collector {
    /// A collector whose first snapshot is published.
    pub(super) fn new(
        recorder: &'static Recorder,
        engine: Engine,
        rate: Rate,
        threads: Threads,
    ) -> std::io::Result<Self> {
        let now = Instant::now();
        let mut collector = Self {
            recorder,
            engine,
            rate,
            threads,
            table: StackTable::default(),
            layouts: Layouts::default(),
            truncated: [0; StopReason::ALL.len()],
            generation: Generation::now(),
            retired: Vec::new(),
            snapshot_bytes: 0,
            next_turn: now,
            next_refresh: now,
            started: now,
            start_realtime_ns: Clock::REALTIME.now_ns()?,
            stopped_after: None,
            final_stats: None,
            own_cpu: Duration::ZERO,
            handler_replaced: false,
        };
        collector.refresh()?;
        Ok(collector)
    }

    pub(super) fn threads(&mut self) -> &mut Threads {
        &mut self.threads
    }

    /// From now on a timer of the process ticks for all threads, instead of one for each.
    pub(super) fn fall_back_to_process_timer(&mut self) {
        self.engine = Engine::ProcessTimer;
        self.threads.leave_to_process_timer();
    }

    /// One turn of the flusher: what handlers have recorded is counted; at most every [`TURN`] threads and modules are looked
    /// at, too.
    pub(super) fn turn(&mut self) {
        self.drain();
        let now = Instant::now();
        if now >= self.next_turn {
            self.next_turn = now + TURN;
            // A scan that fails leaves what is armed as it is; the next one may do better.
            let _ = self.threads.scan();
            if now >= self.next_refresh && self.is_outdated() {
                let _ = self.refresh();
            }
            self.reclaim();
        }
        if let Ok(cpu) = Clock::THREAD_CPU.now_ns() {
            self.own_cpu = Duration::from_nanos(cpu);
        }
    }

    /// Counts everything that handlers have recorded.
    pub(super) fn drain(&mut self) {
        let Self {
            recorder,
            threads,
            table,
            layouts,
            truncated,
            ..
        } = self;
        // SAFETY: `&mut self` makes this the only consumer of this recording, and no other recording runs.
        unsafe {
            recorder.rack.drain(|record| {
                if let Some(count) = truncated.get_mut(record.stop_reason() as usize) {
                    *count += 1;
                }
                table.add(
                    layouts.of_epoch(record.epoch()),
                    record.frames(),
                    threads.serial_of(record.thread_serial(), record.tid()),
                    record.weight(),
                );
            });
        }
    }

    fn is_outdated(&self) -> bool {
        Generation::now() != self.generation || self.recorder.is_stale.load(Ordering::Relaxed)
    }

    /// Publishes a snapshot of the modules and mappings as they are now.
    fn refresh(&mut self) -> std::io::Result<()> {
        let begun = Instant::now();
        self.recorder.is_stale.store(false, Ordering::Relaxed);
        let generation = Generation::now();
        let maps = Maps::read()?;
        let epoch = self.recorder.snapshot.next_epoch();
        // SAFETY: only this collector replaces snapshots, so the current one stays for as long as it is looked at here.
        let last = unsafe { self.recorder.snapshot.get() };
        let loaded = modules::loaded(last.map_or(&[], Snapshot::modules), &maps);
        self.layouts
            .observe(epoch, loaded.iter().map(|module| &module.object));
        self.snapshot_bytes = loaded.iter().map(|module| module.size_bytes()).sum();
        let snapshot = Box::new(Snapshot::new(epoch, loaded, &maps, last));
        // SAFETY: one caller, by `&mut self`; the old one is kept until `reclaim` finds its readers gone.
        self.retired
            .extend(unsafe { self.recorder.snapshot.replace(snapshot) });
        self.generation = generation;
        self.next_refresh = Instant::now() + begun.elapsed() * REFRESH_SPACING;
        Ok(())
    }

    /// Frees the snapshots that no handler reads any more.
    fn reclaim(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let oldest = self.recorder.rack.oldest_epoch();
        self.retired
            .retain(|&(_, last_epoch)| oldest.is_some_and(|oldest| oldest <= last_epoch));
    }

    /// Ends the clocks. Signals that are on their way can still come.
    pub(super) fn disarm(&mut self, handler_replaced: bool) {
        self.handler_replaced = handler_replaced;
        self.threads.refresh_names();
        self.threads.disarm();
        self.stopped_after = Some(self.started.elapsed());
    }

    /// Counts what is left and gives back the memory that handlers used.
    ///
    /// # Safety
    ///
    /// No handler holds a lane or will get further than to look whether a recording runs.
    pub(super) unsafe fn finish(&mut self) {
        self.drain();
        self.final_stats = Some(self.stats());
        self.retired.clear();
        self.snapshot_bytes = 0;
        // SAFETY: nobody reads snapshots, or works with lanes, any more.
        unsafe {
            drop(self.recorder.snapshot.take());
            self.recorder.release_memory();
        }
    }

    /// Leaves the snapshots to handlers that do not let go of them.
    pub(super) fn leak(&mut self) {
        self.drain();
        self.final_stats = Some(self.stats());
        std::mem::forget(std::mem::take(&mut self.retired));
    }

    /// The profile so far: addresses, not names.
    pub(super) fn profile(&mut self) -> Profile {
        if self.stopped_after.is_none() {
            self.drain();
            self.threads.refresh_names();
        }
        let recorded = Recorded {
            period_ns: self.rate.period_ns(),
            start_realtime_ns: self.start_realtime_ns,
            duration_ns: self.duration().as_nanos() as u64,
            comments: self.stats().comments(),
        };
        build(
            &self.table,
            &self.layouts,
            |serial| self.threads.labels(serial),
            recorded,
        )
    }

    fn duration(&self) -> Duration {
        self.stopped_after.unwrap_or_else(|| self.started.elapsed())
    }

    pub(super) fn stats(&self) -> Stats {
        if let Some(stats) = &self.final_stats {
            return stats.clone();
        }
        let lost = Lost {
            no_lane: self.recorder.sum(|c| &c.no_lane),
            lane_full: self.recorder.sum(|c| &c.lane_full),
            filtered: self.recorder.sum(|c| &c.filtered),
        };
        let written = self.recorder.sum(|c| &c.written);
        let counts = self.table.counts();
        let truncated = |reason: StopReason| self.truncated[reason as usize];
        Stats {
            engine: self.engine,
            frequency_hz: self.rate.frequency_hz,
            effective_hz: self.rate.effective_hz(),
            duration: self.duration(),
            ticks: written + lost.total(),
            samples: counts.weight,
            records: counts.records,
            distinct_stacks: self.table.len() as u64,
            lost,
            truncated: Truncated {
                depth: truncated(StopReason::Depth),
                no_unwind_data: truncated(StopReason::NoUnwindData),
                unreadable: truncated(StopReason::Unreadable),
                not_advancing: truncated(StopReason::NotAdvancing),
            },
            foreign_signals: self.recorder.sum(|c| &c.foreign),
            threads_armed: self.threads.armed(),
            threads_refused: self.threads.refused(),
            handler_replaced: self.handler_replaced,
            own_cpu: self.own_cpu,
            own_memory_bytes: (self.recorder.size_bytes()
                + self.table.size_bytes()
                + self.threads.size_bytes()
                + self.snapshot_bytes) as u64,
        }
    }
}
