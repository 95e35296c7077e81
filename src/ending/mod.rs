//! Profiles that are written when the process ends: by `exit`, or by the return from `main`.
//!
//! A guard that is dropped or finished ends its profile itself. One that is not (it is in a
//! `static`, was leaked, or `std::process::exit` left its owner's frame where it was) is still
//! pending when `atexit`'s functions are called, and is ended there; or, where that was asked for,
//! when a signal is about to end the process ([`on_signal`]).

mod on_signal;

use std::fmt;
use std::io::Write;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use self::on_signal::{Signals, Watcher, unwatch};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Mutex;
use crate::sys::own_threads::OwnThread;
use crate::sys::per_process::PerProcess;
use crate::sys::process::at_exit;
use crate::sys::signal::{with_signals_blocked, with_signals_blocked_but};
use crate::sys::thread::current_tid;

/// How long the end of the process waits for the files.
const LONGEST_END: Duration = Duration::from_secs(30);

/// A profile that is recorded for a file.
pub(crate) trait Unfinished: fmt::Debug + Send + Sync {
    /// Stops the recording and writes the file. What goes wrong is a line on stderr.
    fn end(&self);

    /// Writes the file so far, and goes on recording. What goes wrong is a line on stderr.
    fn flush(&self);
}

/// The profiles of this process. A forked child has none of its parent's.
static PENDING: PerProcess<Pending> = PerProcess::new();

#[derive(Debug, Default)]
struct Pending {
    entries: Mutex<Vec<Entry>>,
    /// Held while signals are added to entries, and while entries are removed. Locked before
    /// `entries`.
    watcher: Mutex<Option<Watcher>>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    unfinished: Arc<dyn Unfinished>,
    is_left_to_caller: bool,
    /// The signals that the profile is written on.
    signals: Signals,
    /// The thread that is ending the profile.
    ended_by: Option<i32>,
}

/// An [`Unfinished`] profile's place among those that are ended with the process.
#[derive(Debug)]
pub(crate) struct Ending {
    pending: &'static Pending,
    number: u64,
}

impl Ending {
    /// Has the profile ended with the process, unless a [turn](Self::begin) ends it before.
    ///
    /// # Errors
    ///
    /// Where the system has no memory.
    pub(crate) fn of(unfinished: Arc<dyn Unfinished>) -> Result<Self> {
        static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
        static AT_EXIT: Once = Once::new();
        let pending = PENDING.get_or_make(Pending::default).map_err(|source| {
            Error::with_source(ErrorKind::Os, "could not get a page of memory", source)
        })?;
        AT_EXIT.call_once(|| at_exit(end_with_process));
        let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
        pending.with(|entries| {
            entries.push(Entry {
                number,
                unfinished,
                is_left_to_caller: false,
                signals: Signals::default(),
                ended_by: None,
            });
        });
        Ok(Self { pending, number })
    }

    /// Leaves the profile as it is when the process ends: the caller has a function of its own
    /// called then.
    #[cfg(feature = "capi")]
    pub(crate) fn leave_to_caller(&self) {
        self.pending.with(|entries| {
            let mut entries = entries.iter_mut();
            if let Some(entry) = entries.find(|entry| entry.number == self.number) {
                entry.is_left_to_caller = true;
            }
        });
    }

    /// Has the profile written where one of these signals is about to end the process.
    ///
    /// # Errors
    ///
    /// For a signal that a profile cannot be written on; where the system gives no thread; in a
    /// forked child. The caller ends the profile then.
    pub(crate) fn write_on(&self, signals: &[libc::c_int]) -> Result<()> {
        self.check_owner()?;
        let signals = Signals::new(signals)?;
        with_signals_blocked(|| {
            let mut watcher = self.pending.watcher.lock();
            self.pending.with(|entries| {
                let mut entries = entries.iter_mut();
                if let Some(entry) = entries.find(|entry| entry.number == self.number) {
                    entry.signals = entry.signals.with(signals);
                }
            });
            let watcher = match &mut *watcher {
                Some(watcher) => watcher,
                none => none.insert(Watcher::start(self.pending)?),
            };
            watcher.watch(signals)
        })
    }

    fn check_owner(&self) -> Result<()> {
        match PENDING.get().is_some_and(|own| ptr::eq(own, self.pending)) {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::ForeignProcess,
                "the process that this one was forked from writes this profile, and not its children; \
                 start a new one in the child",
            )),
        }
    }

    /// The right to end the profile, which is given once.
    ///
    /// # Errors
    ///
    /// Where another thread has it, since the process ends; in a forked child.
    pub(crate) fn begin(&self) -> Result<Turn> {
        self.check_owner()?;
        let turn = self.pending.begin(|entry| entry.number == self.number);
        turn.map(|(turn, _)| turn).ok_or_else(|| {
            Error::new(
                ErrorKind::AlreadyStopped,
                "the process is ending, and the thread that ends it writes this profile",
            )
        })
    }
}

