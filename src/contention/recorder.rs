//! What a thread that has waited reaches: lanes, and the word that says whether the process is
//! watched.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::pace::Pace;
use super::sampling::{self, Waits};
use super::shares::{Group, Shares, draw};
use super::waiters::{Charge, Waiters, Waiting};
use crate::capture::Capture;
use crate::ring::{RecordWriter, Role, WaitWriter};
use crate::sys::arch::Registers;
use crate::sys::clock::Clock;
use crate::sys::own_threads::thread_sets;
use crate::sys::per_process::PerProcess;
use crate::sys::signal::ErrnoGuard;
use crate::sys::thread::thread_pointer;
use crate::sys::thread_sets::{Member, Set, ThreadSets};

/// A forked child is not watched.
static RECORDER: PerProcess<Recorder> = PerProcess::new();

/// Words of a lane: 128 KiB, some 400 stacks of usual depth.
const LANE_WORDS: usize = 16 * 1024;

/// Lanes to begin with.
const LANES: usize = 8;

/// The deepest stack that is recorded, in frames.
const MAX_DEPTH: usize = 128;

/// What the threads of a process work with that wait. Never freed.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) capture: Capture,
    pub(super) pace: Pace,
    pub(super) shares: Shares,
    /// Those who wait now.
    pub(super) waiters: Waiters,
    /// In which threads are whose waits are not those of the program, or are timed already.
    threads: &'static ThreadSets,
    is_watched: AtomicBool,
    /// By [`Role`].
    lost: [Lost; 2],
}

/// Waits that found no lane, no room in one, or no leave to record a stack; and their nanoseconds,
/// as they stand for all.
#[derive(Debug, Default)]
struct Lost {
    waits: AtomicU64,
    ns: AtomicU64,
    /// How many timed ones they stand for.
    timed: AtomicU64,
}

/// A wait of the calling thread, which may be entered, and timed: [`Shares`] says why one and the
/// other.
///
/// What is done for it is done before it begins and after it has ended: where it is short, that
/// takes longer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Timed {
    recorder: &'static Recorder,
    group: &'static Group,
    one_of: u32,
    is_entered: bool,
    is_timed: bool,
    /// Whether its holder is lost, where it is entered.
    is_holder_lost: bool,
    begin_ns: u64,
    end_ns: u64,
}

/// Waits that are sampled: what a record says besides the stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    recorder: &'static Recorder,
    role: Role,
    waits: u32,
    waited_ns: u64,
    mean_ns: u64,
    /// As in [`Charge::caller`].
    caller: u64,
}

impl Timed {
    /// Whether the wait is entered: whoever ends it shall know of it. *Async-signal-safe.*
    #[inline(always)]
    pub(super) fn is_entered(&self) -> bool {
        self.is_entered
    }

    /// Has the waiter be known to whoever ends its wait for what is at an address; `caller` is as
    /// in [`Charge::caller`]. Where there is no room, its holder is lost. *Async-signal-safe.*
    pub(super) fn enter(&self, address: u64, caller: u64) -> Option<Waiting<'static>> {
        self.recorder.waiters.enter(address, self.one_of, caller)
    }

    /// The wait begins. *Async-signal-safe.*
    #[inline(always)]
    pub(super) fn begin(&mut self, waiting: Option<&Waiting<'static>>) {
        self.begin_ns = now_ns();
        if let Some(waiting) = waiting {
            waiting.begin(self.begin_ns);
        }
    }

    /// The wait is over. *Async-signal-safe.*
    #[inline(always)]
    pub(super) fn end(&mut self, waiting: Option<&Waiting<'static>>) {
        if self.is_timed || self.is_entered {
            self.end_ns = now_ns();
        }
        if self.is_entered {
            let was_answered = waiting.is_some_and(Waiting::end);
            // Where holders look before they let go, the one who has not answered is not known.
            self.is_holder_lost = waiting.is_none() || (self.one_of > 1 && !was_answered);
        }
        if self.is_timed {
            self.group.note_drawn();
        }
    }

    fn ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// What is to be recorded of it. *Async-signal-safe.*
    #[inline(always)]
    pub(super) fn sample(self, caller: u64) -> Option<Sample> {
        if self.is_entered {
            self.note_entered();
        }
        self.is_timed.then(|| {
            self.group.note_timed(self.ns());
            let ns = self.ns() * u64::from(self.one_of);
            (self.recorder).sample(Role::Waiter, self.one_of, ns, caller, self.end_ns)
        })?
    }

    fn note_entered(&self) {
        self.group.note_entered(self.ns());
        if self.is_holder_lost {
            let waits = Waits {
                count: self.one_of.into(),
                ns: self.group.weighted(self.ns(), self.one_of),
            };
            // No stack would have been recorded, which the pace is about.
            self.recorder.lose(Role::Holder, waits, 0.0);
        }
    }
}

