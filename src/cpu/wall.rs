//! The wall clock: at each tick a few threads are looked at, by a signal, and those that have not
//! run since their last look are taken to be where they were.
//!
//! A thread's CPU clock says whether it has run. Reading it takes 0.3 µs and the thread does not
//! notice; a look takes a signal, a stack walk, and of a thread that waits the call it waits in, if
//! that is one of those that are never restarted. So the signals go to threads that run, and to
//! each that waits once.
//!
//! The catch is that a look itself makes a waiting thread run. By how often it got onto a CPU
//! (`schedstat`) this is told from anything else: from before the look until after it exactly once.
//! CPU time alone could not tell a look from a short errand.
//!
//! All time is counted: what a thread is owed grows until a look finds it.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::arming::Arming;
use super::audit::UNSAMPLED;
use super::births::{Purpose, random_part};
use super::handler::Cookie;
use super::recorder::Recorder;
use super::sight::{Sight, run_so_far, see};
use super::stats::WallTime;
use super::threads::{Change, Threads};
use super::watched::{Place, Run, Standing, Watched};
use crate::aggregate::{StackTable, State, Tag, Unseen, Weight};
use crate::sys::clock::Clock;
use crate::sys::signal::look_at;
use crate::sys::system_call::SystemCall;
use crate::sys::thread::scheduled;

/// The most looks a tick: as many stacks as that can be of threads that run, on all but large
/// machines. With more threads that want one, each has its turn, and its stack the weight of the
/// ticks that it was left out of.
const LOOKS_PER_TICK: usize = 8;

/// The part of a tick that looks may take on the profiler's thread: at 1000 Hz, more than two looks
/// at threads that wait, which take 20 µs each, would use more of a CPU than anybody asked for.
const SHARE_OF_TICK: u32 = 20;

/// The shortest time between two ticks. At higher frequencies a look stands for several periods.
const SHORTEST_TICK_NS: u64 = 1_000_000;

/// Time between two checks of a thread that has been at rest for long.
const LATE_CHECK_NS: u64 = 100_000_000;
/// The least time between two checks of a thread, for each that there is: 1 % of a CPU for reading
/// clocks, whatever their number.
const CHECK_NS_PER_THREAD: u64 = 30_000;

/// Which threads are checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Checks {
    Due,
    All,
    /// All, and no more after that.
    Last,
}

/// The time in the frame `[unsampled]`, and that in the frames of the kernel's own threads.
pub(super) fn unsampled_and_workers(unseen: &[Unseen]) -> (Duration, Duration) {
    let sum = |is_unsampled| {
        let meant = unseen
            .iter()
            .filter(|u| (u.why == UNSAMPLED) == is_unsampled);
        meant.map(|u| Duration::from_nanos(u.weight.ns)).sum()
    };
    (sum(true), sum(false))
}

/// All threads of the process but the profiler's own, by elapsed time.
#[derive(Debug)]
pub(super) struct Wall {
    recorder: &'static Recorder,
    arming: Arming,
    started: Instant,
    next_tick: Instant,
    random: u64,
    /// By serial number.
    watched: HashMap<u32, Watched>,
    /// What threads that are gone are still owed, by serial number; those that nobody knows by name
    /// together under 0.
    gone: HashMap<u32, Watched>,
    threads: u64,
    stopped_ns: Option<u64>,
    in_stacks_ns: u64,
    filtered: Weight,
    looks: u64,
    looks_at_waiting: u64,
}

impl Wall {
    pub(super) fn new(recorder: &'static Recorder, arming: Arming, started: Instant) -> Self {
        Self {
            recorder,
            arming,
            started,
            next_tick: started,
            // Any number but 0 does.
            random: u64::from(arming.recording) << 32 | 0x9E37_79B9,
            watched: HashMap::new(),
            gone: HashMap::new(),
            threads: 0,
            stopped_ns: None,
            in_stacks_ns: 0,
            filtered: Weight::default(),
            looks: 0,
            looks_at_waiting: 0,
        }
    }

    /// From now on looks are asked for with another signal.
    pub(super) fn look_with(&mut self, signal: libc::c_int) {
        self.arming.quiet = signal;
    }

