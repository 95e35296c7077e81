//! The ordinary-code half of a recording: what the flusher does at each of its turns, under one
//! lock.

mod figures;
mod moment;
#[cfg(test)]
mod tests;
mod totals;
#[cfg(feature = "http")]
mod window;

#[cfg(feature = "capi")]
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::arming::Choice;
use super::births;
use super::choice::QUIET;
use super::engine::{Engine, Rate};
use super::handler::on_signal;
use super::recorder::Recorder;
use super::stats::Stats;
use super::threads::Threads;
use super::wall::Wall;
use crate::aggregate::{Stack, StackTable, State, Tag, Weight};
use crate::capture::Publisher;
use crate::label::Interned;
use crate::ring::Source;
use crate::sys::clock::Clock;
use crate::sys::maps::Maps;
use crate::sys::modules::Generation;
use crate::sys::signal::is_installed;
use crate::sys::thread_hook::ThreadHook;
use crate::unwind::StopReason;
pub(super) use moment::Moment;
use totals::Totals;
#[cfg(feature = "http")]
pub(super) use window::Part;

/// The shortest time between two looks at threads and modules, and the time between two where
/// something can happen that nobody tells the flusher of.
const TURN: Duration = Duration::from_millis(10);

/// Time between two turns where nothing is missed meanwhile: new threads arm themselves, and
/// handlers ring where lanes fill or code turns up that is not known.
const RESTING_TURN: Duration = Duration::from_millis(50);

/// A new snapshot is not begun before this many times the last one's cost has gone by: a process
/// with a huge address space and stacks in odd places does not keep a CPU busy with reading its
/// maps.
const REFRESH_SPACING: u32 = 20;

/// How long tables are compiled without a look at the lanes.
const COMPILE_BETWEEN_DRAINS: Duration = Duration::from_millis(5);

/// The shortest time between two snapshots for the sake of code that no module holds.
const CODE_REFRESH_SPACING: Duration = Duration::from_secs(1);

/// Ticks in the profile of the recording that runs, or of the last one, since the flusher's last
/// turn: a C program may read it by its address.
#[cfg(feature = "capi")]
pub(crate) static SAMPLES_GATHERED: AtomicI32 = AtomicI32::new(0);

