//! The process's threads while it is recorded: discover, arm, retire.
#![forbid(unsafe_code)]

use std::hash::BuildHasher;
use std::io;
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};

use super::engine::Rate;
use super::handler::Cookie;
use crate::aggregate::ThreadLabels;
use crate::sys::thread::{Identity, NewestId, TaskDir, identity};
use crate::sys::timer::{CpuTimer, pending_signals_limit};

/// Known threads that one scan looks at again, for their names and whether they are still the same, at 11 µs each: enough to see
/// 400 threads a second, and with more threads each of them less often.
const LOOKS_PER_SCAN: usize = 4;
/// With many threads the looks grow, to this: 1.8 % of a CPU.
const MOST_LOOKS_PER_SCAN: usize = 16;

/// When a new thread is looked at again: it often names itself only after it has begun.
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// The longest time between two looks at a thread.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// The longest time between two scans that list all threads. Between, a scan lists them only if one may have begun; where it
/// cannot tell (a container that makes up `/proc/loadavg`), new threads wait for this.
const FULL_SCAN: Duration = Duration::from_millis(100);

/// How threads are made to tick.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arming {
    /// Each has a timer of its own.
    Each { signal: libc::c_int, rate: Rate },
    /// A timer of the process does it; threads are only known by name.
    None,
}

/// All threads of the process but the profiler's own, each under a serial number that is never used twice.
#[derive(Debug)]
pub(super) struct Threads {
    dir: TaskDir,
    newest_id: NewestId,
    next_full_scan: Instant,
    recording: u32,
    arming: Arming,
    /// The profiler's own thread, which is not sampled.
    own: Option<i32>,
    live: HashMap<i32, Live>,
    /// By serial number: the live ones, and the gone ones that were sampled.
    labels: HashMap<u32, ThreadLabels>,
    sampled: HashSet<u32>,
    last_serial: u32,
    armed: u64,
    refused: u64,
    /// Timers there may be: half of what the user's limit allows, the other half being the host's.
    most_timers: u64,
    timers: u64,
    random: DefaultHashBuilder,
    tids: Vec<i32>,
}

#[derive(Debug)]
struct Live {
    serial: u32,
    start_time: u64,
    timer: Option<CpuTimer>,
    /// The system would not give a timer.
    is_refused: bool,
    next_look: Instant,
    look_after: Duration,
}

impl Threads {
    pub(super) fn new(recording: u32, arming: Arming) -> io::Result<Self> {
        Ok(Self {
            dir: TaskDir::open()?,
            newest_id: NewestId::default(),
            next_full_scan: Instant::now(),
            recording,
            arming,
            own: None,
            live: HashMap::new(),
            labels: HashMap::new(),
            sampled: HashSet::new(),
            last_serial: 0,
            armed: 0,
            refused: 0,
            most_timers: pending_signals_limit() / 2,
            timers: 0,
            random: DefaultHashBuilder::default(),
            tids: Vec::new(),
        })
    }

    /// Leaves the profiler's own thread alone. Called before the first scan.
    pub(super) fn leave_alone(&mut self, tid: i32) {
        self.own = Some(tid);
    }

    /// Arms the threads that are new and retires those that are gone.
    pub(super) fn scan(&mut self) -> io::Result<()> {
        self.look_again();
        let now = Instant::now();
        // Asked first: a thread that begins after the question is seen by the next one.
        if !self.newest_id.has_moved() && now < self.next_full_scan {
            return Ok(());
        }
        self.next_full_scan = now + FULL_SCAN;
        let mut tids = std::mem::take(&mut self.tids);
        let listed = self.dir.list(&mut tids);
        if listed.is_ok() {
            for &tid in &tids {
                if Some(tid) != self.own && !self.live.contains_key(&tid) {
                    self.arm(tid);
                }
            }
            if self.live.len() + usize::from(self.own.is_some()) > tids.len() {
                let gone: Vec<i32> = self
                    .live
                    .keys()
                    .copied()
                    .filter(|tid| tids.binary_search(tid).is_err())
                    .collect();
                gone.into_iter().for_each(|tid| self.retire(tid));
            }
        }
        self.tids = tids;
        listed
    }

    fn arm(&mut self, tid: i32) {
        let Some(Identity { start_time, name }) = identity(tid) else {
            return;
        };
        // Serial 0 says "no thread of its own".
        self.last_serial = self.last_serial.wrapping_add(1).max(1);
        let serial = self.last_serial;
        let mut is_refused = false;
        let timer = match self.arming {
            Arming::None => None,
            Arming::Each { signal, rate } => {
                let cookie = Cookie {
                    recording: self.recording,
                    thread_serial: serial,
                };
                let phase = self.random_phase(rate.period, serial);
                let armed = match self.timers < self.most_timers {
                    true => CpuTimer::for_thread(tid, signal, cookie.to_u64())
                        .and_then(|timer| timer.arm(phase, rate.period).map(|()| timer)),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                };
                match armed {
                    Ok(timer) => {
                        self.armed += 1;
                        self.timers += 1;
                        Some(timer)
                    }
                    // The thread ended in the meantime.
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
                    Err(_) => {
                        is_refused = true;
                        self.refused += 1;
                        None
                    }
                }
            }
        };
        self.labels.insert(serial, ThreadLabels { name, tid });
        self.live.insert(
            tid,
            Live {
                serial,
                start_time,
                timer,
                is_refused,
                next_look: Instant::now() + FIRST_LOOK,
                look_after: FIRST_LOOK * 2,
            },
        );
    }

