//! The process's threads while it is recorded: discover, arm, retire.
#![forbid(unsafe_code)]

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};

use super::arming::{Armed, Arming, Choice, Refusal, ThreadClock};
use super::births::{self, Born, Ended, Event};
use super::recorder::Recorder;
use crate::aggregate::ThreadLabels;
use crate::slots::User;
use crate::sys::clock::Clock;
use crate::sys::thread::{Identity, NewestId, TaskDir, identity};

/// Known threads that one scan looks at again, for their names and whether they are still the same, at 11 µs each: enough to see
/// 400 threads a second, and with more threads each of them less often.
const LOOKS_PER_SCAN: usize = 4;
/// With many threads the looks grow, to this: 1.8 % of a CPU.
const MOST_LOOKS_PER_SCAN: usize = 16;
/// Threads whose name nobody has read yet have precedence.
const FIRST_LOOKS_PER_SCAN: usize = 1024;

/// When a new thread is looked at again: it often names itself only after it has begun.
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// The longest time between two looks at a thread, where there are not more than a hundred.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// The longest time between two scans that list all threads. Between, a scan lists them only if one may have begun; where it
/// cannot tell (a container that makes up `/proc/loadavg`), new threads wait for this.
const FULL_SCAN: Duration = Duration::from_millis(100);

/// CPU time after which a thread that a scan finds is taken to be one that does not arm itself: one that does has done so
/// after a tenth of it.
const ARMS_ITSELF_WITHIN_NS: u64 = 500_000;

/// CPU time without a tick after which a thread that blocks the signal is told of. Threads that end block it, too, but for less.
const BLOCKS_AFTER_NS: u64 = 20_000_000;

/// All threads of the process but the profiler's own, each under a serial number that is never used twice.
#[derive(Debug)]
pub(super) struct Threads {
    recorder: &'static Recorder,
    dir: TaskDir,
    newest_id: NewestId,
    next_full_scan: Instant,
    arming: Arming,
    /// New threads run code of ours before their own.
    is_hooked: bool,
    /// The profiler's own thread, which is not sampled.
    own: Option<i32>,
    live: HashMap<i32, Live>,
    /// By serial number: the live ones, and the gone ones that were sampled.
    known: HashMap<u32, Thread>,
    /// Threads that are gone and were never sampled, taken together.
    unseen: Account,
    /// Serial numbers of those that are gone and were not sampled so far: records of theirs may still lie in the lanes.
    fading: Vec<u32>,
    refusals: HashMap<Refusal, u64>,
    armed: u64,
    armed_by_perf: u64,
    tids: Vec<i32>,
    /// Room to be exchanged for what threads have told.
    events: Vec<Event>,
    /// Ids that the last scan saw for the first time, where threads arm themselves.
    newcomers: HashSet<i32>,
    /// Ids of threads that have said that they end, and that the system may list for a little longer.
    leaving: HashSet<i32>,
    /// Threads that have come and gone, where somebody wants to know.
    changes: Option<Vec<Change>>,
}

/// A thread has come or gone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Came {
        serial: u32,
        tid: i32,
        slot: u32,
        at: Instant,
    },
    Went {
        serial: u32,
        at: Instant,
        /// What its CPU clock said in the end, where that is known.
        cpu_ns: Option<u64>,
    },
}

/// A thread that runs, as far as is known.
#[derive(Debug)]
struct Live {
    serial: u32,
    slot: u32,
    since: Instant,
    start_time: Option<u64>,
    clock: Option<ThreadClock>,
    /// Why it has no clock.
    refusal: Option<Refusal>,
    next_look: Instant,
    look_after: Duration,
    /// Ticks it had, and CPU time it had used, at the last look.
    last_look: (u64, u64),
}

/// What is kept of a thread.
#[derive(Debug)]
pub(super) struct Thread {
    labels: ThreadLabels,
    pub(super) account: Account,
    is_sampled: bool,
    /// It blocks the signal, so that its ticks wait.
    is_blocking: bool,
}