/// What was collected, and what collects it.
#[derive(Debug)]
pub(super) struct Collector {
    recorder: &'static Recorder,
    engine: Engine,
    rate: Rate,
    threads: Threads,
    /// Looks at threads by elapsed time, where that is recorded.
    wall: Option<Wall>,
    /// Has new threads arm themselves.
    hook: Option<ThreadHook>,
    /// What the first snapshot was made of, for the hook.
    maps_at_start: Option<(Generation, Maps)>,
    /// [`QUIET`] is one of the recording's signals.
    uses_quiet_signal: bool,
    /// The program has taken it since.
    quiet_signal_is_lost: bool,
    /// The program has taken the signal of timers, for now at least.
    timer_signal_is_lost: bool,
    /// Threads have clocks of their own.
    is_by_thread: bool,
    /// The clocks see user time alone.
    is_user_only: bool,
    table: StackTable,
    labels: Interned,
    /// Periods of the clocks in the table, without what the program sent.
    ticks: u64,
    /// Ticks that the program sent, in the table.
    sent: u64,
    truncated: [u64; StopReason::ALL.len()],
    publisher: Publisher,
    last_turn: Instant,
    next_refresh: Instant,
    next_code_refresh: Instant,
    start: Moment,
    stopped_after: Option<Duration>,
    /// The counts at the stop: the next recording counts in the same place.
    final_totals: Option<Totals>,
    final_stats: Option<Stats>,
    /// Windows that are open.
    #[cfg(feature = "http")]
    windows: Vec<window::Mark>,
    /// The process's CPU time, and that of the profiler's thread, at the stop.
    final_cpu: Option<(u64, u64)>,
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
        let start = Moment::now()?;
        let now = start.at;
        let mut collector = Self {
            recorder,
            engine,
            rate,
            is_by_thread: threads.arming().choice != Choice::Nothing,
            is_user_only: threads.arming().choice == Choice::PerfEvent { with_kernel: false },
            threads,
            wall: None,
            hook: None,
            uses_quiet_signal: false,
            quiet_signal_is_lost: false,
            timer_signal_is_lost: false,
            maps_at_start: None,
            table: StackTable::default(),
            labels: Interned::default(),
            ticks: 0,
            sent: 0,
            truncated: [0; StopReason::ALL.len()],
            publisher: Publisher::new(&recorder.capture),
            // The first turn finds what began while the recording did.
            last_turn: now.checked_sub(RESTING_TURN).unwrap_or(now),
            next_refresh: now,
            next_code_refresh: now,
            start,
            stopped_after: None,
            final_totals: None,
            final_stats: None,
            #[cfg(feature = "http")]
            windows: Vec::new(),
            final_cpu: None,
            handler_replaced: false,
        };
        let maps = collector.refresh()?;
        collector.maps_at_start = Some((collector.publisher.generation(), maps));
        Ok(collector)
    }

    /// Says that the recording needs [`QUIET`].
    pub(super) fn use_quiet_signal(&mut self) {
        self.uses_quiet_signal = true;
    }

    /// Takes the engine for what threads were armed with: perf events can be had by the thread that
    /// was tried, and by no other.
    pub(super) fn settle_engine(&mut self) {
        if self.engine == Engine::PerfEvent && self.threads.armed_by_perf() == 0 {
            self.engine = Engine::ThreadTimer;
        }
    }

    pub(super) fn threads(&mut self) -> &mut Threads {
        &mut self.threads
    }

    /// Has threads that begin from now on arm themselves, where that can be had. Elsewhere the
    /// flusher finds them.
    pub(super) fn hook_new_threads(&mut self) {
        // Those of the first snapshot, if no module has come or gone since.
        let known = self.maps_at_start.take();
        let known = known.filter(|(generation, _)| *generation == Generation::now());
        let Some((generation, maps)) = known.or_else(|| {
            let generation = Generation::now();
            Some((generation, Maps::read().ok()?))
        }) else {
            return;
        };
        if let Ok(hook) = ThreadHook::install(births::CALLBACKS, generation, &maps) {
            self.hook = Some(hook);
            self.threads.expect_births();
        }
    }

    /// Records elapsed time: threads are looked at from here. Called before the first scan.
    pub(super) fn record_wall_time(&mut self) {
        self.threads.note_changes();
        let arming = self.threads.arming();
        self.wall = Some(Wall::new(self.recorder, arming, self.start.at));
    }

    /// From now on a timer of the process ticks for all threads, instead of one for each.
    pub(super) fn fall_back_to_process_timer(&mut self) {
        self.engine = Engine::ProcessTimer;
        self.is_by_thread = false;
        self.threads.leave_to_process_timer();
    }

    /// One turn of the flusher: what handlers have recorded is counted; at most every [`TURN`]
    /// threads and modules are looked at, too. The answer is when the next turn is due.
    pub(super) fn turn(&mut self) -> Duration {
        // In the books of the end the flusher's thread has done all of its work.
        if self.stopped_after.is_some() {
            return TURN;
        }
        self.drain();
        let now = Instant::now();
        self.tick(now);
        if now >= self.last_turn + self.turn_length() {
            self.look_around(now);
        }
        let next_turn = self.last_turn + self.turn_length();
        let due = match &self.wall {
            Some(wall) => next_turn.min(wall.next_tick()),
            None => next_turn,
        };
        due.saturating_duration_since(Instant::now())
    }

    /// One tick of elapsed time, if it is due. The lanes were emptied a moment ago.
    fn tick(&mut self, now: Instant) {
        if let Some(wall) = &mut self.wall {
            wall.tick(now, &mut self.threads, &mut self.table);
        }
    }

    fn turn_length(&self) -> Duration {
        let is_hooked = self.hook.as_ref().is_some_and(|hook| !hook.is_pending());
        let met_unknown_code = (self.recorder.capture.met_unknown_code).load(Ordering::Relaxed);
        let is_resting =
            is_hooked && self.wall.is_none() && !met_unknown_code && !self.threads.expects_more();
        if is_resting { RESTING_TURN } else { TURN }
    }

    /// Looks at threads and modules.
    fn look_around(&mut self, now: Instant) {
        self.last_turn = now;
        self.maps_at_start = None;
        let recorder = self.recorder;
        let met_unknown_code = (recorder.capture.met_unknown_code).swap(false, Ordering::Relaxed);
        self.look_at_threads();
        if now >= self.next_refresh {
            // Code that no module holds is in no list of the loader's: a just-in-time compiler's,
            // which may make more at any time. Nor does anything tell that a stack is longer than
            // what was mapped in its place before.
            let has_new_code = met_unknown_code && now >= self.next_code_refresh;
            if self.publisher.is_outdated() || has_new_code {
                let _ = self.refresh();
                self.next_code_refresh = now + CODE_REFRESH_SPACING;
            } else if self.hook.as_ref().is_some_and(ThreadHook::is_pending) {
                self.refresh_hook();
            }
        }
        self.publisher.reclaim();
        self.compile_rules();
    }

    /// Looks at threads, and whether they still hear their clocks.
    fn look_at_threads(&mut self) {
        // A scan that fails leaves what is armed as it is; the next one may do better.
        let _ = self.threads.scan();
        if self.uses_quiet_signal && !self.quiet_signal_is_lost {
            self.watch_quiet_signal();
        }
        self.watch_timer_signal();
    }

    /// Makes the tables of unwind rules that are missing.
    fn compile_rules(&mut self) {
        // A timer of the process ticks for this thread, too, on whichever thread the signal falls:
        // it is to do little, and framehop serves without tables.
        if self.engine == Engine::ProcessTimer {
            return;
        }
        let recorder = self.recorder;
        // SAFETY: only this collector's publisher replaces snapshots.
        if let Some(snapshot) = unsafe { recorder.capture.snapshot.get() } {
            let mut drained = Instant::now();
            // At high rates lanes fill in some ten milliseconds; and a look stands for all the time
            // since the one before, whatever its thread did then. A thread can come and go meanwhile,
            // and its name with it.
            let mut go_on_recording = || {
                let now = Instant::now();
                let is_tick_due = |wall: &Wall| wall.next_tick() <= now;
                if now - drained > COMPILE_BETWEEN_DRAINS
                    || self.wall.as_ref().is_some_and(is_tick_due)
                {
                    self.drain();
                    self.tick(now);
                    drained = now;
                }
                if now >= self.last_turn + self.turn_length() {
                    self.last_turn = now;
                    self.look_at_threads();
                }
            };
            #[cfg(test)]
            tests::go_on_while_held(&mut go_on_recording);
            snapshot.compile_rules(&mut go_on_recording);
            self.publisher.measure();
        }
    }

    /// Counts everything that handlers have recorded.
    pub(super) fn drain(&mut self) {
        // Before what follows: a thread that has not gone by then had all of the time up to here.
        let now = Instant::now();
        self.threads.try_hear();
        self.recorder.capture.open_lanes_for(self.threads.count());
        if let Some(wall) = &mut self.wall {
            wall.hear(&mut self.threads, &mut self.table);
        }
        let Self {
            recorder,
            rate,
            threads,
            wall,
            table,
            labels,
            publisher,
            truncated,
            ticks,
            sent,
            ..
        } = self;
        let retired = labels.begin();
        let fading = threads.take_fading();
        // SAFETY: `&mut self` makes this the only consumer of this recording, and no other
        // recording runs.
        unsafe {
            recorder.capture.rack.drain(|record| {
                if let Some(count) = truncated.get_mut(record.stop_reason() as usize) {
                    *count += 1;
                }
                let count = u64::from(record.weight());
                let (own_ticks, sent_ticks) = match record.source() {
                    Source::Clock => (count, 0),
                    Source::Program => (0, count),
                    Source::Look => (0, 0),
                };
                *ticks += own_ticks;
                *sent += sent_ticks;
                let thread = threads.serial_of(record.thread_serial(), record.tid(), own_ticks);
                let (state, weight) = match (&mut *wall, record.source()) {
                    (Some(wall), Source::Look) => wall.answered(thread, now),
                    // All elapsed time is a look's, so what the program asks for is a sample of
                    // none.
                    (Some(_), _) => (State::Running, Weight { count, ns: 0 }),
                    (None, _) => (
                        State::Unsaid,
                        Weight {
                            count,
                            ns: count * rate.period_ns(),
                        },
                    ),
                };
                let tag = Tag {
                    thread,
                    // SAFETY: the record was committed by a handler of this recording, and is
                    // drained for the first time.
                    labels: labels.number_of(record.labels()),
                    state,
                };
                let stack = Stack {
                    layout: publisher.layouts().of_epoch(record.epoch()),
                    ended: record.stop_reason(),
                    frames: record.frames(),
                };
                let chain = table.add(stack, tag, weight);
                if let (Some(wall), Source::Look) = (&mut *wall, record.source()) {
                    wall.keep(thread, chain, tag);
                }
            });
        }
        drop(retired);
        threads.forget(fading);
        #[cfg(feature = "capi")]
        {
            let samples = table.all().counts().weight.try_into().unwrap_or(i32::MAX);
            SAMPLES_GATHERED.store(samples, Ordering::Relaxed);
        }
    }

    /// Ticks in the profile so far.
    #[cfg(feature = "capi")]
    pub(super) fn samples(&mut self) -> u64 {
        if self.stopped_after.is_none() {
            self.drain();
        }
        self.table.all().counts().weight
    }

    /// Publishes a snapshot of the modules and mappings as they are now.
    fn refresh(&mut self) -> std::io::Result<Maps> {
        let begun_ns = Clock::THREAD_CPU.now_ns()?;
        let (generation, maps) = self.publisher.publish()?;
        if let Some(hook) = &mut self.hook {
            hook.refresh(generation, &maps);
        }
        // By the CPU: on a crowded machine most of the time that passes is other programs'.
        let cost_ns = Clock::THREAD_CPU.now_ns()?.saturating_sub(begun_ns);
        self.next_refresh = Instant::now() + Duration::from_nanos(cost_ns) * REFRESH_SPACING;
        Ok(maps)
    }

    /// Leaves the signal of perf events and looks to the program, if it has taken it: its handler
    /// would be called for ours.
    fn watch_quiet_signal(&mut self) {
        if is_installed(QUIET, on_signal).is_ok_and(|is_ours| !is_ours) {
            self.quiet_signal_is_lost = true;
            self.threads.give_up_events();
            if let Some(wall) = &mut self.wall {
                wall.look_with(self.recorder.signal.load(Ordering::Relaxed));
            }
        }
    }

    /// Stops timers for as long as their signal is the program's: its handler would be called for
    /// ours, or, where it has none, the signal would end the process.
    fn watch_timer_signal(&mut self) {
        let signal = self.recorder.signal.load(Ordering::Relaxed);
        let is_lost = is_installed(signal, on_signal).is_ok_and(|is_ours| !is_ours);
        if is_lost != self.timer_signal_is_lost {
            self.timer_signal_is_lost = is_lost;
            self.handler_replaced |= is_lost;
            self.threads.use_timers(!is_lost);
        }
    }

    /// Whether the signal of timers is the program's.
    pub(super) fn has_lost_timer_signal(&self) -> bool {
        self.timer_signal_is_lost
    }

    /// Looks again for modules whose new threads can be hooked.
    fn refresh_hook(&mut self) {
        let generation = Generation::now();
        if let (Some(hook), Ok(maps)) = (&mut self.hook, Maps::read()) {
            hook.refresh(generation, &maps);
        }
    }

    /// Ends the clocks. Signals that are on their way can still come.
    pub(super) fn disarm(&mut self, handler_replaced: bool) {
        self.handler_replaced |= handler_replaced;
        self.hook = None;
        self.count_threads();
        self.threads.disarm();
        if let Some(wall) = &mut self.wall {
            wall.hear(&mut self.threads, &mut self.table);
            wall.stop(&mut self.table);
        }
        self.stopped_after = Some(self.start.at.elapsed());
        self.final_cpu = Some(self.cpu_now());
    }

    /// Counts what is left and gives back the memory that handlers used.
    ///
    /// # Safety
    ///
    /// No handler holds a lane or will get further than to look whether a recording runs.
    pub(super) unsafe fn finish(&mut self) {
        self.drain();
        // Labels that are taken off from here on are in no record.
        self.recorder.slots.set_recording(false);
        drop(self.labels.begin());
        self.threads.leave_slots();
        self.final_totals = Some(self.totals());
        self.final_stats = Some(self.stats());
        // SAFETY: nobody reads snapshots, or works with lanes, any more.
        unsafe { self.publisher.finish() };
    }

    /// Leaves the snapshots to handlers that do not let go of them.
    pub(super) fn leak(&mut self) {
        self.drain();
        // Labels that are taken off from here on are in no record.
        self.recorder.slots.set_recording(false);
        drop(self.labels.begin());
        self.threads.leave_slots();
        self.final_totals = Some(self.totals());
        self.final_stats = Some(self.stats());
        self.publisher.leak();
    }
}
