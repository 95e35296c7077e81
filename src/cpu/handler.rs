//! The signal handler's body, and nothing else.

use std::sync::atomic::Ordering;

use super::choice::QUIET;
use super::interrupted::go_on_with;
use super::recorder::{Counters, Owner, Recorder};
use crate::label::mark_sampled;
use crate::restart::interrupted;
use crate::ring::{RecordWriter, Refused, Source};
use crate::slots::{Slot, Slots, is_before};
use crate::sys::arch::Registers;
use crate::sys::clock::Clock;
use crate::sys::perf_event::go_on;
use crate::sys::signal::{ErrnoGuard, Tick};
use crate::sys::thread::current_tid;

/// What a clock's signal carries: which thread the clock is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Cookie {
    /// The thread's serial number, never 0; of a timer of the whole process, the recording's
    /// number.
    pub(super) serial: u32,
    /// One more than the index of the thread's slot; 0 for a timer of the whole process.
    slot: u32,
}

impl Cookie {
    /// For the thread that has a slot under its serial number.
    pub(super) fn of_thread(serial: u32, slot: u32) -> Self {
        let slot = slot + 1;
        Self { serial, slot }
    }

    pub(super) fn of_process(recording: u32) -> Self {
        let serial = recording;
        Self { serial, slot: 0 }
    }

    pub(super) fn to_u64(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.slot)
    }

    pub(super) fn from_u64(value: u64) -> Self {
        Self {
            serial: (value >> 32) as u32,
            slot: value as u32,
        }
    }

    /// The thread's slot, as long as the thread has it under this number.
    fn slot(self, slots: &Slots) -> Option<&Slot> {
        let slot = slots.at(self.slot.checked_sub(1)?)?;
        (slot.serial() == self.serial).then_some(slot)
    }
}

/// Handles the signal of timers, and `SIGURG` where that is one of the recording's
/// signals. *Async-signal-safe.*
///
/// While nothing is recorded (before, after, or in a forked child) it does nothing.
pub(super) extern "C" fn on_signal(
    signal: libc::c_int,
    info: *const libc::siginfo_t,
    context: *const libc::c_void,
) {
    let _errno = ErrnoGuard::new();
    // SAFETY: the kernel passes both as `SA_SIGINFO` has it.
    let (tick, registers) =
        unsafe { (Tick::from_siginfo(info), Registers::from_ucontext(context)) };
    let ticked = Owner::get().and_then(|owner| record(owner, signal, tick, registers));
    // SAFETY: the context is the handler's.
    if let Some(call) = unsafe { interrupted(context) } {
        // SAFETY: the same context, of a handler that was installed with all signals blocked.
        unsafe { go_on_with(&call, context, registers, tick, ticked) };
    }
    if let Some((slot, pace)) = ticked.and_then(|ticked| ticked.slot.zip(ticked.pace)) {
        pace.end(slot);
    }
}

/// What a handler has found out about a tick of the recording's.
#[derive(Clone, Copy)]
pub(super) struct Ticked {
    pub(super) owner: &'static Owner,
    pub(super) recorder: &'static Recorder,
    pub(super) recording: u32,
    pub(super) source: Source,
    pub(super) slot: Option<&'static Slot>,
    /// When the handler began, where that says how long it takes.
    pace: Option<Pace>,
}

