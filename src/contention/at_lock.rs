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
use super::waiters::{Charge, Waiting};
use crate::sys::arch::Registers;

/// Threads that wait, by [`Wait`]: what lets go of a lock, where nobody waits for any, has nothing
/// more to do than to look here. A forked child inherits how many of its parent's waited, and looks
/// them up in vain.
static WAITING: [CachePadded<AtomicU32>; Wait::KINDS] =
    [const { CachePadded::new(AtomicU32::new(0)) }; Wait::KINDS];

/// The same, by a hash of what they wait for.
static WAITING_AT: [AtomicU32; GROUPS] = [const { AtomicU32::new(0) }; GROUPS];

const GROUPS: usize = 256;

#[inline(always)]
fn waiting_at(lock: usize) -> &'static AtomicU32 {
    // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
    let hash = (lock as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &WAITING_AT[(hash >> (64 - GROUPS.ilog2())) as usize]
}

/// Whether any thread may wait for this, which is of this kind. *Async-signal-safe.*
#[inline(always)]
pub(super) fn may_any_wait(lock: usize, wait: Wait) -> bool {
    WAITING[wait as usize].load(Ordering::Relaxed) != 0
        && waiting_at(lock).load(Ordering::Relaxed) != 0
}

/// What the calling thread is charged with, who is about to end waits of others.
#[derive(Clone, Copy)]
pub(super) struct Charged {
    recorder: &'static Recorder,
    charge: (Charge, u64),
}

/// Charges the calling thread with the time that others have waited for it. Before they are let go:
/// they leave then. *Async-signal-safe.*
#[inline(always)]
pub(super) fn charge(lock: usize, wait: Wait) -> Option<Charged> {
    if !may_any_wait(lock, wait) {
        return None;
    }
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
    wait: Wait,
    at: &'static AtomicU32,
}

impl Entered {
    /// *Async-signal-safe.*
    pub(super) fn new(timed: &Timed, lock: usize, wait: Wait) -> Self {
        WAITING[wait as usize].fetch_add(1, Ordering::Relaxed);
        let at = waiting_at(lock);
        at.fetch_add(1, Ordering::Relaxed);
        let waiting = timed.enter(lock as u64, wait.number());
        Self { waiting, wait, at }
    }

    /// Whether those who end the wait can be charged with it.
    pub(super) fn is_known(&self) -> bool {
        self.waiting.is_some()
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
        self.at.fetch_sub(1, Ordering::Relaxed);
        WAITING[self.wait as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Threads that are in a wait that [`timed`] is about.
static TIMED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Touched only where there are such threads. In a library that was loaded later, the first
    /// touch allocates, which no stand-in for a lock may do: an allocator's is among them.
    static IS_TIMED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is in a wait that [`timed`] is about. *Async-signal-safe.*
pub(super) fn is_timed() -> bool {
    TIMED.load(Ordering::Relaxed) != 0 && IS_TIMED.get()
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
            TIMED.fetch_sub(1, Ordering::Relaxed);
        }
    }

    let Some(recorder) = Recorder::of_watched() else {
        return work();
    };
    let mut timed = recorder.time(lock as u64);
    let entered = timed.as_ref().map(|timed| Entered::new(timed, lock, wait));
    let within = Within(entered);
    // Also where another wait is timed in its stead.
    TIMED.fetch_add(1, Ordering::Relaxed);
    IS_TIMED.set(true);
    if let (Some(timed), Some(entered)) = (&mut timed, &within.0) {
        entered.begin(timed);
    }
    let answer = work();
    if let Some(timed) = &mut timed {
        timed.end();
    }
    let is_known = within.0.as_ref().is_none_or(Entered::is_known);
    drop(within);
    if let Some(timed) = timed {
        if !is_known {
            timed.lose_holder();
        }
        record_wait(timed, wait);
    }
    answer
}
