//! Watching the process: from when to when.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::collector::Collector;
use super::counted::Mark;
use super::looks;
use super::recorder::Recorder;
use super::report::{Report, View};
use super::stand_ins;
use crate::aggregate::Flusher;
use crate::error::{Error, ErrorKind, Result};
use crate::profile::Profile;
use crate::ring::Role;
use crate::sync::Mutex;
use crate::sys::loader_lock;
use crate::sys::own_threads::look_around;
use crate::sys::per_process::PerProcess;

/// How long an end waits for threads that record a wait. They take microseconds; one that takes
/// longer belongs to a thread that something keeps from running, and its memory is left to it.
const THREADS_LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// How often the flusher looks whether it alone keeps the process from ending.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// What was collected in this process.
static COLLECTED: PerProcess<Collected> = PerProcess::new();

#[derive(Debug)]
struct Collected {
    recorder: &'static Recorder,
    collector: Mutex<Collector>,
    /// There is a [`Watch`].
    is_claimed: AtomicBool,
    /// The flusher is to end.
    is_over: AtomicBool,
}

/// The process's locks are watched until this is dropped.
///
/// What was recorded stays: [`profile`](super::profile()) has it, together with what a later watch
/// records. A forked child is not watched.
#[must_use = "dropping it ends the watch: bind it, as in `let _watch = …`"]
pub struct Watch {
    collected: &'static Collected,
    flusher: Option<Flusher>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Watches the locks of this process, all of its modules and threads, until the answer is dropped.
/// A thread named `sigprof-locks` looks after it.
///
/// # Errors
///
/// [`AlreadyRunning`](ErrorKind::AlreadyRunning) where the process is watched already;
/// [`Unsupported`](ErrorKind::Unsupported) in a program that is linked statically, which
/// [`watch_locks`] is for, and in a child that was forked while a thread of its parent's was in
/// `dlopen` or `dl_iterate_phdr`; [`Os`](ErrorKind::Os) where the system refuses memory, a thread,
/// a look at what is loaded, or to have the addresses changed by which modules call functions.
pub fn watch_process() -> Result<Watch> {
    if !stand_ins::is_possible() {
        let reason = match loader_lock::is_lost() {
            true => {
                "it was forked while a thread of its parent's had the loader's lock, so that \
                     nobody can tell what is loaded: let it call exec, or fork it earlier"
            }
            false => {
                "no loaded module defines `syscall`, since the program is linked statically \
                      (sigprof::contention::watch_locks watches those of sigprof::contention)"
            }
        };
        let message = format!("could not watch the process's locks: {reason}");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    watch(true)
}

/// Watches the locks of this module alone, [`Mutex`](super::Mutex) and its relatives, until the
/// answer is dropped: for programs that are linked statically, or in which nothing is to be
/// patched. [`watch_process`] watches these, too.
///
/// # Errors
///
/// [`AlreadyRunning`](ErrorKind::AlreadyRunning) where the process is watched already, in either
/// way; [`Os`](ErrorKind::Os) where the system refuses memory, a thread, or a look at what is
/// loaded.
pub fn watch_locks() -> Result<Watch> {
    watch(false)
}

fn watch(has_stand_ins: bool) -> Result<Watch> {
    let refused =
        |error| Error::with_source(ErrorKind::Os, "could not watch the process's locks", error);
    let recorder = Recorder::get_or_make().map_err(refused)?;
    let collected = COLLECTED
        .get_or_make(|| Collected {
            recorder,
            collector: Mutex::new(Collector::new(recorder)),
            is_claimed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
        .map_err(refused)?;
    if collected.is_claimed.swap(true, Ordering::AcqRel) {
        let message = "the process's locks are watched already: drop that watch first";
        return Err(Error::new(ErrorKind::AlreadyRunning, message));
    }
    collected.is_over.store(false, Ordering::Release);
    // Dropped at an error, it ends what has begun.
    let mut watch = Watch {
        collected,
        flusher: None,
    };
    recorder.capture.reset();
    recorder.set_watched(true);
    (collected.collector.lock())
        .begin(has_stand_ins)
        .map_err(refused)?;
    let flusher = Flusher::spawn("sigprof-locks", move || {
        recorder.capture.find_bounds();
        let mut tids = Vec::new();
        let mut next_look = Instant::now() + LOOK_AROUND;
        while !collected.is_over.load(Ordering::Acquire) {
            let wait = collected.collector.lock().turn();
            recorder.capture.doorbell.wait(wait);
            let now = Instant::now();
            if now >= next_look {
                next_look = now + LOOK_AROUND;
                look_around(&mut tids);
            }
        }
    });
    watch.flusher = Some(flusher.map_err(refused)?);
    Ok(watch)
}

impl Watch {
    /// Whether it is this process that is watched, and not the one that it was forked from.
    fn is_own(&self) -> bool {
        (COLLECTED.get()).is_some_and(|own| ptr::eq(own, self.collected))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let collected = self.collected;
        // A child would wait for its parent's thread for ever, and has a process of its own to
        // watch.
        if !self.is_own() {
            return;
        }
        let recorder = collected.recorder;
        recorder.set_watched(false);
        collected.is_over.store(true, Ordering::Release);
        recorder.capture.doorbell.wake_once();
        if let Some(flusher) = self.flusher.take() {
            flusher.join();
        }
        // After the flusher, which sets it.
        looks::clear();
        // And which puts it into modules that are loaded.
        stand_ins::take_out();
        let rack = &recorder.capture.rack;
        let deadline = Instant::now() + THREADS_LEAVE_WITHIN;
        let mut is_in_use = rack.oldest_epoch().is_some();
        while is_in_use && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(50));
            is_in_use = rack.oldest_epoch().is_some();
        }
        let mut collector = collected.collector.lock();
        match is_in_use {
            true => collector.leak(),
            // SAFETY: every lane was seen free after the watch had been marked as ended, and a
            // thread that claims one later looks at that mark before it does anything else.
            false => unsafe { collector.finish() },
        }
        drop(collector);
        collected.is_claimed.store(false, Ordering::Release);
    }
}

/// Whether this process was ever watched.
#[cfg(feature = "http")]
pub(crate) fn was_watched() -> bool {
    COLLECTED.get().is_some()
}

/// What was recorded since a moment, or ever, if this process was ever watched.
pub(super) fn profile(role: Role, view: View, since: Option<&Mark>) -> Option<Profile> {
    let collected = COLLECTED.get()?;
    let report = {
        let mut collector = collected.collector.lock();
        collector.drain();
        Report::of(&collector, role, since)
    };
    Some(report.profile(view))
}

/// This moment, if this process was ever watched.
#[cfg(feature = "http")]
pub(super) fn mark() -> Option<Mark> {
    let mut collector = COLLECTED.get()?.collector.lock();
    collector.drain();
    Some(Mark::new(collector.counted().clone()))
}
