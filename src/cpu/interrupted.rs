//! System calls of the program's that a tick has interrupted.

use std::sync::atomic::Ordering;

use super::handler::Ticked;
use super::recorder::Owner;
use crate::restart::{Number, Outcome, Sought, call_of, number_in, restart};
use crate::ring::Source;
use crate::sys::arch::{InterruptedCall, Registers};
use crate::sys::memory::copy_from;
use crate::sys::signal::Tick;
use crate::sys::thread::current_tid;
use crate::unwind::{Cache, Snapshot, Subject};

/// Has a system call of the program's begin again that a tick interrupted, where that does no harm,
/// and counts it. A program that sends the signal to itself asks for `EINTR`, too.
///
/// # Safety
///
/// As for [`restart`]; the registers are the context's.
#[cold]
#[inline(never)]
pub(super) unsafe fn go_on_with(
    call: &InterruptedCall,
    context: *const libc::c_void,
    registers: Registers,
    tick: Tick,
    ticked: Option<Ticked>,
) {
    let seen = match tick {
        Tick::Look { call, .. } => call,
        _ => None,
    };
    let is_ours = match ticked {
        Some(ticked) => ticked.source != Source::Program,
        None => matches!(tick, Tick::Look { .. }),
    };
    if !is_ours {
        return;
    }
    let repeats = ticked.and_then(|ticked| Some(&ticked.slot?.repeats));
    // SAFETY: by the caller's contract.
    let outcome = unsafe {
        restart(context, call, seen, repeats, || {
            ticked?.number_of(call, registers)
        })
    };
    count(outcome);
}

/// How often a lane is asked for that the call's number can be found by.
const MOST_TRIES: usize = 32;

impl Ticked {
    /// The number of an interrupted call.
    fn number_of(&self, call: &InterruptedCall, registers: Registers) -> Option<u32> {
        let capture = &self.recorder.capture;
        let epoch = capture.snapshot.epoch();
        let claim = (0..MOST_TRIES).find_map(|_| {
            let claim = capture.rack.claim(current_tid() as u32, epoch, 0).ok();
            if claim.is_none() {
                // Threads that have lost their CPUs in handlers hold all lanes.
                std::thread::yield_now();
            }
            claim
        })?;
        // As where a sample is written.
        (self.owner.recording.load(Ordering::Relaxed) == self.recording).then_some(())?;
        // SAFETY: the claim carries the epoch that was read before it, and lives until the end of
        // this function.
        let snapshot = unsafe { capture.snapshot.get() }?;
        let bench = capture.bench(&claim)?;
        let mut number = None;
        // SAFETY: the claim is held; looking through the code returns.
        unsafe {
            bench.work(|cache| {
                number = number_of(call, registers, snapshot, capture.subject(), cache);
            });
        };
        number
    }
}

/// The number of an interrupted call, as the code before it says; or that of the caller, where the
/// number was passed. *Async-signal-safe*; takes 12 KiB of stack.
fn number_of(
    call: &InterruptedCall,
    registers: Registers,
    snapshot: &Snapshot,
    subject: Subject,
    cache: &mut Cache,
) -> Option<u32> {
    let mut sought = Sought::at_call(call.instruction());
    let mut sp = call.sp;
    let mut callers = None;
    for level in 0..2 {
        let function = snapshot.function_of(sought.place)?;
        let number = snapshot
            .numbers()
            .get_or(sought, || number_in(function.clone(), sought));
        if let Number::Known(number) = number {
            return Some(number);
        }
        let callers =
            callers.get_or_insert_with(|| snapshot.callers::<2>(registers, subject, cache));
        let caller = callers.get(level).copied().flatten()?;
        match number {
            // An argument that was passed there, and not what the function keeps there, for which
            // it could use the place once more.
            Number::Stack(offset) => {
                let place = sp.wrapping_add(offset.into());
                return (place >= caller.sp).then(|| word_at(place)).flatten();
            }
            Number::Given(register) => {
                let place = call_of(function.start, caller.return_address)?;
                sought = Sought { place, register };
                sp = caller.sp;
            }
            Number::Known(_) | Number::Unknown => return None,
        }
    }
    None
}

/// The lower half of a word, which is all of it that a system call's number is read from.
fn word_at(place: u64) -> Option<u32> {
    let mut bytes = [0; 8];
    copy_from(place, &mut bytes)?;
    u32::try_from(u64::from_ne_bytes(bytes)).ok()
}

/// Counts a system call that a tick interrupted.
fn count(outcome: Outcome) {
    let recorder = Owner::get().and_then(Owner::recorder);
    let Some(counters) = recorder.and_then(|recorder| recorder.counters(0)) else {
        return;
    };
    let counter = match outcome {
        Outcome::BeginsAgain => &counters.restarted,
        Outcome::Fails => &counters.interrupted,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}
