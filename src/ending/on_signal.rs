//! Signals that are about to end the process: the profiles are written first, by a thread.
//!
//! The signal's handler notes the delivery and wakes the thread, which ends the profiles, gives the
//! signal back its default action and sends it again. Where the program has a handler of its own,
//! that is called at once, as without this one, and the thread writes the profiles so far.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Pending;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::clock::Clock;
use crate::sys::disposition::{Disposition, can_put_off_end, send_to_process};
use crate::sys::futex::Futex;
use crate::sys::own_threads::OwnThread;
use crate::sys::signal::{ErrnoGuard, is_own, name, unblock, with_signals_blocked};

/// How long a signal that has been delivered is left to the thread. The next delivery after that
/// ends the process at once: a file that cannot be written does not keep it alive.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the thread sleeps, unless it is woken.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// The process whose thread answers; 0: there is none. A forked child inherits its parent's
/// handlers, and no thread.
static ANSWERS: AtomicI32 = AtomicI32::new(0);
/// Rung by the handlers.
static DOORBELL: Futex = Futex::new();

/// A signal that is watched, or was.
#[derive(Debug)]
struct Watched {
    /// What the process did with the signal before, never freed: a handler may read it. Null: the
    /// signal was never watched.
    before: AtomicPtr<Disposition>,
    /// Whether a handler of this file's was made the signal's, and not taken away by this file.
    is_in_place: AtomicBool,
    /// When the signal was delivered, in nanoseconds of the monotonic clock; 0: it was not, or has
    /// been answered.
    delivered: AtomicU64,
}

/// By number.
static WATCHED: [Watched; SIGNALS] = [const {
    Watched {
        before: AtomicPtr::new(ptr::null_mut()),
        is_in_place: AtomicBool::new(false),
        delivered: AtomicU64::new(0),
    }
}; SIGNALS];
const SIGNALS: usize = 65;

/// A set of signals: signal n is bit n - 1.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Signals(u64);

impl Signals {
    /// Those that a profile can be written on.
    ///
    /// # Errors
    ///
    /// For a signal that does not end the process, or whose end a handler cannot put off.
    pub(super) fn new(signals: &[c_int]) -> Result<Self> {
        let mut set = Self::default();
        for &signal in signals {
            if !can_put_off_end(signal) {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "no profile can be written on {}: it does not end a process, or ends one \
                         at once; SIGINT (2), SIGTERM (15) and SIGHUP (1) will do",
                        name(signal)
                    ),
                ));
            }
            let is_profilers = || Disposition::of(signal).is_ok_and(|now| is_own(now.handler()));
            if signal == libc::SIGPROF || (is_profilers() && !is_watched(signal)) {
                return Err(Error::new(
                    ErrorKind::SignalInUse,
                    format!("{} is the profiler's own", name(signal)),
                ));
            }
            set.0 |= 1 << (signal - 1);
        }
        Ok(set)
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn has(self, signal: c_int) -> bool {
        self.0 & 1 << (signal - 1) != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn numbers(self) -> impl Iterator<Item = c_int> {
        (1..SIGNALS as c_int).filter(move |&signal| self.has(signal))
    }
}

impl Watched {
    /// *Async-signal-safe.*
    fn of(signal: c_int) -> Option<&'static Self> {
        usize::try_from(signal).ok().and_then(|n| WATCHED.get(n))
    }

    /// *Async-signal-safe.*
    fn before(&self) -> Option<&'static Disposition> {
        // SAFETY: null, or published and never freed.
        unsafe { self.before.load(Ordering::Acquire).as_ref() }
    }
}

fn is_watched(signal: c_int) -> bool {
    Watched::of(signal).is_some_and(|watched| watched.is_in_place.load(Ordering::Relaxed))
}

/// Notes a delivery, and wakes the thread. Whether the thread answers; it does not in a forked
/// child, nor where the last answer does not come to an end. *Async-signal-safe.*
fn note_delivery(signal: c_int) -> bool {
    let _errno = ErrnoGuard::new();
    let Some(watched) = Watched::of(signal) else {
        return false;
    };
    let answers = || ANSWERS.load(Ordering::SeqCst) == std::process::id() as i32;
    if !answers() {
        return false;
    }
    let now = Clock::MONOTONIC.now_ns().unwrap_or(0).max(1);
    let noted = (watched.delivered).compare_exchange(0, now, Ordering::SeqCst, Ordering::Relaxed);
    DOORBELL.wake_once();
    match noted {
        // A thread that was told to end before looks for deliveries after that.
        Ok(_) => answers(),
        Err(first) => now.saturating_sub(first) < PATIENCE.as_nanos() as u64,
    }
}

