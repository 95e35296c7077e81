//! The process's threads while it is recorded: discover, arm, retire.
#![forbid(unsafe_code)]

mod account;
mod figures;
mod heard;
mod looks;
mod workers;

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};

use super::arming::{Armed, Arming, Choice, Refusal, ThreadClock};
use super::births::{self, Event};
use super::handler::Cookie;
use super::recorder::Recorder;
pub(super) use account::Account;
use looks::FIRST_LOOK;

use crate::aggregate::ThreadLabels;
use crate::slots::{Claim, Slot, next_number};
use crate::sys::clock::Clock;
use crate::sys::own_threads::end_process_if_left_alone;
use crate::sys::thread::{self, Identity, NewestId, Worker, current_tid, identity};

/// The longest time between two scans that list all threads. Between, a scan lists them only if one
/// may have begun; where it cannot tell (a container that makes up `/proc/loadavg`), new threads
/// wait for this.
const FULL_SCAN: Duration = Duration::from_millis(100);

/// CPU time after which a thread that a scan finds is taken to be one that does not arm itself: one
/// that does has done so after a tenth of it.
const ARMS_ITSELF_WITHIN_NS: u64 = 500_000;

/// The most CPU time that a thread takes to be gone once it has said that it ends: the kernel's
/// part. Another thread that gets its id has used less than it had, or more than that in a moment.
const MOST_TO_LEAVE_NS: u64 = 5_000_000;

/// Threads that get a perf event before the start returns: so many descriptors a young process has
/// room for.
const EVENTS_AT_START: usize = 32;

/// All threads of the process but the profiler's own, each under a serial number that is never used
/// twice.
#[derive(Debug)]
pub(super) struct Threads {
    recorder: &'static Recorder,
    newest_id: NewestId,
    next_full_scan: Instant,
    last_looks: Instant,
    next_look_at_workers: Instant,
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
    /// Serial numbers of those that are gone and were not sampled so far: records of theirs may
    /// still lie in the lanes.
    fading: Vec<u32>,
    refusals: HashMap<Refusal, u64>,
    /// Threads that ran when the recording started and are not armed yet, with their CPU time then.
    left_to_arm: Vec<(i32, u64)>,
    armed: u64,
    armed_by_perf: u64,
    tids: Vec<i32>,
    /// Room to be exchanged for what threads have told.
    events: Vec<Event>,
    /// A thread was telling when it was last listened.
    is_deaf: bool,
    /// Ticks of threads that were sampled before they were heard of, by serial number.
    unheard: HashMap<u32, u64>,
    /// Ids that the last scan saw for the first time, where threads arm themselves.
    newcomers: HashSet<i32>,
    /// Ids of threads that have said that they end, and that the system may list for a little
    /// longer, with their CPU time then.
    leaving: HashMap<i32, u64>,
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
    /// It is one of the kernel's own, and gets no clock.
    worker: Option<Worker>,
    clock: Option<ThreadClock>,
    /// The clocks that it was refused.
    refused: [Option<Refusal>; 2],
    next_look: Instant,
    look_after: Duration,
    /// Ticks it had, and CPU time it had used, at the last look.
    last_look: (u64, u64),
}

