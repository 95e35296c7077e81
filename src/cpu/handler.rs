//! The signal handler's body, and nothing else.

use std::sync::atomic::Ordering;

use super::recorder::{Owner, Recorder};
use crate::ring::{RecordWriter, Refused};
use crate::sys::arch::Registers;
use crate::sys::signal::{ErrnoGuard, Tick};
use crate::sys::thread::current_tid;

/// What a timer's signal carries: the recording it belongs to and the thread it was armed for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Cookie {
    /// The recording's number, never 0.
    pub(super) recording: u32,
    /// The thread's serial number in it; 0 for a timer of the whole process.
    pub(super) thread_serial: u32,
}

impl Cookie {
    pub(super) fn to_u64(self) -> u64 {
        u64::from(self.recording) << 32 | u64::from(self.thread_serial)
    }

    fn from_u64(value: u64) -> Self {
        Self {
            recording: (value >> 32) as u32,
            thread_serial: value as u32,
        }
    }
}

/// Handles `SIGPROF`. *Async-signal-safe.*
///
/// While nothing is recorded (before, after, or in a forked child) it does nothing.
pub(super) extern "C" fn on_signal(
    _signal: libc::c_int,
    info: *const libc::siginfo_t,
    context: *const libc::c_void,
) {
    let _errno = ErrnoGuard::new();
    let Some(owner) = Owner::get() else { return };
    let recording = owner.recording.load(Ordering::Acquire);
    if recording == 0 {
        return;
    }
    let Some(recorder) = owner.recorder() else {
        return;
    };
    // SAFETY: the kernel passes both as `SA_SIGINFO` has it.
    let (tick, registers) =
        unsafe { (Tick::from_siginfo(info), Registers::from_ucontext(context)) };
    match tick {
        Tick::Timer { cookie, overrun } => {
            let cookie = Cookie::from_u64(cookie);
            if cookie.recording != recording {
                return foreign(recorder);
            }
            let sample = Sample {
                recording,
                thread_serial: cookie.thread_serial,
                tid: match cookie.thread_serial {
                    0 => current_tid(),
                    _ => 0,
                },
                weight: overrun.saturating_add(1),
            };
            sample.record(owner, recorder, registers);
        }
        // A program that sends the signal to itself asks for a sample.
        Tick::Sent => {
            let sample = Sample {
                recording,
                thread_serial: 0,
                tid: current_tid(),
                weight: 1,
            };
            sample.record(owner, recorder, registers);
        }
        Tick::Other => foreign(recorder),
    }
}

fn foreign(recorder: &Recorder) {
    if let Some(counters) = recorder.counters(0) {
        counters.foreign.fetch_add(1, Ordering::Relaxed);
    }
}

/// One tick, before its stack is known.
struct Sample {
    recording: u32,
    thread_serial: u32,
    tid: i32,
    weight: u32,
}

impl Sample {
    fn record(&self, owner: &Owner, recorder: &Recorder, registers: Registers) {
        let hint = self.thread_serial.wrapping_add(self.tid as u32);
        let weight = u64::from(self.weight);
        let Some(counters) = recorder.counters(hint) else {
            return;
        };
        let words = RecordWriter::words(recorder.max_depth.load(Ordering::Relaxed));
        let epoch = recorder.snapshot.epoch();
        let mut claim = match recorder.rack.claim(hint, epoch, words) {
            Ok(claim) => claim,
            Err(refused) => {
                let counter = match refused {
                    Refused::NoLane => &counters.no_lane,
                    Refused::LaneFull => {
                        recorder.doorbell.wake_once();
                        &counters.lane_full
                    }
                };
                counter.fetch_add(weight, Ordering::Relaxed);
                return;
            }
        };
        // A stop that began before the claim could be seen is seen here (the claim ends in a fence), and one that
        // begins later waits for it.
        if owner.recording.load(Ordering::Relaxed) != self.recording {
            return;
        }
        // Asked here and not before the claim, so that a stop waits for the filter, too.
        if !recorder.filter.keeps() {
            counters.filtered.fetch_add(weight, Ordering::Relaxed);
            return;
        }
        // SAFETY: the claim carries the epoch that was read before it, and lives until the end of this function.
        let snapshot = unsafe { recorder.snapshot.get() };
        let (Some(snapshot), Some(bench)) = (snapshot, recorder.bench(&claim)) else {
            counters.no_lane.fetch_add(weight, Ordering::Relaxed);
            return;
        };
        let subject = recorder.subject();
        let writer = RecordWriter {
            weight: self.weight,
            thread_serial: self.thread_serial,
            tid: self.tid,
            epoch: snapshot.epoch(),
        };
        // SAFETY: the claim is held; unwinding returns.
        unsafe {
            bench.work(|cache| {
                let more_than_half_full = claim.write(words, |space| {
                    writer.write(space, |frames| {
                        let unwound = snapshot.unwind(registers, subject, cache, frames);
                        if unwound.unknown_stack {
                            recorder.is_stale.store(true, Ordering::Relaxed);
                        }
                        (unwound.depth, unwound.reason)
                    })
                });
                match more_than_half_full {
                    Some(more_than_half_full) => {
                        counters.written.fetch_add(weight, Ordering::Relaxed);
                        if more_than_half_full {
                            recorder.doorbell.wake_once();
                        }
                    }
                    // There was room when the lane was claimed, and only the holder of the claim uses it up.
                    None => {
                        counters.lane_full.fetch_add(weight, Ordering::Relaxed);
                    }
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_survives_the_kernel() {
        let cookie = Cookie {
            recording: u32::MAX,
            thread_serial: 7,
        };
        assert_eq!(Cookie::from_u64(cookie.to_u64()), cookie);
    }
}