/// Records a tick, where something is recorded and the tick is of it: what has been found out then.
fn record(
    owner: &'static Owner,
    signal: libc::c_int,
    tick: Tick,
    registers: Registers,
) -> Option<Ticked> {
    let recording = owner.recording.load(Ordering::Acquire);
    if recording == 0 {
        return None;
    }
    let recorder = owner.recorder()?;
    let (source, cookie, weight) = match tick {
        Tick::Timer { cookie, overrun } => (
            Source::Clock,
            Some(Cookie::from_u64(cookie)),
            overrun.saturating_add(1),
        ),
        Tick::Descriptor { fd, .. } => match recorder.events.get(fd) {
            Some(cookie) => (Source::Clock, Some(cookie), 1),
            None => return foreign(recorder),
        },
        Tick::Look { cookie, .. } => (Source::Look, Some(Cookie::from_u64(cookie)), 1),
        // A program that sends the signal to itself asks for a sample.
        Tick::Sent if signal == recorder.signal.load(Ordering::Relaxed) => {
            (Source::Program, None, 1)
        }
        // The other signal means what it always does, to whom it means something.
        Tick::Sent | Tick::Other if signal == QUIET => return None,
        Tick::Sent | Tick::Other => return foreign(recorder),
    };
    if cookie.is_some_and(|cookie| is_before(cookie.serial, recording)) {
        return foreign(recorder);
    }
    let own = cookie.and_then(|cookie| Some((cookie.serial, cookie.slot(recorder.slots)?)));
    // A descriptor's number can mean another thread's event by the time that a signal is delivered
    // which was sent for an earlier one.
    let own = own
        .filter(|(_, slot)| !matches!(tick, Tick::Descriptor { .. }) || slot.is_of(current_tid()));
    if let (Tick::Descriptor { fd, has_stopped }, Some(_)) = (tick, own)
        && has_stopped
    {
        recorder.events.take_first(fd);
        go_on(fd, recorder.period_ns.load(Ordering::Relaxed));
    }
    let (serial, tid, slot) = match (own, tick) {
        (Some((serial, slot)), _) => (serial, 0, Some(slot)),
        // For a thread that had the id before.
        (None, Tick::Look { .. }) => return foreign(recorder),
        // The program, a timer of the whole process, or a clock that the thread does not have any
        // more.
        (None, _) => {
            let tid = current_tid();
            let slot = recorder.slots.find(tid);
            (slot.map_or(0, Slot::serial), tid, slot)
        }
    };
    let mut sample = Sample {
        recording,
        source,
        serial,
        tid,
        weight,
        slot,
    };
    let pace = match (source, slot) {
        (Source::Clock, Some(slot)) => {
            let pace = Pace::begin(recorder);
            weigh(slot, weight, &pace).map(|weight| {
                sample.weight = weight;
                sample.record(owner, recorder, registers);
                pace
            })
        }
        _ => {
            sample.record(owner, recorder, registers);
            None
        }
    };
    Some(Ticked {
        owner,
        recorder,
        recording,
        source,
        slot,
        pace,
    })
}

/// What a tick of the calling thread stands for, in periods, where it says `weight` itself; `None`
/// where it is to pass, or stands for nothing.
fn weigh(slot: &Slot, weight: u32, pace: &Pace) -> Option<u32> {
    // The slot's own thread alone comes here, and is not interrupted by another tick of its own.
    let to_pass = slot.to_pass.load(Ordering::Relaxed);
    let due_ns = slot.due_ns.load(Ordering::Relaxed);
    if due_ns == 0 {
        if weight <= to_pass {
            slot.to_pass.store(to_pass - weight, Ordering::Relaxed);
            slot.passed.fetch_add(weight, Ordering::Relaxed);
            return None;
        }
        slot.to_pass.store(0, Ordering::Relaxed);
        return Some(weight.saturating_add(slot.passed.swap(0, Ordering::Relaxed)));
    }
    let Some(now_ns) = pace.cpu_ns else {
        return Some(weight);
    };
    let periods = periods_due(due_ns, now_ns, pace.period_ns);
    if periods <= u64::from(to_pass) {
        return None;
    }
    slot.to_pass.store(0, Ordering::Relaxed);
    let next_ns = due_ns.wrapping_add(periods.wrapping_mul(pace.period_ns));
    slot.due_ns.store(next_ns.max(1), Ordering::Relaxed);
    Some(u32::try_from(periods).unwrap_or(u32::MAX))
}