impl Live {
    /// Why it has no clock, where it should have one.
    fn refusal(&self) -> Option<Refusal> {
        match self.clock {
            Some(_) => None,
            None => self.refused.into_iter().flatten().last(),
        }
    }
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

impl Threads {
    /// # Errors
    ///
    /// Where the process's threads cannot be listed.
    pub(super) fn new(recorder: &'static Recorder, arming: Arming) -> io::Result<Self> {
        let mut tids = Vec::new();
        thread::list(&mut tids)?;
        Ok(Self {
            recorder,
            newest_id: NewestId::default(),
            next_full_scan: Instant::now(),
            last_looks: Instant::now(),
            next_look_at_workers: Instant::now(),
            arming,
            is_hooked: false,
            own: None,
            live: HashMap::new(),
            known: HashMap::new(),
            unseen: Account::default(),
            fading: Vec::new(),
            refusals: HashMap::new(),
            left_to_arm: Vec::new(),
            armed: 0,
            armed_by_perf: 0,
            tids,
            events: births::room(),
            is_deaf: false,
            unheard: HashMap::new(),
            newcomers: HashSet::new(),
            leaving: HashMap::new(),
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

    /// Arms the threads that run when the recording starts, or a few of them and the calling one:
    /// perf events on more are left to the first scan. A thousand take 15 ms, and as long again
    /// where the kernel's table of descriptors has to grow for them.
    pub(super) fn arm_at_start(&mut self) -> io::Result<()> {
        self.newest_id.has_moved();
        let mut tids = std::mem::take(&mut self.tids);
        let listed = thread::list(&mut tids);
        let at_once = match self.arming.choice {
            Choice::PerfEvent { .. } => EVENTS_AT_START,
            Choice::ThreadTimer | Choice::Nothing => usize::MAX,
        };
        let own = self.own;
        let calling = current_tid();
        let is_listed = tids.binary_search(&calling).is_ok();
        let others = tids.iter().filter(|&&tid| tid != calling);
        let all = is_listed.then_some(&calling).into_iter().chain(others);
        for (number, &tid) in all.filter(|&&tid| Some(tid) != own).enumerate() {
            let Ok(cpu_ns) = Clock::thread_cpu(tid).now_ns() else {
                continue;
            };
            match number < at_once {
                true => _ = self.discover(tid, Some(cpu_ns)),
                false => self.left_to_arm.push((tid, cpu_ns)),
            }
        }
        self.tids = tids;
        listed
    }

    /// Threads that are known to be there.
    pub(in crate::cpu) fn count(&self) -> usize {
        self.live.len()
    }

    /// Arms the threads that the start has left.
    fn arm_the_left(&mut self) {
        let left = std::mem::take(&mut self.left_to_arm);
        if left.is_empty() {
            return;
        }
        self.recorder.births.budget.make_room(left.len());
        for (tid, cpu_ns) in left {
            if !self.live.contains_key(&tid) {
                self.discover(tid, Some(cpu_ns));
            }
        }
    }

    /// Arms the threads that are new and retires those that are gone.
    pub(super) fn scan(&mut self) -> io::Result<()> {
        self.try_hear();
        self.arm_the_left();
        self.look_again();
        self.see_workers();
        let now = Instant::now();
        // Asked first: a thread that begins after the question is seen by the next one.
        let has_moved = self.newest_id.has_moved();
        if !has_moved && self.newcomers.is_empty() && now < self.next_full_scan {
            return Ok(());
        }
        self.next_full_scan = now + FULL_SCAN;
        let mut tids = std::mem::take(&mut self.tids);
        let listed = thread::list(&mut tids);
        #[cfg(test)]
        births::tests::dawdle(&births::tests::AFTER_LIST_NS);
        // Whoever is listed and has armed itself is to be known from here on.
        if !self.try_hear() {
            self.tids = tids;
            self.next_full_scan = now;
            return Ok(());
        }
        if listed.is_ok() {
            end_process_if_left_alone(&tids);
            self.leaving.retain(|&tid, &mut ended_ns| {
                let is_leaving = |ns| (ended_ns..=ended_ns + MOST_TO_LEAVE_NS).contains(&ns);
                Clock::thread_cpu(tid).now_ns().is_ok_and(is_leaving)
            });
            let mut waiting = HashSet::new();
            for &tid in &tids {
                if Some(tid) == self.own
                    || self.live.contains_key(&tid)
                    || self.leaving.contains_key(&tid)
                {
                    continue;
                }
                let may_arm_itself = self.is_hooked && self.may_arm_itself(tid);
                if may_arm_itself || !self.discover(tid, None) {
                    waiting.insert(tid);
                }
            }
            self.newcomers = waiting;
            // The list is no proof of who is gone: a thread may have been heard of after it was
            // made, and the kernel leaves out threads that run when others end while it makes it.
            let is_there = |tid: &i32| {
                tids.binary_search(tid).is_ok() || Clock::thread_cpu(*tid).now_ns().is_ok()
            };
            if self.live.len() + usize::from(self.own.is_some()) > tids.len() {
                let gone = self.live.keys().copied();
                let gone: Vec<i32> = gone.filter(|tid| !is_there(tid)).collect();
                gone.into_iter().for_each(|tid| self.retire(tid, None, now));
            }
        }
        self.tids = tids;
        listed
    }

    /// Whether the next scan has something to do that cannot wait: threads that were found, and may
    /// arm themselves, or are telling that they did.
    pub(super) fn expects_more(&self) -> bool {
        self.is_deaf || !self.newcomers.is_empty()
    }

    /// Whether a thread that was just found may be about to arm itself, as it better does: it knows
    /// when it began. The kernel's own do not.
    fn may_arm_itself(&self, tid: i32) -> bool {
        let cpu = Clock::thread_cpu(tid).now_ns().unwrap_or(0);
        let is_young = !self.newcomers.contains(&tid) || cpu < ARMS_ITSELF_WITHIN_NS;
        is_young && identity(tid).is_none_or(|known| known.worker.is_none())
    }

    /// Arms a thread that was found, unless it is arming itself right now, as the answer says: then
    /// it is heard of in a moment. `before_ns` is its CPU time when the recording started, if it
    /// ran then: that is not the recording's.
    fn discover(&mut self, tid: i32, before_ns: Option<u64>) -> bool {
        let Ok(cpu_ns) = Clock::thread_cpu(tid).now_ns() else {
            return true;
        };
        // Names of those that run at the start are read a little later, so that the start takes
        // less time.
        let identity = match before_ns {
            Some(_) => None,
            None => match identity(tid) {
                Some(identity) => Some(identity),
                None => return true,
            },
        };
        let slots = self.recorder.slots;
        let serial = next_number();
        let slot = match slots.claim(tid, serial) {
            Claim::Granted(slot, _) => slot,
            Claim::Held(_) => return false,
            Claim::Full => return true,
        };
        #[cfg(test)]
        births::tests::before_scans_clock();
        let mut arming = self.arming;
        if identity
            .as_ref()
            .is_some_and(|known| known.worker.is_some())
        {
            arming.choice = Choice::Nothing;
        }
        let armed = births::arm(&arming, self.recorder, tid, slot, serial);
        if armed.is_taken_over {
            return false;
        }
        let account = Account::begin(cpu_ns, cpu_ns.saturating_sub(before_ns.unwrap_or(0)));
        self.enlist(tid, serial, slot, armed, account, identity);
        self.note_came(tid, Instant::now());
        true
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
        if armed.is_gone {
            if let Some(slot) = self.recorder.slots.at(slot) {
                slot.release(serial);
            }
            self.unseen.unarmed_ns += account.unarmed_ns;
            return;
        }
        let look_after = match identity {
            Some(_) => FIRST_LOOK,
            None => Duration::ZERO,
        };
        let worker = identity.as_ref().and_then(|identity| identity.worker);
        let (start_time, name) = match identity {
            Some(identity) => (Some(identity.start_time), identity.name),
            None => (None, String::new()),
        };
        let cpu_ns = account.seen_at_ns;
        let sampled_before = self.unheard.remove(&serial);
        account.ticks += sampled_before.unwrap_or(0);
        self.known.insert(
            serial,
            Thread {
                labels: ThreadLabels { name, tid },
                account,
                is_sampled: sampled_before.is_some(),
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
                worker: None,
                clock: None,
                refused: [None; 2],
                next_look: Instant::now() + look_after,
                look_after: FIRST_LOOK,
                last_look: (0, cpu_ns),
            },
        );
        self.equip(tid, armed, false);
        if let Some(worker) = worker {
            self.leave_to_kernel(tid, worker);
        }
    }

    /// Takes note of the clock that a thread has got, or not.
    fn equip(&mut self, tid: i32, armed: Armed, was_armed: bool) {
        let Some(live) = self.live.get_mut(&tid) else {
            return;
        };
        if !was_armed && let Some(clock) = &armed.clock {
            self.armed += 1;
            self.armed_by_perf += u64::from(matches!(clock, ThreadClock::PerfEvent(_)));
        }
        for refusal in armed.refused.into_iter().flatten() {
            *self.refusals.entry(refusal).or_default() += 1;
        }
        live.clock = armed.clock;
        live.refused = armed.refused;
        if let Some(thread) = self.known.get_mut(&live.serial) {
            thread.account.is_unarmed =
                live.clock.is_none() && self.arming.choice != Choice::Nothing;
        }
    }

    /// A thread is gone since `at`, or another one by now. `cpu_ns` is what it used, where that is
    /// known.
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
            // By elapsed time every thread has its part; only those of less than a period share one
            // name.
            is_kept = at.saturating_duration_since(gone.since) >= self.arming.rate.period;
        }
        let Some(thread) = self.known.get_mut(&gone.serial) else {
            return;
        };
        if let Some(cpu_ns) = cpu_ns {
            thread.account.see(cpu_ns);
        }
        if !thread.is_sampled && !thread.is_blocking && !is_kept {
            self.fading.push(gone.serial);
        }
        self.stop_clock(Cookie::of_thread(gone.serial, gone.slot), gone.clock);
        // After its clock: from here on the thread can have another.
        if let Some(slot) = self.recorder.slots.at(gone.slot) {
            if slot.serial() == gone.serial
                && let Some(thread) = self.known.get_mut(&gone.serial)
            {
                thread.account.lost = slot.lost.load(Ordering::Relaxed);
            }
            slot.release(gone.serial);
        }
    }

    /// Before the lanes are emptied: the threads to [`forget`](Self::forget) after that, unless
    /// they turn up in them.
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

    fn stop_clock(&self, cookie: Cookie, clock: Option<ThreadClock>) {
        let Some(clock) = clock else { return };
        self.recorder.births.budget.give_back(&clock);
        let fd = match &clock {
            ThreadClock::PerfEvent(event) => Some(event.fd()),
            ThreadClock::Timer(_) => None,
        };
        drop(clock);
        // What it has sent until now was known as its own.
        if let Some(fd) = fd {
            self.recorder.events.clear(fd, cookie);
        }
    }

    /// The serial number that a sample is counted under: that of its own clock's thread, or of the
    /// live thread of an id. `ticks` are the periods of the thread's own clock that it stands for.
    pub(super) fn serial_of(&mut self, serial: u32, tid: i32, ticks: u64) -> u32 {
        let serial = match serial {
            0 => self.serial_of_tid(tid),
            serial => serial,
        };
        // A thread that armed itself a moment ago can have been sampled before it was heard of.
        if !self.known.contains_key(&serial) {
            self.try_hear();
        }
        match self.known.get_mut(&serial) {
            Some(thread) => {
                thread.is_sampled = true;
                thread.account.ticks += ticks;
            }
            None => *self.unheard.entry(serial).or_default() += ticks,
        }
        serial
    }

    fn serial_of_tid(&mut self, tid: i32) -> u32 {
        if let Some(live) = self.live.get(&tid) {
            return live.serial;
        }
        // Sent by a thread that began after the last scan, and that may be gone already.
        let serial = next_number();
        let identity = identity(tid);
        let slot = match self.recorder.slots.claim(tid, serial) {
            Claim::Granted(slot, _) => slot,
            // It was arming itself.
            Claim::Held(serial) => return serial,
            Claim::Full => return serial,
        };
        let cpu_ns = Clock::thread_cpu(tid).now_ns().unwrap_or(0);
        let account = Account::begin(cpu_ns, cpu_ns);
        let is_gone = identity.is_none();
        let armed = match is_gone {
            false => births::arm(&self.arming, self.recorder, tid, slot, serial),
            true => Armed::default(),
        };
        if armed.is_taken_over {
            // It has armed itself, and is heard of in a moment.
            let slot = self.recorder.slots.at(slot);
            return slot.map_or(serial, Slot::serial);
        }
        self.enlist(tid, serial, slot, armed, account, identity);
        self.note_came(tid, Instant::now());
        if is_gone {
            // Its id is the next one's.
            self.retire(tid, None, Instant::now());
        }
        serial
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

    /// Deletes all clocks for one that the process has: no thread is armed, or left out, any more.
    pub(super) fn leave_to_process_timer(&mut self) {
        self.stop_clocks();
        self.arming.choice = Choice::Nothing;
        self.recorder.births.change(self.arming);
        for live in self.live.values_mut() {
            live.refused = [None; 2];
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
        self.left_to_arm.clear();
        for live in self.live.values_mut() {
            // What events have sent can still be on its way to a thread that waits for a CPU, and
            // is to be known as theirs.
            if let Some(clock) = live.clock.take() {
                self.recorder.births.budget.give_back(&clock);
            }
        }
    }

    /// Deletes all clocks, and makes no more.
    pub(super) fn disarm(&mut self) {
        self.hear();
        self.recorder.births.forget();
        self.stop_clocks();
        self.arming.choice = Choice::Nothing;
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
            if let Some(slot) = self.recorder.slots.at(live.slot) {
                slot.release(live.serial);
            }
        }
        self.live.clear();
    }
}