/// CPU time of a thread, by its clock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Account {
    /// Before it was armed, and while it could not be.
    pub(super) unarmed_ns: u64,
    /// On its clock when it was armed.
    armed_at_ns: u64,
    /// On its clock when it was last looked at.
    seen_at_ns: u64,
    /// Periods in its samples.
    pub(super) ticks: u64,
    /// Periods whose samples were lost.
    pub(super) lost: u64,
    /// It has no clock of its own.
    is_unarmed: bool,
}

impl Account {
    /// CPU time since it was armed, as far as its clock was read.
    pub(super) fn armed_ns(&self) -> u64 {
        match self.is_unarmed {
            true => 0,
            false => self.seen_at_ns.saturating_sub(self.armed_at_ns),
        }
    }

    #[cfg(test)]
    pub(super) fn armed_from_zero(armed_ns: u64, unarmed_ns: u64, ticks: u64, lost: u64) -> Self {
        Self {
            seen_at_ns: armed_ns,
            unarmed_ns,
            ticks,
            lost,
            ..Self::default()
        }
    }

    fn see(&mut self, cpu_ns: u64) {
        if self.is_unarmed {
            self.unarmed_ns += cpu_ns.saturating_sub(self.seen_at_ns);
        }
        self.seen_at_ns = self.seen_at_ns.max(cpu_ns);
    }
}

impl Threads {
    pub(super) fn new(recorder: &'static Recorder, arming: Arming) -> io::Result<Self> {
        Ok(Self {
            recorder,
            dir: TaskDir::open()?,
            newest_id: NewestId::default(),
            next_full_scan: Instant::now(),
            arming,
            is_hooked: false,
            own: None,
            live: HashMap::new(),
            known: HashMap::new(),
            unseen: Account::default(),
            fading: Vec::new(),
            refusals: HashMap::new(),
            armed: 0,
            armed_by_perf: 0,
            tids: Vec::new(),
            events: births::room(),
            newcomers: HashSet::new(),
            leaving: HashSet::new(),
            changes: None,
        })
    }

    /// Leaves the profiler's own thread alone. Called before the first scan.
    pub(super) fn leave_alone(&mut self, tid: i32) {
        self.own = Some(tid);
    }

    /// The profiler's own thread.
    pub(super) fn own(&self) -> Option<i32> {
        self.own
    }

    /// From now on [`take_changes`](Self::take_changes) says which threads come and go. Called before the first scan.
    pub(super) fn note_changes(&mut self) {
        self.changes = Some(Vec::new());
    }

    /// The threads that have come and gone since the last call, as far as they were heard of.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        self.changes
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// From now on threads that begin arm themselves.
    pub(super) fn expect_births(&mut self) {
        self.is_hooked = true;
    }

    pub(super) fn is_hooked(&self) -> bool {
        self.is_hooked
    }

    /// Arms the threads that run when the recording starts.
    pub(super) fn arm_all(&mut self) -> io::Result<()> {
        self.newest_id.has_moved();
        let mut tids = std::mem::take(&mut self.tids);
        let listed = self.dir.list(&mut tids);
        for &tid in &tids {
            if Some(tid) != self.own {
                self.discover(tid, true);
            }
        }
        self.tids = tids;
        listed
    }