/// How many periods have ended since the last tick, by the thread's CPU clock. The kernel keeps one
/// signal of all the ticks that fall into a long system call; and an event's clock stands still at
/// each context switch for longer than the CPU clock, and goes on while a hypervisor keeps the CPU
/// to itself.
fn periods_due(due_ns: u64, now_ns: u64, period_ns: u64) -> u64 {
    let late_ns = now_ns.wrapping_sub(due_ns).cast_signed();
    match u64::try_from(late_ns) {
        Ok(late_ns) => late_ns
            .checked_div(period_ns)
            .map_or(0, |periods| periods + 1),
        Err(_) => 0,
    }
}

/// Keeps the handler from taking a thread's time whole. A handler that takes longer than a period
/// (a slow filter of the program's, or cold caches at 10 kHz) finds the next tick waiting when it
/// returns, and the thread would never get on. So after one that took more than half a period, so
/// many periods pass that the thread has twice that time.
///
/// A single long handler shows no such thing: a hypervisor that fetches a page can stop it for tens
/// of milliseconds. Were all of its periods to pass at once, a thread that ends meanwhile would
/// lose as much time from its stacks. So few periods pass after the first, and twice as many after
/// each long one that follows upon a long one.
#[derive(Clone, Copy)]
struct Pace {
    period_ns: u64,
    /// When the handler began, by the thread's CPU clock.
    cpu_ns: Option<u64>,
    /// The same by a clock that costs less to read.
    begun_ns: Option<u64>,
}

/// Enough for a handler of 100 ms at 10 kHz.
const MOST_PERIODS_TO_PASS: u32 = 3000;
/// What passes at most after the first long handler: enough for one of a period and a half.
const FIRST_PERIODS_TO_PASS: u32 = 4;

impl Pace {
    fn begin(recorder: &Recorder) -> Self {
        Self {
            period_ns: recorder.period_ns.load(Ordering::Relaxed),
            cpu_ns: Clock::THREAD_CPU.now_ns().ok(),
            begun_ns: Clock::MONOTONIC.now_ns().ok(),
        }
    }

    fn end(self, slot: &Slot) {
        // What took long was kept from running for long, perhaps, which the thread is not to suffer
        // for.
        let took_ns = self
            .took_long(Clock::MONOTONIC, self.begun_ns)
            .and_then(|_| self.took_long(Clock::THREAD_CPU, self.cpu_ns));
        let Some(took_ns) = took_ns else {
            slot.most_to_pass.store(0, Ordering::Relaxed);
            return;
        };
        let most = slot.most_to_pass.load(Ordering::Relaxed);
        let most = (2 * most).clamp(FIRST_PERIODS_TO_PASS, MOST_PERIODS_TO_PASS);
        slot.most_to_pass.store(most, Ordering::Relaxed);
        // The next sample stands for the handler's own time, too.
        let periods = took_ns
            .saturating_mul(3)
            .checked_div(self.period_ns)
            .unwrap_or(0);
        let periods = u32::try_from(periods).unwrap_or(u32::MAX).min(most);
        slot.to_pass.store(periods, Ordering::Relaxed);
    }

    /// The time since the handler began, where that is more than half a period.
    fn took_long(&self, clock: Clock, begun_ns: Option<u64>) -> Option<u64> {
        let took_ns = clock.now_ns().ok()?.saturating_sub(begun_ns?);
        (took_ns > self.period_ns / 2).then_some(took_ns)
    }
}

/// Counts a signal that is no tick of the recording's.
fn foreign(recorder: &Recorder) -> Option<Ticked> {
    let counters = recorder.counters(0)?;
    counters.foreign.fetch_add(1, Ordering::Relaxed);
    None
}

/// One tick, before its stack is known.
struct Sample<'s> {
    recording: u32,
    source: Source,
    /// The thread's number, 0 where the recording does not know it.
    serial: u32,
    /// The thread's id, 0 where its clock's signal says who it is.
    tid: i32,
    weight: u32,
    slot: Option<&'s Slot>,
}

