//! Threads that arm themselves: what the hook on thread creation runs on a new thread, and what the flusher is told of it.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::arming::{Armed, Arming, Budget, ThreadClock};
use super::events::Events;
use super::recorder::{Owner, Recorder};
use crate::slots::{Slots, User};
use crate::sync::Mutex;
use crate::sys::clock::Clock;
use crate::sys::futex::Futex;
use crate::sys::thread::{current_name, current_tid};

/// What threads are armed with, and those that have begun or ended since the flusher last asked.
#[derive(Debug, Default)]
pub(super) struct Births {
    told: Mutex<Told>,
    last_serial: AtomicU32,
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

/// Room for what threads tell, which is never added to. Somebody may hold the allocator's lock and wait for a thread to begin: so
/// neither may the thread allocate or free, nor anybody else while the lock is held that the thread takes to tell.
pub(super) fn room() -> Vec<Event> {
    Vec::with_capacity(MOST_EVENTS)
}

impl Births {
    /// From now on threads that begin arm themselves.
    pub(super) fn open(&self, arming: Arming) {
        let room = room();
        // So that no thread's beginning has to make the seed.
        random((0, 0));
        let old = {
            let mut told = self.told.lock();
            told.arming = Some(arming);
            std::mem::replace(&mut told.events, room)
        };
        drop(old);
    }

    /// From now on they do it another way.
    pub(super) fn change(&self, arming: Arming) {
        self.told.lock().arming = Some(arming);
    }

    /// From now on they do not. What they have told already is still to be taken.
    pub(super) fn close(&self) {
        self.told.lock().arming = None;
    }

    /// What has happened since the last call, in order, in exchange for [`room`].
    pub(super) fn take(&self, room: Vec<Event>) -> Vec<Event> {
        std::mem::replace(&mut self.told.lock().events, room)
    }

    /// A number for a thread, which no other thread gets as long as this process lives.
    pub(super) fn next_serial(&self) -> u32 {
        // 0 says "no thread of its own".
        match self
            .last_serial
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1)
        {
            0 => self.next_serial(),
            serial => serial,
        }
    }

    /// Gives the room back, once nobody tells anything any more.
    pub(super) fn forget(&self) {
        drop(self.take(Vec::new()));
    }

    /// Gives the event back where it cannot be told.
    fn tell(&self, recording: u32, event: Event, doorbell: &Futex) -> Result<(), Event> {
        let mut told = self.told.lock();
        // After the end there is nobody to tell. Where there is no room left, a scan finds the thread.
        let is_told = told
            .arming
            .is_some_and(|arming| arming.recording == recording)
            && told.events.len() < told.events.capacity();
        match is_told {
            true => told.events.push(event),
            false => return Err(event),
        }
        if told.events.len() == EVENTS_TO_WAKE {
            drop(told);
            doorbell.wake_once();
        }
        Ok(())
    }
}

/// Runs on a thread that begins, before anything of its own. Whether [`end`] is to run when it ends.
pub(super) fn begin() -> bool {
    let Some((recording, recorder)) = running() else {
        return false;
    };
    let arming = recorder.births.told.lock().arming;
    let Some(arming) = arming.filter(|arming| arming.recording == recording) else {
        return false;
    };
    let tid = current_tid();
    let Some(slot) = take_slot(recorder.slots, tid) else {
        return false;
    };
    let births = &recorder.births;
    let serial = births.next_serial();
    if let Some(taken) = recorder.slots.at(slot) {
        taken.begin(serial);
    }
    let cpu_ns = Clock::THREAD_CPU.now_ns().unwrap_or(0);
    let armed = arm(&arming, recorder, tid, slot, serial);
    let born = Event::Born(Born {
        serial,
        tid,
        slot,
        at: Instant::now(),
        cpu_ns,
        armed,
    });
    let Err(untold) = births.tell(recording, born, &recorder.doorbell) else {
        return true;
    };
    if let Event::Born(Born {
        armed: Armed {
            clock: Some(clock), ..
        },
        ..
    }) = &untold
    {
        if let ThreadClock::PerfEvent(event) = clock {
            recorder.events.clear(event.fd(), arming.cookie(slot));
        }
        births.budget.give_back(clock);
    }
    if let Some(taken) = recorder.slots.at(slot) {
        taken.serial.store(0, Ordering::Relaxed);
        taken.release(User::Recording);
    }
    false
}

/// Runs on a thread that ends, when nothing of its own is left to run.
pub(super) fn end() {
    let Some((recording, recorder)) = running() else {
        return;
    };
    let tid = current_tid();
    let Some(slot) = recorder.slots.find(tid) else {
        return;
    };
    let ended = Ended {
        serial: slot.serial.load(Ordering::Relaxed),
        tid,
        at: Instant::now(),
        cpu_ns: Clock::THREAD_CPU.now_ns().unwrap_or(0),
        name: current_name(),
    };
    // Where that cannot be told, a scan misses the thread.
    let _ = recorder
        .births
        .tell(recording, Event::Ended(ended), &recorder.doorbell);
}

/// A clock for a thread with a slot.
pub(super) fn arm(arming: &Arming, recorder: &Recorder, tid: i32, slot: u32, serial: u32) -> Armed {
    let Births { budget, .. } = &recorder.births;
    let events: &Events = &recorder.events;
    let random = [0, 1].map(|purpose| random_part(arming.rate.period, serial, purpose));
    match recorder.slots.at(slot) {
        Some(taken) => arming.arm(tid, (slot, taken), random, budget, events),
        None => Armed::default(),
    }
}

/// A slot for a new thread. Where one of its id is left, its thread is gone.
fn take_slot(slots: &Slots, tid: i32) -> Option<u32> {
    if let Some(stale) = slots.find(tid) {
        stale.forget_thread();
    }
    Some(slots.claim(tid, User::Recording)?.0)
}

fn running() -> Option<(u32, &'static Recorder)> {
    let owner = Owner::get()?;
    match owner.recording.load(Ordering::Acquire) {
        0 => None,
        recording => Some((recording, owner.recorder()?)),
    }
}

/// A part of a period, evenly spread over (0, period], for a thread and a purpose: so that for instance the time before a
/// thread's first tick is neither always counted nor never.
pub(super) fn random_part(period: Duration, serial: u32, purpose: u32) -> Duration {
    let random = random((serial, purpose));
    let period_ns = period.as_nanos() as u64;
    // The high half of the product is uniform in [0, period).
    let below = ((u128::from(random) * u128::from(period_ns)) >> 64) as u64;
    Duration::from_nanos(below + 1)
}

/// Evenly spread over all 64-bit numbers, and different in each process.
fn random(key: (u32, u32)) -> u64 {
    use std::hash::BuildHasher;
    use std::sync::OnceLock;
    static SEED: OnceLock<hashbrown::DefaultHashBuilder> = OnceLock::new();
    SEED.get_or_init(Default::default).hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_spread_over_the_period() {
        let period = Duration::from_millis(10);
        let phases: Vec<Duration> = (1..=10_000).map(|i| random_part(period, i, 0)).collect();
        assert!(phases.iter().all(|p| !p.is_zero() && *p <= period));
        let mean = phases.iter().sum::<Duration>() / 10_000;
        assert!(
            mean > period * 49 / 100 && mean < period * 51 / 100,
            "{mean:?}"
        );
    }
}
