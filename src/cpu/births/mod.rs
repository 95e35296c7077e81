//! Threads that arm themselves: what the hook on thread creation runs on a new thread, and what the
//! flusher is told of it.
#![forbid(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::arming::{Armed, Arming, Budget, Choice};
use super::choice::QUIET;
use super::events::Events;
use super::handler::Cookie;
use super::recorder::{Owner, Recorder};
use crate::random::Random;
use crate::slots::{Claim, is_before, next_number};
use crate::sync::Mutex;
use crate::sys::clock::Clock;
use crate::sys::futex::Futex;
use crate::sys::signal::{block, unblock, with_signals_blocked};
use crate::sys::thread::{current_name, current_tid};
use crate::sys::thread_hook::Callbacks;

#[cfg(test)]
pub(super) mod tests;

/// What threads are armed with, and those that have begun or ended since the flusher last asked.
#[derive(Debug, Default)]
pub(super) struct Births {
    /// Held by [`with_told`](Self::with_told) alone.
    told: Mutex<Told>,
    pub(super) budget: Budget,
}

#[derive(Debug, Default)]
struct Told {
    /// `None` while threads are not to arm themselves.
    arming: Option<Arming>,
    events: Vec<Event>,
}

/// What became of a thread.
#[derive(Debug)]
pub(super) enum Event {
    Born(Born),
    Ended(Ended),
}

/// A thread that is known to the recording from its beginning.
#[derive(Debug)]
pub(super) struct Born {
    pub(super) serial: u32,
    pub(super) tid: i32,
    pub(super) slot: u32,
    pub(super) at: Instant,
    /// Its CPU time before it was armed: what it took to begin.
    pub(super) cpu_ns: u64,
    pub(super) armed: Armed,
}

/// A thread that is about to be gone.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) serial: u32,
    pub(super) tid: i32,
    pub(super) at: Instant,
    pub(super) cpu_ns: u64,
    /// Its name, filled up with zeros.
    pub(super) name: [u8; 16],
}

/// Threads that can begin or end between two turns of the flusher.
const MOST_EVENTS: usize = 16 * 1024;

/// So many wake the flusher, which gives back the clocks of those that have ended.
const EVENTS_TO_WAKE: usize = 256;

/// Room for what threads tell, which is never added to. Somebody may hold the allocator's lock and
/// wait for a thread to begin: so neither may the thread allocate or free, nor anybody else while
/// the lock is held that the thread takes to tell.
pub(super) fn room() -> Vec<Event> {
    Vec::with_capacity(MOST_EVENTS)
}

impl Births {
    /// From now on threads that begin arm themselves.
    pub(super) fn open(&self, arming: Arming) {
        let room = room();
        // So that no thread's beginning has to make the seed.
        random();
        let old = self.with_told(|told| {
            told.arming = Some(arming);
            std::mem::replace(&mut told.events, room)
        });
        drop(old);
    }

    /// From now on they do it another way.
    pub(super) fn change(&self, arming: Arming) {
        self.with_told(|told| told.arming = Some(arming));
    }

    /// From now on they do not. What they have told already is still to be taken.
    pub(super) fn close(&self) {
        self.with_told(|told| told.arming = None);
    }

    /// What has happened since the last call, in order, in exchange for [`room`]. Waits for a
    /// thread that is telling.
    pub(super) fn take(&self, room: Vec<Event>) -> Vec<Event> {
        self.with_told(|told| std::mem::replace(&mut told.events, room))
    }

    /// As [`take`](Self::take), but gives the room back while a thread is telling.
    pub(super) fn try_take(&self, room: Vec<Event>) -> Result<Vec<Event>, Vec<Event>> {
        with_signals_blocked(|| match self.told.try_lock() {
            Some(mut told) => Ok(std::mem::replace(&mut told.events, room)),
            None => Err(room),
        })
    }

    /// Gives the room back, once nobody tells anything any more.
    pub(super) fn forget(&self) {
        drop(self.take(Vec::new()));
    }

    /// How threads are to arm themselves in a recording, while they are.
    fn arming(&self, recording: u32) -> Option<Arming> {
        let arming = self.with_told(|told| told.arming);
        arming.filter(|arming| arming.recording == recording)
    }

    /// Gives the event back where it cannot be told.
    fn tell(&self, recording: u32, event: Event, doorbell: &Futex) -> Result<(), Event> {
        let number = self.with_told(|told| {
            #[cfg(test)]
            tests::dawdle(&tests::WHILE_TELLING_NS);
            // After the end there is nobody to tell. Where there is no room left, a scan finds the
            // thread.
            let is_told = told
                .arming
                .is_some_and(|arming| arming.recording == recording)
                && told.events.len() < told.events.capacity();
            match is_told {
                true => told.events.push(event),
                false => return Err(event),
            }
            Ok(told.events.len())
        })?;
        if number == EVENTS_TO_WAKE {
            doorbell.wake_once();
        }
        Ok(())
    }

    /// Holds what is told, without being interrupted: a handler of the program's may wait for a
    /// thread that begins, which waits for this.
    fn with_told<T>(&self, f: impl FnOnce(&mut Told) -> T) -> T {
        with_signals_blocked(|| f(&mut self.told.lock()))
    }
}

/// What the hook on thread creation calls.
pub(super) const CALLBACKS: Callbacks = Callbacks { create, begin, end };