    /// Arms the threads that are new and retires those that are gone.
    pub(super) fn scan(&mut self) -> io::Result<()> {
        self.hear();
        self.look_again();
        let now = Instant::now();
        // Asked first: a thread that begins after the question is seen by the next one.
        let has_moved = self.newest_id.has_moved();
        if !has_moved && self.newcomers.is_empty() && now < self.next_full_scan {
            return Ok(());
        }
        self.next_full_scan = now + FULL_SCAN;
        let mut tids = std::mem::take(&mut self.tids);
        let listed = self.dir.list(&mut tids);
        // Whoever is listed and has armed itself is known from here on.
        self.hear();
        if listed.is_ok() {
            let mut waiting = HashSet::new();
            for &tid in &tids {
                if Some(tid) == self.own
                    || self.live.contains_key(&tid)
                    || self.leaving.contains(&tid)
                {
                    continue;
                }
                if self.is_hooked && self.may_arm_itself(tid) {
                    waiting.insert(tid);
                } else {
                    self.discover(tid, false);
                }
            }
            self.newcomers = waiting;
            self.leaving.retain(|tid| tids.binary_search(tid).is_ok());
            if self.live.len() + usize::from(self.own.is_some()) > tids.len() {
                let gone: Vec<i32> = self
                    .live
                    .keys()
                    .copied()
                    .filter(|tid| tids.binary_search(tid).is_err())
                    .collect();
                gone.into_iter().for_each(|tid| self.retire(tid, None, now));
            }
        }
        self.tids = tids;
        listed
    }

    /// Whether a thread that was just found may be about to arm itself: two clocks would count its time twice.
    fn may_arm_itself(&self, tid: i32) -> bool {
        let cpu = Clock::thread_cpu(tid).now_ns().unwrap_or(0);
        !self.newcomers.contains(&tid) || cpu < ARMS_ITSELF_WITHIN_NS
    }

    /// Takes note of the threads that have begun or ended by themselves.
    pub(super) fn hear(&mut self) {
        let room = std::mem::take(&mut self.events);
        let mut events = self.recorder.births.take(room);
        for event in events.drain(..) {
            match event {
                Event::Born(born) => self.admit(born),
                Event::Ended(ended) => self.bury(&ended),
            }
        }
        self.events = events;
    }

    fn admit(&mut self, born: Born) {
        // Whoever had the id is gone, or it was armed from here meanwhile.
        self.retire(born.tid, None, born.at);
        self.newcomers.remove(&born.tid);
        self.leaving.remove(&born.tid);
        let account = Account {
            unarmed_ns: born.cpu_ns,
            armed_at_ns: born.cpu_ns,
            seen_at_ns: born.cpu_ns,
            ..Account::default()
        };
        self.enlist(born.tid, born.serial, born.slot, born.armed, account, None);
        self.note_came(born.tid, born.at);
    }

    fn bury(&mut self, ended: &Ended) {
        if let Some(thread) = self.known.get_mut(&ended.serial) {
            thread.account.see(ended.cpu_ns);
            let len = ended.name.iter().position(|&b| b == 0);
            let name = &ended.name[..len.unwrap_or(ended.name.len())];
            thread.labels.name = String::from_utf8_lossy(name).into_owned();
        }
        if self
            .live
            .get(&ended.tid)
            .is_some_and(|live| live.serial == ended.serial)
        {
            self.retire(ended.tid, Some(ended.cpu_ns), ended.at);
            self.leaving.insert(ended.tid);
        }
    }

    /// A thread that was found. What it did before the recording started is not the recording's.
    fn discover(&mut self, tid: i32, was_before: bool) {
        let Ok(cpu_ns) = Clock::thread_cpu(tid).now_ns() else {
            return;
        };
        // Names of those that run at the start are read a little later, so that the start takes less time.
        let identity = match was_before {
            true => None,
            false => match identity(tid) {
                Some(identity) => Some(identity),
                None => return,
            },
        };
        let slots = self.recorder.slots;
        if let Some(stale) = slots.find(tid)
            && stale.serial.load(Ordering::Relaxed) != 0
        {
            // Of a thread that had the id before.
            stale.release(User::Recording);
        }
        let Some((slot, taken)) = slots.claim(tid, User::Recording) else {
            return;
        };
        let serial = self.recorder.births.next_serial();
        taken.begin(serial);
        let armed = births::arm(&self.arming, self.recorder, tid, slot, serial);
        let account = Account {
            unarmed_ns: if was_before { 0 } else { cpu_ns },
            armed_at_ns: cpu_ns,
            seen_at_ns: cpu_ns,
            ..Account::default()
        };
        self.enlist(tid, serial, slot, armed, account, identity);
        self.note_came(tid, Instant::now());
    }