/// The time. There is no Linux without this clock. *Async-signal-safe.*
#[inline(always)]
fn now_ns() -> u64 {
    Clock::MONOTONIC.now_ns().unwrap_or(0)
}

impl Recorder {
    /// That of this process, if it was ever watched. *Async-signal-safe.*
    pub(super) fn get() -> Option<&'static Self> {
        RECORDER.get()
    }

    /// The same, made if need be.
    pub(super) fn get_or_make() -> io::Result<&'static Self> {
        if let Some(recorder) = Self::get() {
            return Ok(recorder);
        }
        let recorder = Self {
            capture: Capture::new(LANES, LANE_WORDS)?,
            pace: Pace::new(),
            shares: Shares::new(),
            waiters: Waiters::new()?,
            threads: thread_sets()?,
            is_watched: AtomicBool::new(false),
            lost: Default::default(),
        };
        RECORDER.get_or_make(|| recorder)
    }

    /// That of this process, if it is watched, and the calling thread is not one of the profiler's
    /// own, or in a wait that is timed already. *Async-signal-safe.*
    pub(super) fn of_watched() -> Option<&'static Self> {
        Self::get()
            .filter(|recorder| recorder.is_watched() && !recorder.threads.has_caller_in_any())
    }

    /// The calling thread waits for a lock, until this is dropped: futexes that it waits for are
    /// part of that. *Async-signal-safe.*
    pub(super) fn note_lock_wait(&self) -> Option<Member<'static>> {
        self.threads.join(Set::LockWait)
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Acquire)
    }

    pub(super) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// Waits that are in no stack since this was asked the last time, and for how many timed ones
    /// they stand.
    pub(super) fn take_lost(&self, role: Role) -> (Waits, u64) {
        let Lost { waits, ns, timed } = &self.lost[role as usize];
        let [waits, ns, timed] = [waits, ns, timed].map(|n| n.swap(0, Ordering::Relaxed));
        let count = waits as f64;
        (Waits { count, ns }, timed)
    }

    /// A wait of the calling thread for what is at an address, which is about to begin.
    /// *Async-signal-safe.*
    #[inline(always)]
    pub(super) fn time(&'static self, address: u64) -> Timed {
        let group = self.shares.group(address);
        let one_of = group.one_of();
        let [is_entered, is_timed] = draw(one_of);
        Timed {
            recorder: self,
            group,
            one_of,
            is_entered,
            is_timed,
            is_holder_lost: false,
            begin_ns: 0,
            end_ns: 0,
        }
    }

    /// The calling thread ends waits for what is at an address: what is known of those.
    /// *Async-signal-safe.*
    pub(super) fn charge(&'static self, address: u64) -> Option<(Charge, u64)> {
        if !self.waiters.has_any_at(address) {
            return None;
        }
        let now_ns = now_ns();
        let group = self.shares.group(address);
        let charge = self
            .waiters
            .charge(address, now_ns, |ns, one_of| group.weighted(ns, one_of));
        (charge != Charge::default()).then_some((charge, now_ns))
    }

    /// The calling thread has ended waits with which it was charged: what is to be recorded of
    /// that. *Async-signal-safe.*
    pub(super) fn answer(&'static self, (charge, now_ns): (Charge, u64)) -> Option<Sample> {
        self.sample(Role::Holder, charge.waits, charge.ns, charge.caller, now_ns)
    }

    /// Counts waits that are in no stack.
    fn lose(&self, role: Role, waits: Waits, timed: f64) {
        let lost = &self.lost[role as usize];
        let whole = |count: f64| count.round() as u64;
        (lost.waits).fetch_add(whole(waits.count), Ordering::Relaxed);
        (lost.timed).fetch_add(whole(timed), Ordering::Relaxed);
        lost.ns.fetch_add(waits.ns, Ordering::Relaxed);
    }

    /// Waits that took so long in all, if they are a sample.
    fn sample(
        &'static self,
        role: Role,
        waits: u32,
        waited_ns: u64,
        caller: u64,
        now_ns: u64,
    ) -> Option<Sample> {
        let (waited_ns, mean_ns) = (waited_ns.max(1), self.pace.mean_ns());
        // A thread records one thing at a time.
        let seed = now_ns ^ thread_pointer().rotate_left(32);
        sampling::is_sampled(waited_ns, mean_ns, seed).then_some(Sample {
            recorder: self,
            role,
            waits,
            waited_ns,
            mean_ns,
            caller,
        })
    }
}

