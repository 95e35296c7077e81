//! What is noted where a thread waits for a lock whose functions are known, or lets go of one.
//!
//! Most of it is inlined, so that the stack begins with the frame of the function that does it,
//! which is left out. It may be unwound through where a thread is cancelled: functions on that way
//! have the C ABI that unwinds.

use super::looks::Counted;
use super::recorder::{Recorder, Timed};
use super::wait::Wait;
use super::waiters::{Charge, Waiting};
use crate::sys::arch::Registers;

/// What the calling thread is charged with, who is about to end waits of others.
#[derive(Clone, Copy)]
pub(super) struct Charged {
    recorder: &'static Recorder,
    charge: (Charge, u64),
}

/// Charges the calling thread with the time that others have waited for it. *Async-signal-safe.*
#[inline(always)]
pub(super) fn charge(lock: usize) -> Option<Charged> {
    let recorder = Recorder::of_watched()?;
    let charge = recorder.charge(lock as u64)?;
    Some(Charged { recorder, charge })
}

impl Charged {
    /// Records it. After they have been let go: those who wait would wait for that, too.
    /// *Async-signal-safe.*
    #[inline(always)]
    pub(super) fn record(self) {
        if let Some(sample) = self.recorder.answer(self.charge) {
            sample.record(Registers::here());
        }
    }
}

/// Records a wait of the calling thread, which is over. *Async-signal-safe.*
#[inline(always)]
pub(super) extern "C-unwind" fn record_wait(timed: Timed, wait: Wait) {
    if let Some(sample) = timed.sample(wait.number()) {
        sample.record(Registers::here());
    }
}

/// A thread is among those who wait, until this is dropped.
pub(super) struct Entered {
    waiting: Option<Waiting<'static>>,
    _counted: Counted,
}

impl Entered {
    /// If the wait is to be entered. *Async-signal-safe.*
    #[inline(always)]
    pub(super) fn new(timed: &Timed, lock: usize, wait: Wait) -> Option<Self> {
        timed.is_entered().then(|| Self::enter(timed, lock, wait))
    }

    fn enter(timed: &Timed, lock: usize, wait: Wait) -> Self {
        let _counted = Counted::new(lock);
        let waiting = timed.enter(lock as u64, wait.number());
        Self { waiting, _counted }
    }

    /// What those who end the wait know of.
    pub(super) fn waiting(&self) -> Option<&Waiting<'static>> {
        self.waiting.as_ref()
    }
}

/// Does what waits for a lock, and records the wait; futexes that it waits for are in no other
/// record.
#[inline(always)]
pub(super) fn timed<T>(lock: usize, wait: Wait, work: impl FnOnce() -> T) -> T {
    let Some(recorder) = Recorder::of_watched() else {
        return work();
    };
    let mut timed = recorder.time(lock as u64);
    // Whatever becomes of it, and also where a lock of the program's panics.
    let in_wait = recorder.note_lock_wait();
    let entered = Entered::new(&timed, lock, wait);
    let waiting = entered.as_ref().and_then(Entered::waiting);
    timed.begin(waiting);
    let answer = work();
    timed.end(waiting);
    drop(entered);
    drop(in_wait);
    record_wait(timed, wait);
    answer
}
