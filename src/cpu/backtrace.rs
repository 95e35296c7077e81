//! The stack of the calling thread, for the program itself.

use std::sync::atomic::Ordering;

use super::recorder::Owner;
use crate::ring::MAX_DEPTH;
use crate::sys::arch::Registers;
use crate::sys::signal::with_signals_blocked;
use crate::sys::thread::current_tid;

/// Calls `see` with the call chain that these registers lead to, leaf first: the pc, then return
/// addresses, [`MAX_DEPTH`] at most. `None` where nothing is recorded, since the unwind data of the
/// process's modules is at hand only then, or where all lanes are taken.
///
/// *Async-signal-safe* if `see` is, which runs with signals blocked.
pub(crate) fn backtrace<T>(registers: Registers, see: impl FnOnce(&[u64]) -> T) -> Option<T> {
    let owner = Owner::get()?;
    let recording = owner.recording.load(Ordering::Acquire);
    if recording == 0 {
        return None;
    }
    let recorder = owner.recorder()?;
    let epoch = recorder.capture.snapshot.epoch();
    let mut see = Some(see);
    let mut seen = None;
    // A handler that came while the bench's stack is used would run on that stack.
    with_signals_blocked(|| {
        // The lane is held for its epoch and its bench; no record is written.
        let claim = recorder
            .capture
            .rack
            .claim(current_tid() as u32, epoch, 0)
            .ok()?;
        // As in the handler: a stop that began before the claim is seen here, and a later one
        // waits.
        if owner.recording.load(Ordering::Relaxed) != recording {
            return None;
        }
        // SAFETY: the claim carries the epoch that was read before it, and lives until the end of
        // this closure.
        let snapshot = unsafe { recorder.capture.snapshot.get() }?;
        let bench = recorder.capture.bench(&claim)?;
        let subject = recorder.capture.subject();
        // SAFETY: the claim is held; unwinding and `see` return.
        unsafe {
            bench.work(|cache| {
                let mut frames = [0; MAX_DEPTH];
                let depth = snapshot
                    .unwind(registers, subject, cache, &mut frames)
                    .depth;
                if let (Some(see), Some(frames)) = (see.take(), frames.get(..depth)) {
                    seen = Some(see(frames));
                }
            });
        }
        Some(())
    });
    seen
}