/// Where the process did what is the default. *Async-signal-safe.*
extern "C" fn in_place_of_default(signal: c_int, _: *const libc::siginfo_t, _: *const c_void) {
    if !note_delivery(signal) {
        let _errno = ErrnoGuard::new();
        take_default_action(signal);
    }
}

/// Where the process had a handler. *Async-signal-safe* if that is.
extern "C" fn before_handler(signal: c_int, info: *const libc::siginfo_t, context: *const c_void) {
    note_delivery(signal);
    if let Some(before) = Watched::of(signal).and_then(Watched::before) {
        // SAFETY: the program has left its handler in place; the arguments are this handler's.
        unsafe { before.call(signal, info, context) };
    }
}

/// Whether the default action is what the process does with the signal, but for the handler of this
/// file. A handler of the program's that came later has called this one: what follows is up to
/// that. *Async-signal-safe.*
fn is_left_to_default(signal: c_int) -> bool {
    Disposition::of(signal).is_ok_and(|now| now.is_default() || now.is_handler(in_place_of_default))
}

/// Has a signal that was delivered do what it would have done. *Async-signal-safe.*
fn take_default_action(signal: c_int) {
    if is_left_to_default(signal) && Disposition::default_action().set(signal).is_ok() {
        send_to_process(signal);
    }
}

/// The thread that answers, and what it is told.
#[derive(Debug)]
pub(super) struct Watcher {
    thread: JoinHandle<()>,
    is_to_end: Arc<AtomicBool>,
}

impl Watcher {
    /// Starts the thread, which answers for `pending`.
    ///
    /// # Errors
    ///
    /// Where the system gives no thread.
    pub(super) fn start(pending: &'static Pending) -> Result<Self> {
        let is_to_end = Arc::new(AtomicBool::new(false));
        let is_told = is_to_end.clone();
        let thread = thread::Builder::new().name("sigprof-signal".into());
        let thread = with_signals_blocked(|| thread.spawn(move || answer_all(pending, &is_told)));
        let thread = thread.map_err(|error| {
            let message = "could not start the thread that writes profiles on signals";
            Error::with_source(ErrorKind::Os, message, error)
        })?;
        let process = std::process::id() as i32;
        if ANSWERS.swap(process, Ordering::SeqCst) != process {
            for watched in &WATCHED {
                // What its parent was sent is not a forked child's.
                watched.delivered.store(0, Ordering::Relaxed);
            }
        }
        Ok(Self { thread, is_to_end })
    }

    /// Has a handler called for these signals, unless the process ignores them. The caller holds a
    /// lock.
    ///
    /// # Errors
    ///
    /// Where the program changes what it does with a signal time and again.
    pub(super) fn watch(&self, signals: Signals) -> Result<()> {
        signals.numbers().try_for_each(watch)
    }

    /// Ends the thread, when it has answered what was delivered. The caller holds a lock.
    pub(super) fn end(self) {
        ANSWERS.store(0, Ordering::SeqCst);
        self.is_to_end.store(true, Ordering::SeqCst);
        DOORBELL.wake_once();
        // The thread itself ends profiles, and goes on to the signal's action.
        if self.thread.thread().id() != thread::current().id() {
            let _ = self.thread.join();
        }
    }
}