/// The right to end a profile. The process's end waits for the drop.
#[derive(Debug)]
pub(crate) struct Turn {
    pending: &'static Pending,
    number: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Outside of the locks.
        drop(self.pending.remove(self.number));
    }
}

impl Pending {
    /// Calls `f` under the lock; with the signals blocked, since a handler of the program's may
    /// call `exit`, which takes the lock, too.
    fn with<T>(&self, f: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
        with_signals_blocked(|| f(&mut self.entries.lock()))
    }

    /// Takes a profile out that was ended, and has its signals do what they did before.
    fn remove(&self, number: u64) -> Option<Entry> {
        with_signals_blocked(|| {
            let mut watcher = self.watcher.lock();
            let (removed, left) = self.with(|entries| {
                let at = entries.iter().position(|entry| entry.number == number)?;
                let removed = entries.remove(at);
                let signals = entries.iter().map(|entry| entry.signals);
                Some((removed, signals.fold(Signals::default(), Signals::with)))
            })?;
            if !removed.signals.is_empty() {
                unwatch(removed.signals.without(left));
            }
            if left.is_empty()
                && let Some(watcher) = watcher.take()
            {
                watcher.end();
            }
            Some(removed)
        })
    }

    /// The right to end the last profile of these that nobody ends yet.
    fn begin(
        &'static self,
        is_meant: impl Fn(&Entry) -> bool,
    ) -> Option<(Turn, Arc<dyn Unfinished>)> {
        self.with(|entries| {
            let mut entries = entries.iter_mut().rev();
            let entry = entries.find(|entry| entry.ended_by.is_none() && is_meant(entry))?;
            entry.ended_by = Some(current_tid());
            let turn = Turn {
                pending: self,
                number: entry.number,
            };
            Some((turn, entry.unfinished.clone()))
        })
    }

    /// Ends the profiles of these that nobody else ends.
    fn end_all(&'static self, is_meant: impl Fn(&Entry) -> bool) {
        while let Some((turn, unfinished)) = self.begin(&is_meant) {
            unfinished.end();
            drop(turn);
        }
    }

    /// Waits until these profiles are ended, for [`LONGEST_END`] at most. The calling thread does
    /// not wait for one that it was ending itself when a signal's handler called `exit`.
    fn wait_for_all(&self, is_meant: impl Fn(&Entry) -> bool) {
        let tid = current_tid();
        let is_to_wait = |entry: &Entry| is_meant(entry) && entry.ended_by != Some(tid);
        let begin = Instant::now();
        while self.with(|entries| entries.iter().any(is_to_wait)) {
            if begin.elapsed() > LONGEST_END {
                let line = format!("sigprof: no profile was written within {LONGEST_END:?}\n");
                let _ = std::io::stderr().write_all(line.as_bytes());
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the profiles that are written on this signal.
    fn end_on(&'static self, signal: libc::c_int) {
        self.end_all(|entry| entry.signals.has(signal));
        self.wait_for_all(|entry| entry.signals.has(signal));
    }

    /// Writes so far the profiles that are written on this signal.
    fn flush_on(&self, signal: libc::c_int) {
        let unfinished: Vec<_> = self.with(|entries| {
            let entries = entries.iter().filter(|entry| entry.signals.has(signal));
            entries.map(|entry| entry.unfinished.clone()).collect()
        });
        for unfinished in unfinished {
            unfinished.flush();
        }
    }
}

/// What ends a program that does not end by itself, or not soon enough.
const OF_THE_IMPATIENT: [libc::c_int; 4] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Ends the profiles that are pending when the process ends: on a thread of its own, since the
/// calling one has run the destructors of its thread-locals, and may be in a handler, on a stack
/// that holds no second one.
extern "C" fn end_with_process() {
    let Some(pending) = PENDING.get() else {
        return;
    };
    let is_meant = |entry: &Entry| !entry.is_left_to_caller;
    with_signals_blocked_but(&OF_THE_IMPATIENT, || {
        if !pending.with(|entries| entries.iter().any(is_meant)) {
            return;
        }
        let thread = thread::Builder::new().name("sigprof-end".into());
        let thread = with_signals_blocked(|| {
            thread.spawn(move || {
                let _own = OwnThread::begin();
                pending.end_all(is_meant);
            })
        });
        if thread.is_err() {
            pending.end_all(is_meant);
        }
        pending.wait_for_all(is_meant);
    });
}