    /// Says that a thread has come, if it has not gone at once.
    fn note_came(&mut self, tid: i32, at: Instant) {
        if let (Some(live), Some(changes)) = (self.live.get_mut(&tid), &mut self.changes) {
            live.since = at;
            changes.push(Change::Came {
                serial: live.serial,
                tid,
                slot: live.slot,
                at,
            });
        }
    }

    fn enlist(
        &mut self,
        tid: i32,
        serial: u32,
        slot: u32,
        armed: Armed,
        mut account: Account,
        identity: Option<Identity>,
    ) {
        let Armed {
            clock,
            refused,
            is_gone,
        } = armed;
        if is_gone {
            self.recorder.slots.at(slot).into_iter().for_each(|slot| {
                slot.serial.store(0, Ordering::Relaxed);
                slot.release(User::Recording);
            });
            self.unseen.unarmed_ns += account.unarmed_ns;
            return;
        }
        match &clock {
            Some(ThreadClock::PerfEvent(_)) => {
                self.armed += 1;
                self.armed_by_perf += 1;
            }
            Some(ThreadClock::Timer(_)) => self.armed += 1,
            None => account.is_unarmed = self.arming.choice != Choice::Nothing,
        }
        for refusal in refused.into_iter().flatten() {
            *self.refusals.entry(refusal).or_default() += 1;
        }
        let refusal = match clock {
            Some(_) => None,
            None => refused.into_iter().flatten().last(),
        };
        let look_after = match identity {
            Some(_) => FIRST_LOOK,
            None => Duration::ZERO,
        };
        let (start_time, name) = match identity {
            Some(identity) => (Some(identity.start_time), identity.name),
            None => (None, String::new()),
        };
        let cpu_ns = account.seen_at_ns;
        self.known.insert(
            serial,
            Thread {
                labels: ThreadLabels { name, tid },
                account,
                is_sampled: false,
                is_blocking: false,
            },
        );
        self.live.insert(
            tid,
            Live {
                serial,
                slot,
                since: Instant::now(),
                start_time,
                clock,
                refusal,
                next_look: Instant::now() + look_after,
                look_after: FIRST_LOOK,
                last_look: (0, cpu_ns),
            },
        );
    }

    /// A thread is gone since `at`, or another one by now. `cpu_ns` is what it used, where that is known.
    fn retire(&mut self, tid: i32, cpu_ns: Option<u64>, at: Instant) {
        let Some(gone) = self.live.remove(&tid) else {
            return;
        };
        let mut is_kept = false;
        if let Some(changes) = &mut self.changes {
            changes.push(Change::Went {
                serial: gone.serial,
                at,
                cpu_ns,
            });
            // By elapsed time every thread has its part; only those of less than a period share one name.
            is_kept = at.saturating_duration_since(gone.since) >= self.arming.rate.period;
        }
        let Some(thread) = self.known.get_mut(&gone.serial) else {
            return;
        };
        if let Some(cpu_ns) = cpu_ns {
            thread.account.see(cpu_ns);
        }
        if let Some(slot) = self.recorder.slots.at(gone.slot)
            && slot.serial.load(Ordering::Relaxed) == gone.serial
        {
            thread.account.lost = slot.lost.load(Ordering::Relaxed);
            slot.serial.store(0, Ordering::Relaxed);
            slot.release(User::Recording);
        }
        if !thread.is_sampled && !thread.is_blocking && !is_kept {
            self.fading.push(gone.serial);
        }
        self.stop_clock(gone.slot, gone.clock);
    }