impl Sample<'_> {
    fn record(&self, owner: &Owner, recorder: &Recorder, registers: Registers) {
        let hint = match self.serial {
            0 => self.tid as u32,
            serial => serial,
        };
        // A look weighs nothing in itself, and is asked for again if it is lost.
        let weight = match self.source {
            Source::Clock | Source::Program => u64::from(self.weight),
            Source::Look => 0,
        };
        let Some(counters) = recorder.counters(hint) else {
            return;
        };
        if self.source == Source::Program {
            counters.sent.fetch_add(1, Ordering::Relaxed);
        }
        let words = RecordWriter::words(recorder.max_depth.load(Ordering::Relaxed));
        let epoch = recorder.capture.snapshot.epoch();
        let claim = recorder.capture.rack.claim(hint, epoch, words);
        if recorder.capture.rack.is_crowded() {
            recorder.capture.doorbell.wake_once();
        }
        let mut claim = match claim {
            Ok(claim) => claim,
            Err(refused) => {
                if refused == Refused::LaneFull {
                    recorder.capture.doorbell.wake_once();
                }
                self.put_off(recorder, counters, refused, weight);
                return;
            }
        };
        // A stop that began before the claim could be seen is seen here (the claim ends in a
        // fence), and one that begins later waits for it.
        if owner.recording.load(Ordering::Relaxed) != self.recording {
            return;
        }
        // Asked here and not before the claim, so that a stop waits for the filter, too.
        if !recorder.filter.keeps() {
            counters.filtered.fetch_add(weight, Ordering::Relaxed);
            // What a look stands for, only the one who asked for it knows.
            if let (Source::Look, Some(slot)) = (self.source, self.slot) {
                slot.filtered.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        // SAFETY: the claim carries the epoch that was read before it, and lives until the end of
        // this function.
        let snapshot = unsafe { recorder.capture.snapshot.get() };
        let (Some(snapshot), Some(bench)) = (snapshot, recorder.capture.bench(&claim)) else {
            self.put_off(recorder, counters, Refused::NoLane, weight);
            return;
        };
        let caught_up = self.catch_up(counters);
        let weight = weight + u64::from(caught_up);
        let writer = RecordWriter {
            source: self.source,
            weight: self.weight.saturating_add(caught_up),
            thread_serial: self.serial,
            tid: self.tid,
            epoch: snapshot.epoch(),
            labels: self.slot.map_or(0, mark_sampled),
        };
        // SAFETY: the claim is held; unwinding returns.
        unsafe {
            bench.work(|cache| {
                let is_urgent = claim.write(words, |space| {
                    writer.write(space, |frames| {
                        (recorder.capture).unwind(snapshot, registers, cache, frames)
                    })
                });
                match is_urgent {
                    Some(is_urgent) => {
                        counters.written.fetch_add(weight, Ordering::Relaxed);
                        if is_urgent {
                            recorder.capture.doorbell.wake_once();
                        }
                    }
                    // There was room when the lane was claimed, and only the holder of the claim
                    // uses it up.
                    None => self.put_off(recorder, counters, Refused::LaneFull, weight),
                }
            });
        }
    }

    /// The slot of a tick of the thread's clock.
    fn clocked(&self) -> Option<&Slot> {
        self.slot.filter(|_| self.source == Source::Clock)
    }

    /// Counts the tick as lost, of all threads and of its own, until the thread's next sample
    /// [catches up](Self::catch_up).
    fn put_off(&self, recorder: &Recorder, counters: &Counters, refused: Refused, weight: u64) {
        counters
            .refused(refused)
            .fetch_add(weight, Ordering::Relaxed);
        let Some(slot) = self.clocked() else { return };
        slot.lost.fetch_add(weight, Ordering::Relaxed);
        let before = slot.put_off.iter().map(|n| n.load(Ordering::Relaxed));
        let all = before.map(u64::from).sum::<u64>() + weight;
        let period_ns = recorder.period_ns.load(Ordering::Relaxed);
        if all.saturating_mul(period_ns) > MOST_PUT_OFF_NS.max(period_ns) {
            // Too long ago to be what the thread does next.
            for put_off in &slot.put_off {
                put_off.store(0, Ordering::Relaxed);
            }
        } else if let (Some(put_off), Ok(weight)) =
            (slot.put_off.get(refused as usize), u32::try_from(weight))
        {
            put_off.fetch_add(weight, Ordering::Relaxed);
        }
    }

    /// What the thread's last ticks stood for that found no place, which this sample stands for,
    /// too: by the thread's own clock they are neighbours.
    fn catch_up(&self, counters: &Counters) -> u32 {
        let Some(slot) = self.clocked() else { return 0 };
        let mut all = 0;
        for (put_off, refused) in slot.put_off.iter().zip(Refused::ALL) {
            let weight = put_off.load(Ordering::Relaxed);
            if weight > 0 {
                put_off.store(0, Ordering::Relaxed);
                let lost = u64::from(weight);
                counters.refused(refused).fetch_sub(lost, Ordering::Relaxed);
                slot.lost.fetch_sub(lost, Ordering::Relaxed);
                all += weight;
            }
        }
        all
    }
}

/// CPU time of a thread that found no place for which its next sample stands, too, at most: some
/// slices of the scheduler. One tick is put off at any rate.
const MOST_PUT_OFF_NS: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cpu::births::{Purpose, random_part};
    use crate::cpu::choice::SIGNAL;
    use crate::cpu::{Engine, Profiler};
    use crate::process;
    use crate::profile::LabelValue;
    use crate::ring::MOST_LANES;
    use crate::slots::next_number;
    use crate::sys::signal::{forged, look_at};

    #[test]
    fn ticks_stand_for_the_periods_that_have_ended() {
        let due = |now| periods_due(1000, now, 100);
        assert_eq!([due(0), due(999)], [0, 0]);
        assert_eq!([due(1000), due(1099), due(1100)], [1, 1, 2]);
        assert_eq!(due(2000), 11);
        // Of a thread that began less than a period ago.
        let before = |now| periods_due(0u64.wrapping_sub(70), now, 100);
        assert_eq!([before(20), before(29), before(30)], [1, 1, 2]);
        assert_eq!(periods_due(1000, 5000, 0), 0);
    }

    #[test]
    fn as_many_periods_pass_as_the_thread_is_owed() {
        let slots = Slots::get_or_make().unwrap();
        // The last one, which nobody has.
        let slot = (0..).map_while(|i| slots.at(i)).last().unwrap();
        let pace = Pace {
            period_ns: 100,
            cpu_ns: None,
            begun_ns: None,
        };
        let weigh = |weight| weigh(slot, weight, &pace);
        slot.to_pass.store(3, Ordering::Relaxed);
        let each_of_one: Vec<_> = (0..5).map(|_| weigh(1)).collect();
        assert_eq!(each_of_one, [None, None, None, Some(4), Some(1)]);
        // A scheduler's tick at 10 kHz is 40 periods, and more where it seldom falls on the thread.
        slot.to_pass.store(90, Ordering::Relaxed);
        let each_of_many = [40, 40, 400, 40].map(weigh);
        assert_eq!(each_of_many, [None, None, Some(480), Some(40)]);
        // An event's ticks stand for the periods that have ended, one for many of them or not.
        slot.due_ns.store(1000, Ordering::Relaxed);
        slot.to_pass.store(3, Ordering::Relaxed);
        let at = |now_ns| Pace {
            cpu_ns: Some(now_ns),
            ..pace
        };
        let each_of_event = [900, 1050, 1250, 1450, 1500].map(|ns| super::weigh(slot, 1, &at(ns)));
        assert_eq!(each_of_event, [None, None, None, Some(5), Some(1)]);
        slot.due_ns.store(0, Ordering::Relaxed);
    }

    #[test]
    fn a_single_long_handler_lets_few_periods_pass() {
        let slots = Slots::get_or_make().unwrap();
        let slot = (0..).map_while(|i| slots.at(i)).last().unwrap();
        let end = |cpu_ns: u64, period_ns| {
            let pace = Pace {
                period_ns,
                cpu_ns: Some(cpu_ns),
                begun_ns: Some(0),
            };
            pace.end(slot);
            slot.to_pass.load(Ordering::Relaxed)
        };
        let long = || end(0, 1);
        let short = || end(u64::MAX, 1);
        assert_eq!([long(), long(), long()], [4, 8, 16]);
        short();
        assert_eq!(long(), 4);
        let after_many: Vec<_> = (0..20).map(|_| long()).collect();
        assert_eq!(after_many[19], MOST_PERIODS_TO_PASS);
        short();
        slot.to_pass.store(0, Ordering::Relaxed);
        short();
    }

    /// A recording at 1 Hz, in which this thread's first true tick comes after half a second of its
    /// CPU time: after the test, which uses some milliseconds.
    fn start() -> crate::cpu::Recording {
        let mut tries = 0..100;
        loop {
            let profiler = Profiler::new().engine(Engine::ThreadTimer);
            #[cfg(feature = "symbolize")]
            let profiler = profiler.symbolize(false);
            let recording = profiler.frequency_hz(1).start().unwrap();
            // A random part of the period, so half of all recordings will do.
            let phase = random_part(Duration::from_secs(1), cookies().0.serial, Purpose::Phase);
            if phase > Duration::from_millis(500) {
                return recording;
            }
            recording.stop().unwrap();
            tries.next().expect("the phase is not random");
        }
    }

    /// What the present recording's clocks of this thread, and of the process, carry.
    fn cookies() -> (Cookie, Cookie) {
        let owner = Owner::get().unwrap();
        let slots = owner.recorder().unwrap().slots;
        let slot = slots.find(current_tid()).unwrap();
        let index = (0..).find(|&i| std::ptr::eq(slots.at(i).unwrap(), slot));
        let recording = owner.recording.load(Ordering::Relaxed);
        (
            Cookie::of_thread(slot.serial(), index.unwrap()),
            Cookie::of_process(recording),
        )
    }

    #[test]
    fn a_tick_is_of_the_thread_that_its_clock_was_made_for() {
        process::succeed(&mut process::child(
            "cpu::handler::tests::child_of_forged_ticks",
        ));
    }

    /// Signals as clocks send them, some of clocks that do not exist any more.
    #[test]
    #[ignore = "a child process"]
    fn child_of_forged_ticks() {
        let earlier = start();
        let (earlier_own, earlier_process) = cookies();
        earlier.stop().unwrap();
        drop(earlier);

        let recording = start();
        let (own, process) = cookies();
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            tell.send(cookies().0).unwrap();
            let _ = ended.recv();
        });
        let others = told.recv().unwrap();
        // A clock that this thread had before its present one, and the slot of which is another's
        // by now.
        let gone = Cookie {
            serial: next_number(),
            ..others
        };

        let (tid, mut ticks, mut foreign) = (current_tid(), 0, 0);
        let mut expect = |what: &str, [more_ticks, more_foreign]: [u64; 2]| {
            ticks += more_ticks;
            foreign += more_foreign;
            let stats = recording.stats();
            assert_eq!(
                (stats.ticks, stats.foreign_signals),
                (ticks, foreign),
                "{what}"
            );
        };
        let timer = |cookie: Cookie| forged::timer(tid, SIGNAL, cookie.to_u64()).unwrap();
        timer(own);
        expect("its own", [1, 0]);
        timer(gone);
        expect("of a clock that is gone", [1, 0]);
        timer(process);
        expect("of the process", [1, 0]);
        timer(earlier_own);
        expect("of an earlier recording", [0, 1]);
        timer(earlier_process);
        expect("of the process in an earlier recording", [0, 1]);

        let events = &Owner::get().unwrap().recorder().unwrap().events;
        let fd = crate::sys::perf_event::DESCRIPTORS as i32 - 1;
        let descriptor = || forged::descriptor(tid, SIGNAL, fd).unwrap();
        descriptor();
        expect("of a descriptor that is no event", [0, 1]);
        events.set(fd, own);
        descriptor();
        expect("of its event", [1, 0]);
        assert!(!events.take_first(fd), "the handler has had it go on");
        events.set(fd, others);
        descriptor();
        expect("of an event whose descriptor is another's by now", [1, 0]);
        assert!(events.take_first(fd), "that is the other's");
        events.set(fd, earlier_own);
        descriptor();
        expect("of an event of an earlier recording", [0, 1]);

        drop(end);
        other.join().unwrap();
        let profile = recording.stop().unwrap();
        let mine = profile.samples().filter(|sample| {
            sample.labels.iter().any(|label| {
                profile.string(label.key) == "thread_id"
                    && matches!(label.value, LabelValue::Num { value, .. } if value == i64::from(tid))
            })
        });
        let mine: i64 = mine.map(|sample| sample.values[0]).sum();
        assert_eq!(mine, ticks as i64, "all of them are this thread's");
    }

    #[test]
    fn ticks_that_find_no_lane_are_in_the_next_sample() {
        process::succeed(&mut process::child(
            "cpu::handler::tests::child_that_finds_no_lane",
        ));
    }

    #[test]
    #[ignore = "a child process"]
    fn child_that_finds_no_lane() {
        let recording = start();
        let recorder = Owner::get().unwrap().recorder().unwrap();
        let tick = |times| {
            for _ in 0..times {
                forged::timer(current_tid(), SIGNAL, cookies().0.to_u64()).unwrap();
            }
            // Counts what is in the lanes.
            recording.snapshot().unwrap();
            let stats = recording.stats();
            (stats.samples, stats.lost.no_lane)
        };
        // As many threads would that have lost their CPUs: the flusher opens more lanes as long as
        // there are more.
        let take_all_lanes = || {
            let mut claims = Vec::new();
            while claims.len() < MOST_LANES {
                match recorder
                    .capture
                    .rack
                    .claim(0, recorder.capture.snapshot.epoch(), 1)
                {
                    Ok(claim) => claims.push(claim),
                    Err(refused) => {
                        assert_eq!(refused, Refused::NoLane);
                        recorder.capture.doorbell.wake_once();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }
            claims
        };
        // As at 20 Hz: two ticks are put off.
        recorder.period_ns.store(50_000_000, Ordering::Relaxed);
        let claims = take_all_lanes();
        assert_eq!(tick(2), (0, 2));
        drop(claims);
        assert_eq!(tick(1), (3, 0));
        assert_eq!(tick(1), (4, 0));
        // What is long ago stays lost.
        let claims = take_all_lanes();
        assert_eq!(tick(3 + 1), (4, 3 + 1));
        drop(claims);
        assert_eq!(tick(1), (6, 3));
        let profile = recording.stop().unwrap();
        let sampled: i64 = profile.samples().map(|sample| sample.values[0]).sum();
        assert_eq!(sampled, 6 + 3, "[lost] has the rest");
    }

    #[test]
    fn a_look_at_a_thread_that_had_this_id_before_is_foreign() {
        process::succeed(&mut process::child(
            "cpu::handler::tests::child_that_is_looked_at",
        ));
    }

    #[test]
    #[ignore = "a child process"]
    fn child_that_is_looked_at() {
        let recording = start();
        let gone = Cookie {
            serial: next_number(),
            ..cookies().0
        };
        look_at(current_tid(), SIGNAL, gone.to_u64(), None).unwrap();
        let stats = recording.stats();
        assert_eq!((stats.ticks, stats.foreign_signals), (0, 1));
    }

    #[test]
    fn a_cookie_survives_the_kernel() {
        let cookie = Cookie::of_thread(u32::MAX, 7);
        assert_eq!(Cookie::from_u64(cookie.to_u64()), cookie);
    }
}