    fn period_ns(&self) -> u64 {
        self.arming.rate.period_ns()
    }

    /// Time of the recording up to `at`, which its stop ends.
    fn ns(&self, at: Instant) -> u64 {
        let ns = at.saturating_duration_since(self.started).as_nanos() as u64;
        ns.min(self.stopped_ns.unwrap_or(u64::MAX))
    }

    /// When the next tick is due.
    pub(super) fn next_tick(&self) -> Instant {
        self.next_tick
    }

    /// Takes note of the threads that have come and gone. Before the lanes are emptied: a record
    /// must find its thread, and time after a thread's end is not its own.
    pub(super) fn hear(&mut self, threads: &mut Threads, table: &mut StackTable) {
        let period_ns = self.period_ns();
        for change in threads.take_changes() {
            match change {
                Change::Came {
                    serial,
                    tid,
                    slot,
                    at,
                } => {
                    if self.stopped_ns.is_none() {
                        let since_ns = self.ns(at);
                        let carried =
                            random_part(self.arming.rate.period, serial, Purpose::Carried);
                        let carried_ns = carried.as_nanos() as u64 - 1;
                        let mut watched = Watched::new(tid, slot, since_ns, carried_ns);
                        if let Some(worker) = threads.worker(tid) {
                            watched.standing = Standing::InKernel(worker);
                        }
                        self.watched.insert(serial, watched);
                        self.threads += 1;
                    }
                }
                Change::Went { serial, at, cpu_ns } => {
                    let Some(mut gone) = self.watched.remove(&serial) else {
                        continue;
                    };
                    let at_ns = self.ns(at);
                    let run = cpu_ns.map(|cpu_ns| Run {
                        cpu_ns,
                        scheduled: None,
                    });
                    if let Some((place, weight)) = gone.end(run, at_ns, period_ns) {
                        self.put(table, place, weight);
                    }
                    gone.ran_unseen_ns = gone.owed_ns(at_ns);
                    gone.accounted_ns = u64::MAX;
                    if gone.ran_unseen_ns == 0 {
                        continue;
                    }
                    // A record of it may still come.
                    let serial = threads.labels(serial).map_or(0, |_| serial);
                    let entry = self.gone.entry(serial);
                    entry
                        .and_modify(|other| other.ran_unseen_ns += gone.ran_unseen_ns)
                        .or_insert(gone);
                }
            }
        }
    }

    /// A look has been answered: the state that the thread was seen in, and what it is owed, which
    /// the stack gets that was found. [`keep`](Self::keep) is to be told where that is.
    pub(super) fn answered(&mut self, serial: u32, at: Instant) -> (State, Weight) {
        let (now_ns, period_ns) = (self.ns(at), self.period_ns());
        if let Some(watched) = self.watched.get_mut(&serial) {
            // A look that had been given up is answered when a thread unblocks the signal, which
            // takes that it runs.
            let state = match watched.standing {
                Standing::Asked { state, .. } => state,
                _ => State::Running,
            };
            let weight = watched.pay(state, now_ns, period_ns);
            self.in_stacks_ns += weight.ns;
            return (state, weight);
        }
        let Some(mut gone) = self.gone.remove(&serial) else {
            return (State::Running, Weight::default());
        };
        let state = match gone.standing {
            Standing::Asked { state, .. } => state,
            _ => State::Running,
        };
        // All that is owed, whatever it did then.
        let weight = gone.pay(State::Running, 0, period_ns);
        self.in_stacks_ns += weight.ns;
        (state, weight)
    }

    /// Where the stack that a look found is in the table.
    pub(super) fn keep(&mut self, serial: u32, chain: u32, tag: Tag) {
        if let Some(watched) = self.watched.get_mut(&serial)
            && let Standing::Asked { state, before, .. } = watched.standing
        {
            watched.found(Place::Stack { chain, tag }, state, before);
        } else if let Some(watched) = self.watched.get_mut(&serial) {
            watched.standing = Standing::Unknown { not_before_ns: 0 };
        }
    }

    fn put(&mut self, table: &mut StackTable, place: Place, weight: Weight) {
        match place {
            Place::Stack { chain, tag } => {
                self.in_stacks_ns += weight.ns;
                table.add_again(chain, tag, weight);
            }
            Place::Filtered => self.drop_filtered(weight),
        }
    }