fn watch(signal: c_int) -> Result<()> {
    const MOST_TRIES: usize = 8;
    let Some(watched) = Watched::of(signal) else {
        return Ok(());
    };
    let refused = |source| {
        let message = format!("could not install a handler for {}", name(signal));
        Error::with_source(ErrorKind::Os, message, source)
    };
    for _ in 0..MOST_TRIES {
        let now = Disposition::of(signal).map_err(refused)?;
        // A handler that the program has installed since may call the one of this file: it must not
        // be called by that in turn.
        let is_reached = watched.is_in_place.load(Ordering::Relaxed) && !now.is_default();
        if now.is_ignored() || is_reached {
            return Ok(());
        }
        let new = match now.is_default() {
            true => Disposition::in_place_of_default(in_place_of_default),
            false => now.with_handler(before_handler),
        };
        let before = ptr::from_mut(Box::leak(Box::new(now)));
        watched.before.store(before, Ordering::Release);
        let replaced = new.set(signal).map_err(refused)?;
        // SAFETY: published above, and never freed.
        if replaced.is_as(unsafe { &*before }) {
            watched.is_in_place.store(true, Ordering::Relaxed);
            return Ok(());
        }
        // Somebody came between the look and the change: theirs goes back.
        replaced.set(signal).map_err(refused)?;
    }
    let message = format!(
        "the program goes on changing what it does with {}",
        name(signal)
    );
    Err(Error::new(ErrorKind::SignalInUse, message))
}

/// Has the process do with these signals what it did before. The caller holds the lock of
/// [`Watcher::watch`].
pub(super) fn unwatch(signals: Signals) {
    for signal in signals.numbers() {
        let Some(watched) = Watched::of(signal) else {
            continue;
        };
        let is_ours = Disposition::of(signal)
            .is_ok_and(|now| now.is_handler(in_place_of_default) || now.is_handler(before_handler));
        // A handler that the program has installed since stays, and may go on calling this one.
        if let Some(before) = watched.before().filter(|_| is_ours)
            && before.set(signal).is_ok()
        {
            watched.is_in_place.store(false, Ordering::Relaxed);
        }
    }
}

/// What the thread does.
fn answer_all(pending: &'static Pending, is_told_to_end: &AtomicBool) {
    let _own = OwnThread::begin();
    loop {
        let is_last = is_told_to_end.load(Ordering::SeqCst);
        while let Some(signal) = first_delivered() {
            answer(pending, signal);
        }
        if is_last {
            return;
        }
        DOORBELL.wait(LONGEST_SLEEP);
    }
}

/// The signal that was delivered first, of those that are to be answered.
fn first_delivered() -> Option<c_int> {
    let delivered = (1..).zip(&WATCHED[1..]).filter_map(|(signal, watched)| {
        let delivered = watched.delivered.load(Ordering::SeqCst);
        (delivered != 0).then_some((delivered, signal))
    });
    delivered.min().map(|(_, signal)| signal)
}

fn answer(pending: &'static Pending, signal: c_int) {
    // In the first process of a PID namespace, a signal's default action is none.
    if is_left_to_default(signal) && std::process::id() != 1 {
        // Also where a profile could not be written for a panic.
        let _then = DefaultAction { signal };
        pending.end_on(signal);
    } else {
        // Before the profiles are written: what is delivered since has them written once more.
        forget_delivery(signal);
        pending.flush_on(signal);
    }
}

fn forget_delivery(signal: c_int) {
    if let Some(watched) = Watched::of(signal) {
        watched.delivered.store(0, Ordering::SeqCst);
    }
}

/// The action of a signal, which is taken when this drops.
struct DefaultAction {
    signal: c_int,
}

impl Drop for DefaultAction {
    fn drop(&mut self) {
        // All other threads may block the signal by now.
        unblock(&[self.signal]);
        take_default_action(self.signal);
        // The process goes on where the program has installed a handler meanwhile.
        forget_delivery(self.signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signals_that_end_the_process_in_time_are_watched() {
        let refused = |signal: c_int| Signals::new(&[libc::SIGTERM, signal]).unwrap_err().kind();
        let kept = [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGABRT];
        let of_no_end = [libc::SIGCHLD, libc::SIGTSTP, libc::SIGCONT, libc::SIGURG];
        // The second is the C library's own.
        let unknown = [0, 32, 65, -1, c_int::MAX, c_int::MIN];
        for signal in kept.into_iter().chain(of_no_end).chain(unknown) {
            assert_eq!(refused(signal), ErrorKind::InvalidInput, "{signal}");
        }
        assert_eq!(refused(libc::SIGPROF), ErrorKind::SignalInUse);
        let all = [
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGUSR1,
            libc::SIGXCPU,
            64,
        ];
        let signals = Signals::new(&all).unwrap();
        assert!(signals.numbers().eq([1, 2, 10, 15, 24, 64]));
    }
}