/// A serial number for a thread that is about to be created, for its [`begin`]. Runs on the thread
/// that creates it.
fn create() -> u32 {
    let number = next_number();
    #[cfg(test)]
    tests::dawdle(&tests::BEFORE_CLONE_NS);
    number
}

/// Runs on a thread that begins, before anything of its own. Whether [`end`] is to run when it
/// ends.
fn begin(serial: u32) -> bool {
    #[cfg(test)]
    tests::dawdle(&tests::BEFORE_ASKING_NS);
    let Some((recording, recorder)) = running() else {
        return false;
    };
    let Some(arming) = recorder.births.arming(recording) else {
        return false;
    };
    if is_before(serial, recording) {
        // What a clock under this number says would be taken for an earlier recording's. A scan
        // gives the thread another one.
        return true;
    }
    let tid = current_tid();
    #[cfg(test)]
    tests::dawdle(&tests::BEFORE_CLAIM_NS);
    let (slot, taken) = match recorder.slots.claim_own(tid, serial) {
        Claim::Granted(slot, taken) => (slot, taken),
        // A scan was first, and has its clock ready.
        Claim::Held(_) => return true,
        Claim::Full => return false,
    };
    let births = &recorder.births;
    #[cfg(test)]
    tests::dawdle(&tests::BEFORE_CLOCK_NS);
    if running().is_none_or(|(now, _)| now != recording) {
        // Nobody would count what such a clock sends.
        taken.release(serial);
        return true;
    }
    let cpu_ns = Clock::THREAD_CPU.now_ns().unwrap_or(0);
    let armed = arm(&audible(arming), recorder, tid, slot, serial);
    let born = Event::Born(Born {
        serial,
        tid,
        slot,
        at: Instant::now(),
        cpu_ns,
        armed,
    });
    #[cfg(test)]
    tests::dawdle(&tests::BEFORE_TELLING_NS);
    let Err(untold) = births.tell(recording, born, &recorder.capture.doorbell) else {
        return true;
    };
    // A scan, perhaps of a later recording, finds the thread.
    if let Event::Born(Born {
        armed: Armed {
            clock: Some(clock), ..
        },
        ..
    }) = &untold
    {
        births.budget.give_back(clock);
    }
    // The clock before the right to have one.
    drop(untold);
    taken.release(serial);
    true
}

/// How the calling thread is armed so that it hears its clock. Many a library blocks all signals
/// while it creates its workers (liblzma does), so that the program's handlers run elsewhere.
///
/// The signal of timers is ours alone, so it is unblocked. `SIGURG` is not: a program that takes it
/// by `sigwait` or a `signalfd` would lose it to a thread that does not block it.
fn audible(arming: Arming) -> Arming {
    let choice = match arming.choice {
        Choice::Nothing => Choice::Nothing,
        choice => match unblock(&[arming.signal]).has(arming.quiet) {
            true => Choice::ThreadTimer,
            false => choice,
        },
    };
    Arming { choice, ..arming }
}

/// Runs on a thread that ends, when nothing of its own is left to run.
fn end() {
    let Some((recording, recorder)) = running() else {
        return;
    };
    let tid = current_tid();
    let Some(slot) = recorder.slots.find(tid) else {
        return;
    };
    // What its clock sent from here on would come when that is deleted already.
    block(&[recorder.signal.load(Ordering::Relaxed), QUIET]);
    let ended = Ended {
        serial: slot.serial(),
        tid,
        at: Instant::now(),
        cpu_ns: Clock::THREAD_CPU.now_ns().unwrap_or(0),
        name: current_name(),
    };
    // Where that cannot be told, a scan misses the thread.
    let _ = recorder
        .births
        .tell(recording, Event::Ended(ended), &recorder.capture.doorbell);
}

/// A clock for a thread with a slot.
pub(super) fn arm(arming: &Arming, recorder: &Recorder, tid: i32, slot: u32, serial: u32) -> Armed {
    let Births { budget, .. } = &recorder.births;
    let events: &Events = &recorder.events;
    let random = [Purpose::Phase, Purpose::Early]
        .map(|purpose| random_part(arming.rate.period, serial, purpose));
    match recorder.slots.at(slot) {
        Some(taken) => {
            let cookie = Cookie::of_thread(serial, slot);
            arming.arm(tid, (cookie, taken), random, budget, events)
        }
        None => Armed::default(),
    }
}

fn running() -> Option<(u32, &'static Recorder)> {
    let owner = Owner::get()?;
    match owner.recording.load(Ordering::Acquire) {
        0 => None,
        recording => Some((recording, owner.recorder()?)),
    }
}

/// What a random part of a period is for: a thread's parts do not depend on each other.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Purpose {
    /// The time before a clock's first tick.
    Phase,
    /// By how much a period ends before an event's tick.
    Early,
    /// What a thread is owed of elapsed time when it begins.
    Carried,
}

/// A part of a period, evenly spread over (0, period], for a thread and a purpose: so that for
/// instance the time before a thread's first tick is neither always counted nor never.
pub(super) fn random_part(period: Duration, serial: u32, purpose: Purpose) -> Duration {
    let index = u64::from(serial) << 2 | purpose as u64;
    let below = random().nth_below(index, period.as_nanos() as u64);
    Duration::from_nanos(below + 1)
}

/// The process's random numbers.
fn random() -> Random {
    static RANDOM: OnceLock<Random> = OnceLock::new();
    *RANDOM.get_or_init(Random::new)
}