    fn drop_filtered(&mut self, weight: Weight) {
        self.filtered.count += weight.count;
        self.filtered.ns += weight.ns;
    }

    /// One tick, if it is due. The lanes were emptied a moment ago.
    pub(super) fn tick(&mut self, now: Instant, threads: &mut Threads, table: &mut StackTable) {
        if now < self.next_tick || self.stopped_ns.is_some() {
            return;
        }
        // Ticks come at random times, a period apart on the whole: a program that does something
        // every 10 ms must not be seen at the same point of it every time.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let tick_ns = self.period_ns().max(SHORTEST_TICK_NS);
        self.next_tick = now + Duration::from_nanos(tick_ns / 2 + self.random % tick_ns);

        let now_ns = self.ns(now);
        self.check(now_ns, Checks::Due, table);
        let mut waiting: Vec<(u64, u32)> = self
            .watched
            .iter()
            .filter(|(_, watched)| {
                matches!(watched.standing,
                    Standing::Unknown { not_before_ns } if not_before_ns <= now_ns)
            })
            .map(|(&serial, watched)| (watched.accounted_ns, serial))
            .collect();
        // Those that have waited longest.
        if waiting.len() > LOOKS_PER_TICK {
            waiting.select_nth_unstable(LOOKS_PER_TICK);
            waiting.truncate(LOOKS_PER_TICK);
        }
        waiting.sort_unstable();
        let most = Duration::from_nanos(tick_ns) / SHARE_OF_TICK;
        for (_, serial) in waiting {
            self.look(serial, now_ns, threads);
            if now.elapsed() > most {
                break;
            }
        }
    }

    /// Looks at the clocks of the threads that wait: all of them, or those that are due.
    fn check(&mut self, now_ns: u64, checks: Checks, table: &mut StackTable) {
        let (all, is_last) = (checks != Checks::Due, checks == Checks::Last);
        let period_ns = self.period_ns();
        let least_ns = self.watched.len() as u64 * CHECK_NS_PER_THREAD;
        // Within a period, each tick will do.
        let soon_ns = if least_ns > period_ns { least_ns } else { 0 };
        let spacing = (soon_ns, LATE_CHECK_NS.max(least_ns));
        let mut watched = std::mem::take(&mut self.watched);
        for thread in watched.values_mut() {
            if thread.gives_up(now_ns) {
                thread.miss(now_ns);
            }
            match thread.standing {
                Standing::Unknown { .. } => {}
                Standing::Asked {
                    state,
                    before,
                    filtered,
                    ..
                } => {
                    if self.filtered_looks(thread.slot) != filtered {
                        let weight = thread.pay(state, now_ns, period_ns);
                        self.drop_filtered(weight);
                        thread.found(Place::Filtered, state, before);
                    }
                }
                Standing::Answered { .. } => {
                    thread.settle(run_so_far(thread.tid), now_ns);
                }
                Standing::AtRest {
                    next_check_ns, run, ..
                } if all || next_check_ns <= now_ns => {
                    let found = match Clock::thread_cpu(thread.tid).now_ns() {
                        Ok(cpu_ns) if cpu_ns == run.cpu_ns => {
                            thread.rests(now_ns, period_ns, spacing)
                        }
                        Ok(cpu_ns) => {
                            let scheduled = run.scheduled.and_then(|_| scheduled(thread.tid));
                            thread.has_run(Run { cpu_ns, scheduled }, now_ns, period_ns)
                        }
                        // It is gone. When that was is still to be heard, unless it is too late for
                        // that.
                        Err(_) if is_last => thread.rests(now_ns, period_ns, spacing),
                        Err(_) => None,
                    };
                    if let Some((place, weight)) = found {
                        self.put(table, place, weight);
                    }
                }
                Standing::AtRest { .. } | Standing::InKernel(_) => {}
            }
        }
        self.watched = watched;
    }