    /// A first expiry in (0, period], so that the time before a thread's first tick is neither always counted nor never.
    fn random_phase(&self, period: Duration, serial: u32) -> Duration {
        let random = self.random.hash_one(serial);
        let period_ns = period.as_nanos() as u64;
        // The high half of the product is uniform in [0, period).
        let below = ((u128::from(random) * u128::from(period_ns)) >> 64) as u64;
        Duration::from_nanos(below + 1)
    }

    fn retire(&mut self, tid: i32) {
        let Some(gone) = self.live.remove(&tid) else {
            return;
        };
        self.timers -= u64::from(gone.timer.is_some());
        if !self.sampled.contains(&gone.serial) {
            self.labels.remove(&gone.serial);
        }
    }

    /// Looks again at a few threads that are due: names change, and an id can be another thread's by now.
    fn look_again(&mut self) {
        let now = Instant::now();
        let looks = (self.live.len() / 100).clamp(LOOKS_PER_SCAN, MOST_LOOKS_PER_SCAN);
        let mut due: Vec<(Instant, i32)> = self
            .live
            .iter()
            .filter(|(_, live)| live.next_look <= now)
            .map(|(&tid, live)| (live.next_look, tid))
            .collect();
        // Those that have waited longest, so that each has its turn.
        due.sort_unstable();
        for (_, tid) in due.into_iter().take(looks) {
            self.look_at(tid);
        }
    }

    fn look_at(&mut self, tid: i32) {
        let (Some(live), Some(seen)) = (self.live.get_mut(&tid), identity(tid)) else {
            return;
        };
        let is_other = seen.start_time != live.start_time;
        // A timer that was refused is asked for again.
        let is_unarmed = live.timer.is_none() && matches!(self.arming, Arming::Each { .. });
        if is_other || is_unarmed {
            if live.is_refused && !is_other {
                self.refused -= 1;
            }
            self.retire(tid);
            self.arm(tid);
            return;
        }
        live.next_look = Instant::now() + live.look_after;
        live.look_after = (live.look_after * 4).min(LAST_LOOK);
        if let Some(labels) = self.labels.get_mut(&live.serial) {
            labels.name = seen.name;
        }
    }

    /// Reads the names of the live threads that were sampled, as they are now.
    pub(super) fn refresh_names(&mut self) {
        let sampled: Vec<i32> = self
            .live
            .iter()
            .filter(|(_, live)| self.sampled.contains(&live.serial))
            .map(|(&tid, _)| tid)
            .collect();
        sampled.into_iter().for_each(|tid| self.look_at(tid));
    }

    /// The serial number that a sample is counted under: that of its own timer's thread, or of the live thread of an id.
    pub(super) fn serial_of(&mut self, serial: u32, tid: i32) -> u32 {
        let serial = match serial {
            0 => self.serial_of_tid(tid),
            serial => serial,
        };
        self.sampled.insert(serial);
        serial
    }

    fn serial_of_tid(&mut self, tid: i32) -> u32 {
        if let Some(live) = self.live.get(&tid) {
            return live.serial;
        }
        // Sent by a thread that began after the last scan, and that may be gone already.
        self.last_serial = self.last_serial.wrapping_add(1).max(1);
        let serial = self.last_serial;
        let (name, start_time) = match identity(tid) {
            Some(seen) => (seen.name, seen.start_time),
            None => (String::new(), 0),
        };
        self.labels.insert(serial, ThreadLabels { name, tid });
        self.live.insert(
            tid,
            Live {
                serial,
                start_time,
                timer: None,
                is_refused: false,
                next_look: Instant::now(),
                look_after: FIRST_LOOK,
            },
        );
        serial
    }

    /// Whether a thread of this id was found and is alive.
    pub(super) fn knows(&self, tid: i32) -> bool {
        self.live.contains_key(&tid)
    }

    /// What the samples of a serial number are labelled with.
    pub(super) fn labels(&self, serial: u32) -> Option<ThreadLabels> {
        self.labels.get(&serial).cloned()
    }

    /// Threads that were armed so far.
    pub(super) fn armed(&self) -> u64 {
        self.armed
    }

    /// Threads that were left without a timer.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Deletes all timers for one that the process has: no thread is armed, or left out, any more.
    pub(super) fn leave_to_process_timer(&mut self) {
        self.disarm();
        for live in self.live.values_mut() {
            live.is_refused = false;
        }
        self.armed = 0;
        self.refused = 0;
    }

    /// Deletes all timers, and makes no more.
    pub(super) fn disarm(&mut self) {
        for live in self.live.values_mut() {
            live.timer = None;
        }
        self.timers = 0;
        self.arming = Arming::None;
    }

    /// Bytes that the tables take, roughly.
    pub(super) fn size_bytes(&self) -> usize {
        self.live.allocation_size() + self.labels.allocation_size() + self.sampled.allocation_size()
    }
}