impl Sample {
    /// Records it with the stack of the calling thread, which was the waiter or has ended waits;
    /// the registers are those of the function that stands in for the one that did. It leaves errno
    /// alone. *Async-signal-safe.*
    #[cold]
    pub(super) fn record(self, registers: Registers) {
        let _errno = ErrnoGuard::new();
        let recorder = self.recorder;
        let is_recorded = match recorder.pace.take() {
            true => self.write(registers).is_some(),
            false => {
                // So that it is paced soon.
                recorder.capture.doorbell.wake_once();
                false
            }
        };
        if !is_recorded {
            let [waits, timed] = [self.waits, 1]
                .map(|count| sampling::stands_for(count, self.waited_ns, self.mean_ns));
            recorder.lose(self.role, waits, timed.count);
        }
    }

    /// Writes a record, where there is room: with the address that the waiter's call returns to in
    /// the place of the first frame, that of the stand-in.
    fn write(self, registers: Registers) -> Option<()> {
        let Self {
            recorder,
            role,
            waits,
            waited_ns,
            mean_ns,
            caller,
        } = self;
        let capture = &recorder.capture;
        let hint = (thread_pointer() >> 8) as u32;
        let words = RecordWriter::words(MAX_DEPTH);
        let epoch = capture.snapshot.epoch();
        let claim = capture.rack.claim(hint, epoch, words);
        if capture.rack.is_crowded() {
            capture.doorbell.wake_once();
        }
        let mut claim = claim.inspect_err(|_| capture.doorbell.wake_once()).ok()?;
        // A watch that ended before the claim could be seen is seen here (the claim ends in a
        // fence), and one that ends later waits for it.
        if !recorder.is_watched() {
            return Some(());
        }
        // SAFETY: the claim carries the epoch that was read before it, and lives until the end of
        // this function.
        let snapshot = unsafe { capture.snapshot.get() }?;
        let bench = capture.bench(&claim)?;
        let writer = WaitWriter {
            role,
            waits,
            waited_ns,
            mean_ns,
            epoch: snapshot.epoch(),
        };
        let mut is_urgent = None;
        // SAFETY: the claim is held; unwinding returns.
        unsafe {
            bench.work(|cache| {
                is_urgent = claim.write(words, |space| {
                    let unwind = |frames: &mut [u64]| {
                        let unwound = capture.unwind(snapshot, registers, cache, frames);
                        if let Some(first) = frames.first_mut() {
                            *first = caller;
                        }
                        unwound
                    };
                    writer.write(space, unwind)
                });
            });
        }
        if is_urgent? {
            capture.doorbell.wake_once();
        }
        Some(())
    }
}
