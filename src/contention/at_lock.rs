//! What is noted where a thread waits for a lock whose functions are known, or lets go of one.
//!
//! Most of it is inlined, so that the stack begins with the frame of the function that does it,
//! which is left out. It may be unwound through where a thread is cancelled: functions on that way
//! have the C ABI that unwinds.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;

use super::recorder::Recorder;
use super::wait::Wait;
use super::waiters::{Charge, Waiting};
use crate::ring::Role;
use crate::sys::arch::Registers;
use crate::sys::clock::Clock;
use crate::sys::signal::ErrnoGuard;

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
    let (Some(recorder), Ok(now_ns)) = (Recorder::of_watched(), Clock::MONOTONIC.now_ns()) else {
        return;
    };
    let charge = recorder.waiters.charge(lock as u64, now_ns);
    if charge.waiters == 0 {
        return;
    }
    let _errno = ErrnoGuard::new();
    let waiters = match ends {
        Ends::One => 1,
        Ends::All => charge.waiters,
        Ends::Unknown => charge.newly,
    };
    let charge = Charge { waiters, ..charge };
    recorder.record(Registers::here(), Role::Holder, charge, now_ns);
}

/// Records a wait of the calling thread, which is over. *Async-signal-safe.*
#[inline(always)]
pub(super) extern "C-unwind" fn record_wait(recorder: &Recorder, begin_ns: u64, wait: Wait) {
    if let Ok(end_ns) = Clock::MONOTONIC.now_ns() {
        let waits = Charge {
            waiters: 1,
            newly: 1,
            ns: end_ns.saturating_sub(begin_ns),
            caller: wait.number(),
        };
        recorder.record(Registers::here(), Role::Waiter, waits, end_ns);
    }
}

/// A thread is among those who wait, until this is dropped.
pub(super) struct Entered {
    waiting: Option<Waiting<'static>>,
    wait: Wait,
}

impl Entered {
    /// *Async-signal-safe.*
    pub(super) fn new(recorder: &'static Recorder, lock: usize, begin_ns: u64, wait: Wait) -> Self {
        WAITING[wait as usize].fetch_add(1, Ordering::Relaxed);
        let waiting = recorder.waiters.enter(lock as u64, begin_ns, wait.number());
        Self { waiting, wait }
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

/// Whether the calling thread is in a wait that [`timed`] records. *Async-signal-safe.*
pub(super) fn is_timed() -> bool {
    IS_TIMED.get()
}

/// Does what waits for a lock, and records the wait; futexes that it waits for are in no other
/// record.
#[inline(always)]
pub(super) fn timed<T>(lock: usize, wait: Wait, work: impl FnOnce() -> T) -> T {
    /// Ends it, also where a lock of the program's panics.
    struct Timed(#[expect(dead_code, reason = "is dropped")] Entered);

    impl Drop for Timed {
        fn drop(&mut self) {
            IS_TIMED.set(false);
        }
    }

    let (Some(recorder), Ok(begin_ns)) = (Recorder::of_watched(), Clock::MONOTONIC.now_ns()) else {
        return work();
    };
    let timed = Timed(Entered::new(recorder, lock, begin_ns, wait));
    IS_TIMED.set(true);
    let answer = work();
    drop(timed);
    record_wait(recorder, begin_ns, wait);
    answer
}