    /// Sends a thread the signal, having seen what it does.
    fn look(&mut self, serial: u32, now_ns: u64, threads: &mut Threads) {
        let Some(watched) = self.watched.get_mut(&serial) else {
            return;
        };
        let (tid, slot) = (watched.tid, watched.slot);
        // What a look may lead to is kept under the thread's name.
        threads.expect_sample(serial);
        // Of a thread that runs, its state is not looked at.
        if let Some(worker) = threads.worker(tid) {
            watched.standing = Standing::InKernel(worker);
            return;
        }
        let (state, before) = match see(tid, self.arming.quiet) {
            Sight::Running => (State::Running, Run::default()),
            Sight::Waiting(run) => (State::Waiting, run),
            Sight::Deaf => {
                // Everybody is for a moment, while a thread is made, for instance.
                if watched.has_missed() {
                    threads.note_blocking(serial);
                }
                return watched.miss(now_ns);
            }
            Sight::Worker(worker) => {
                threads.leave_to_kernel(tid, worker);
                watched.standing = Standing::InKernel(worker);
                return;
            }
            Sight::Gone => return watched.miss(now_ns),
        };
        let filtered = self.filtered_looks(slot);
        let cookie = Cookie::of_thread(serial, slot);
        let call = match state {
            State::Waiting => SystemCall::of_thread(tid),
            _ => None,
        };
        let call = call.map(|call| call.trace());
        let sent = look_at(tid, self.arming.quiet, cookie.to_u64(), call);
        let Some(watched) = self.watched.get_mut(&serial) else {
            return;
        };
        if sent.is_err() {
            // It is gone, or too many signals are queued.
            return watched.miss(now_ns);
        }
        watched.standing = Standing::Asked {
            at_ns: now_ns,
            state,
            before,
            filtered,
        };
        self.looks += 1;
        self.looks_at_waiting += u64::from(state == State::Waiting);
    }

    fn filtered_looks(&self, slot: u32) -> u32 {
        let slot = self.recorder.slots.at(slot);
        slot.map_or(0, |slot| slot.filtered.load(Ordering::Relaxed))
    }

    /// Brings the time of threads at rest up to date.
    pub(super) fn account(&mut self, table: &mut StackTable) {
        if self.stopped_ns.is_none() {
            self.check(self.ns(Instant::now()), Checks::All, table);
        }
    }

    /// The recording ends. Looks that are on their way can still be answered.
    pub(super) fn stop(&mut self, table: &mut StackTable) {
        let now_ns = self.ns(Instant::now());
        self.check(now_ns, Checks::Last, table);
        self.stopped_ns = Some(now_ns);
    }

    /// Time that no look has found a stack for, and that of the kernel's own threads.
    pub(super) fn unseen(&self) -> Vec<Unseen> {
        let (now_ns, period_ns) = (self.ns(Instant::now()), self.period_ns());
        let owed = |watched: &Watched| match watched.standing {
            // Its time since the last check has a place, and is on its way there.
            Standing::AtRest { .. } => watched.owed(watched.accounted_ns, period_ns),
            _ => watched.owed(now_ns, period_ns),
        };
        let mut unseen: Vec<Unseen> = (self.watched.iter().chain(&self.gone))
            .map(|(&serial, watched)| Unseen {
                why: match watched.standing {
                    Standing::InKernel(worker) => worker.frame(),
                    _ => UNSAMPLED,
                },
                thread: serial,
                weight: owed(watched),
            })
            .filter(|unseen| unseen.weight.ns > 0)
            .collect();
        unseen.sort_unstable_by_key(|unseen| unseen.thread);
        unseen
    }

    /// Ticks that the program's filter dropped.
    pub(super) fn filtered(&self) -> u64 {
        self.filtered.count
    }

    pub(super) fn time(&self, unseen: &[Unseen]) -> WallTime {
        let (unsampled, kernel_workers) = unsampled_and_workers(unseen);
        WallTime {
            threads: self.threads,
            in_stacks: Duration::from_nanos(self.in_stacks_ns),
            unsampled,
            kernel_workers,
            filtered: Duration::from_nanos(self.filtered.ns),
            looks: self.looks,
            looks_at_waiting: self.looks_at_waiting,
        }
    }

    /// Bytes that the tables take.
    pub(super) fn size_bytes(&self) -> usize {
        self.watched.allocation_size() + self.gone.allocation_size()
    }
}
