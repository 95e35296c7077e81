//! What is noted where a thread waits for a lock whose functions are known, or lets go of one.
//!
//! Most of it is inlined, so that the stack begins with the frame of the function that does it,
//! which is left out. It may be unwound through where a thread is cancelled: functions on that way
//! have the C ABI that unwinds.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;

use super::recorder::{Recorder, Timed};
use super::wait::Wait;
use super::waiters::Waiting;
use crate::sys::arch::Registers;

/// Threads that wait, by [`Wait`]: what lets go of a lock that nobody waits for has nothing more to
/// do than to look here. A forked child inherits how many of its parent's waited, and looks them up
/// in vain.
static WAITING: [CachePadded<AtomicU32>; Wait::KINDS] =
    [const { CachePadded::new(AtomicU32::new(0)) }; Wait::KINDS];

/// Whether any thread waits for something of this kind. *Async-signal-safe.*
#[inline(always)]
pub(super) fn does_any_wait(wait: Wait) -> bool {
    WAITING[wait as usize].load(Ordering::Relaxed) != 0
}

/// How many waits something ends that lets go of a lock.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Ends {
    One,
    All,
    /// It may be a reader's lock among others, or have readers wait for it. Each wait counts at the
    /// first one who answers for it.
    Unknown,
}

/// Charges the calling thread with the time that others have waited for it. Before they are let go:
/// they leave then. *Async-signal-safe.*
#[inline(always)]
pub(super) extern "C-unwind" fn charge(lock: usize, wait: Wait, ends: Ends) {
    if !does_any_wait(wait) {
        return;
    }
    let Some(recorder) = Recorder::of_watched() else {
        return;
    };
    let Some(charge) = recorder.charge(lock as u64) else {
        return;
    };
    let ends = match ends {
        Ends::One => 1,
        Ends::All => charge.0.waiters,
        Ends::Unknown => charge.0.newly,
    };
    if let Some(sample) = recorder.answer(charge, ends) {
        sample.record(Registers::here());
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
    wait: Wait,
}

impl Entered {
    /// *Async-signal-safe.*
    pub(super) fn new(timed: &Timed, lock: usize, wait: Wait) -> Self {
        WAITING[wait as usize].fetch_add(1, Ordering::Relaxed);
        let waiting = timed.enter(lock as u64, wait.number());
        Self { waiting, wait }
    }

    /// The wait begins. *Async-signal-safe.*
    #[inline(always)]
    pub(super) fn begin(&self, timed: &mut Timed) {
        timed.begin(self.waiting.as_ref());
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.waiting = None;
        WAITING[self.wait as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

thread_local! {
    static IS_TIMED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is in a wait that [`timed`] is about. *Async-signal-safe.*
pub(super) fn is_timed() -> bool {
    IS_TIMED.get()
}

/// Does what waits for a lock, and records the wait; futexes that it waits for are in no other
/// record.
#[inline(always)]
pub(super) fn timed<T>(lock: usize, wait: Wait, work: impl FnOnce() -> T) -> T {
    /// Ends it, also where a lock of the program's panics.
    struct Within(Option<Entered>);

    impl Drop for Within {
        fn drop(&mut self) {
            IS_TIMED.set(false);
        }
    }

    let Some(recorder) = Recorder::of_watched() else {
        return work();
    };
    let mut timed = recorder.time(lock as u64);
    let entered = timed.as_ref().map(|timed| Entered::new(timed, lock, wait));
    let within = Within(entered);
    // Also where another wait is timed in its stead.
    IS_TIMED.set(true);
    if let (Some(timed), Some(entered)) = (&mut timed, &within.0) {
        entered.begin(timed);
    }
    let answer = work();
    if let Some(timed) = &mut timed {
        timed.end();
    }
    drop(within);
    if let Some(timed) = timed {
        record_wait(timed, wait);
    }
    answer
}