    /// Before the lanes are emptied: the threads to [`forget`](Self::forget) after that, unless they turn up in them.
    pub(super) fn take_fading(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.fading)
    }

    /// Keeps of threads that were never sampled only what they add up to.
    pub(super) fn forget(&mut self, faded: Vec<u32>) {
        for serial in faded {
            if let Some(thread) = self.known.get(&serial)
                && !thread.is_sampled
            {
                self.unseen.unarmed_ns += thread.account.unarmed_ns;
                self.unseen.lost += thread.account.lost;
                self.known.remove(&serial);
            }
        }
    }

    fn stop_clock(&self, slot: u32, clock: Option<ThreadClock>) {
        let Some(clock) = clock else { return };
        if let ThreadClock::PerfEvent(event) = &clock {
            let cookie = self.arming.cookie(slot);
            self.recorder.events.clear(event.fd(), cookie);
        }
        self.recorder.births.budget.give_back(&clock);
    }

    /// Looks again at a few threads that are due: names change, and an id can be another thread's by now.
    fn look_again(&mut self) {
        let now = Instant::now();
        let looks = (self.live.len() / 100).clamp(LOOKS_PER_SCAN, MOST_LOOKS_PER_SCAN);
        let mut due: Vec<(bool, Instant, i32)> = self
            .live
            .iter()
            .filter(|(_, live)| live.next_look <= now)
            .map(|(&tid, live)| (live.start_time.is_some(), live.next_look, tid))
            .collect();
        // Those without a name, and those that have waited longest, so that each has its turn.
        due.sort_unstable();
        let nameless = due.partition_point(|(is_named, ..)| !is_named);
        let looks = looks.max(nameless.min(FIRST_LOOKS_PER_SCAN));
        for (_, _, tid) in due.into_iter().take(looks) {
            self.look_at(tid);
        }
    }

    fn look_at(&mut self, tid: i32) {
        // With many threads each is looked at less often, so that all of them together are not looked at more often.
        let last_look = LAST_LOOK.max(Duration::from_millis(10) * self.live.len() as u32);
        let (Some(live), Some(seen)) = (self.live.get_mut(&tid), identity(tid)) else {
            return;
        };
        let is_other = live
            .start_time
            .is_some_and(|start| start != seen.start_time);
        let is_closed =
            matches!(&live.clock, Some(ThreadClock::PerfEvent(event)) if !event.is_open());
        if is_other || is_closed || live.refusal.is_some() {
            // An event that the program closed, and a clock that was refused, are asked for again.
            self.rearm(tid, is_other);
            return;
        }
        live.start_time = Some(seen.start_time);
        live.next_look = Instant::now() + live.look_after;
        live.look_after = (live.look_after * 4).min(last_look);
        let Some(thread) = self.known.get_mut(&live.serial) else {
            return;
        };
        if let Ok(cpu_ns) = Clock::thread_cpu(tid).now_ns() {
            thread.account.see(cpu_ns);
            // CPU time without a tick, and the signal blocked: the one explains the other.
            let (ticks, cpu_before_ns) = live.last_look;
            let used_ns = cpu_ns.saturating_sub(cpu_before_ns);
            let signal = match live.clock {
                Some(ThreadClock::PerfEvent(_)) => self.arming.quiet,
                _ => self.arming.signal,
            };
            if thread.account.ticks != ticks || !seen.blocks(signal) {
                live.last_look = (thread.account.ticks, cpu_ns);
            } else if used_ns > BLOCKS_AFTER_NS.max(2 * self.arming.rate.period_ns()) {
                thread.is_blocking = true;
            }
        }
        thread.labels.name = seen.name;
    }

    fn rearm(&mut self, tid: i32, is_other: bool) {
        let Some(live) = self.live.get(&tid) else {
            return;
        };
        if let (Some(refusal), false) = (live.refusal, is_other)
            && let Some(count) = self.refusals.get_mut(&refusal)
        {
            *count = count.saturating_sub(1);
        }
        let cpu_ns = Clock::thread_cpu(tid).now_ns().ok();
        let cpu_ns = if is_other { None } else { cpu_ns };
        self.retire(tid, cpu_ns, Instant::now());
        self.discover(tid, !is_other);
    }

    /// Reads the names and the clocks of the live threads, as they are now.
    pub(super) fn refresh(&mut self) {
        let Self { live, known, .. } = self;
        let mut sampled = Vec::new();
        for (&tid, live) in live.iter() {
            let Some(thread) = known.get_mut(&live.serial) else {
                continue;
            };
            if let Ok(cpu_ns) = Clock::thread_cpu(tid).now_ns() {
                thread.account.see(cpu_ns);
            }
            if thread.is_sampled || thread.labels.name.is_empty() {
                sampled.push(tid);
            }
        }
        sampled.into_iter().for_each(|tid| self.look_at(tid));
    }

    /// The serial number that a sample is counted under: that of its own clock's thread, or of the live thread of an id.
    /// `ticks` are the periods of the thread's own clock that it stands for.
    pub(super) fn serial_of(&mut self, serial: u32, tid: i32, ticks: u64) -> u32 {
        let serial = match serial {
            0 => self.serial_of_tid(tid),
            serial => serial,
        };
        // A thread that armed itself a moment ago can have been sampled before it was heard of.
        if !self.known.contains_key(&serial) {
            self.hear();
        }
        if let Some(thread) = self.known.get_mut(&serial) {
            thread.is_sampled = true;
            thread.account.ticks += ticks;
        }
        serial
    }

    fn serial_of_tid(&mut self, tid: i32) -> u32 {
        if let Some(live) = self.live.get(&tid) {
            return live.serial;
        }
        // Sent by a thread that began after the last scan, and that may be gone already.
        let serial = self.recorder.births.next_serial();
        let identity = identity(tid);
        let Some((slot, taken)) = self.recorder.slots.claim(tid, User::Recording) else {
            return serial;
        };
        taken.begin(serial);
        let cpu_ns = Clock::thread_cpu(tid).now_ns().unwrap_or(0);
        let account = Account {
            unarmed_ns: cpu_ns,
            armed_at_ns: cpu_ns,
            seen_at_ns: cpu_ns,
            ..Account::default()
        };
        let armed = match identity {
            Some(_) => births::arm(&self.arming, self.recorder, tid, slot, serial),
            None => Armed::default(),
        };
        self.enlist(tid, serial, slot, armed, account, identity);
        self.note_came(tid, Instant::now());
        serial
    }

    /// Whether a thread of this id was found and is alive.
    pub(super) fn knows(&self, tid: i32) -> bool {
        self.live.contains_key(&tid)
    }

    /// Samples of a thread may come, so its name is kept.
    pub(super) fn expect_sample(&mut self, serial: u32) {
        if let Some(thread) = self.known.get_mut(&serial) {
            thread.is_sampled = true;
        }
    }

    /// A thread blocks the signal that it was to be sent.
    pub(super) fn note_blocking(&mut self, serial: u32) {
        if let Some(thread) = self.known.get_mut(&serial) {
            thread.is_blocking = true;
        }
    }

    /// What the samples of a serial number are labelled with.
    pub(super) fn labels(&self, serial: u32) -> Option<ThreadLabels> {
        Some(self.known.get(&serial)?.labels.clone())
    }

    /// The accounts of the threads that are known, and of all others together.
    pub(super) fn accounts(&self) -> (impl Iterator<Item = (u32, Account)>, Account) {
        let lost: HashMap<u32, u64> = self
            .live
            .values()
            .filter_map(|live| {
                let slot = self.recorder.slots.at(live.slot)?;
                (slot.serial.load(Ordering::Relaxed) == live.serial)
                    .then(|| (live.serial, slot.lost.load(Ordering::Relaxed)))
            })
            .collect();
        let accounts = self.known.iter().map(move |(&serial, thread)| {
            let mut account = thread.account;
            account.lost = lost.get(&serial).copied().unwrap_or(account.lost);
            (serial, account)
        });
        (accounts, self.unseen)
    }

    /// Threads that were armed so far.
    pub(super) fn armed(&self) -> u64 {
        self.armed
    }

    /// Threads that were armed with a perf event.
    pub(super) fn armed_by_perf(&self) -> u64 {
        self.armed_by_perf
    }

    /// Threads that have no clock because the system refused every one.
    pub(super) fn refused(&self) -> u64 {
        let refused = self.live.values().filter(|live| live.refusal.is_some());
        refused.count() as u64
    }

    /// What the system refused to how many threads.
    pub(super) fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> {
        self.refusals
            .iter()
            .map(|(&refusal, &threads)| (refusal, threads))
    }

    /// Threads that used CPU time while they blocked the signal.
    pub(super) fn blocking(&self) -> Vec<String> {
        let blocking = self.known.values().filter(|thread| thread.is_blocking);
        let mut names: Vec<String> = blocking
            .map(|thread| format!("{} ({})", thread.labels.name, thread.labels.tid))
            .collect();
        names.sort();
        names
    }

    /// Deletes all clocks for one that the process has: no thread is armed, or left out, any more.
    pub(super) fn leave_to_process_timer(&mut self) {
        self.stop_clocks();
        self.arming.choice = Choice::Nothing;
        self.recorder.births.change(self.arming);
        for live in self.live.values_mut() {
            live.refusal = None;
            if let Some(thread) = self.known.get_mut(&live.serial) {
                thread.account.is_unarmed = false;
            }
        }
        self.armed = 0;
        self.armed_by_perf = 0;
    }

    /// How threads are armed.
    pub(super) fn arming(&self) -> Arming {
        self.arming
    }

    fn stop_clocks(&mut self) {
        let clocks: Vec<_> = self
            .live
            .values_mut()
            .map(|live| (live.slot, live.clock.take()))
            .collect();
        clocks
            .into_iter()
            .for_each(|(slot, clock)| self.stop_clock(slot, clock));
    }

    /// Deletes all clocks, and makes no more.
    pub(super) fn disarm(&mut self) {
        self.hear();
        self.recorder.births.forget();
        self.stop_clocks();
        self.arming.choice = Choice::Nothing;
    }

    /// Gives threads timers in place of perf events, whose signal is somebody else's by now.
    pub(super) fn give_up_events(&mut self) {
        self.arming.choice = Choice::ThreadTimer;
        self.recorder.births.change(self.arming);
        self.hear();
        let has_event = |live: &Live| matches!(live.clock, Some(ThreadClock::PerfEvent(_)));
        let tids: Vec<i32> = self
            .live
            .iter()
            .filter(|(_, live)| has_event(live))
            .map(|(&tid, _)| tid)
            .collect();
        for tid in tids {
            self.rearm(tid, false);
        }
    }

    /// Gives the slots back, once no handler looks at them for this recording.
    pub(super) fn leave_slots(&mut self) {
        let (accounts, _) = self.accounts();
        let lost: Vec<(u32, u64)> = accounts.map(|(serial, a)| (serial, a.lost)).collect();
        for (serial, lost) in lost {
            if let Some(thread) = self.known.get_mut(&serial) {
                thread.account.lost = lost;
            }
        }
        for live in self.live.values() {
            if let Some(slot) = self.recorder.slots.at(live.slot)
                && slot.serial.load(Ordering::Relaxed) == live.serial
            {
                slot.serial.store(0, Ordering::Relaxed);
                slot.release(User::Recording);
            }
        }
        self.live.clear();
    }

    /// Bytes that the tables take, roughly.
    pub(super) fn size_bytes(&self) -> usize {
        self.live.allocation_size() + self.known.allocation_size()
    }
}
