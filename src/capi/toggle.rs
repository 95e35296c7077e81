//! `CPUPROFILESIGNAL`: a signal that starts a profile, and stops it again at the next delivery.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{guarded, say_if_failed, session};
use crate::env::{self, Asked};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::futex::Futex;
use crate::sys::own_threads::{OwnThread, look_around};
use crate::sys::signal::{
    ErrnoGuard, Installed, has_default_action, install, is_for_programs, with_signals_blocked,
};

/// How often the thread looks whether the program's own threads have ended.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// How often the signal has been delivered.
static DELIVERIES: AtomicU32 = AtomicU32::new(0);
/// Rung by the handler.
static DOORBELL: Futex = Futex::new();

/// *Async-signal-safe.*
extern "C" fn on_delivery(_: c_int, _: *const libc::siginfo_t, _: *const c_void) {
    let _errno = ErrnoGuard::new();
    DELIVERIES.fetch_add(1, Ordering::Release);
    DOORBELL.wake_once();
}

/// From now on each delivery of the signal starts a profile, or stops the one that runs. An
/// ordinary thread does so, which the handler wakes.
///
/// # Errors
///
/// Where the program cannot have a handler for the signal, or has one already.
pub(super) fn toggle_by(signal: c_int, asked: Asked) -> Result<()> {
    let refused = |reason: &str| {
        let (name, other) = match signal {
            libc::SIGUSR2 => ("SIGUSR1", libc::SIGUSR1),
            _ => ("SIGUSR2", libc::SIGUSR2),
        };
        Error::new(
            ErrorKind::SignalInUse,
            format!("CPUPROFILESIGNAL is {signal}, {reason}; {name} ({other}) will do, as a rule"),
        )
    };
    if !is_for_programs(signal) {
        return Err(refused("which no program can have a handler for"));
    }
    if signal == asked.profiler.signal_asked() {
        return Err(refused("the signal of the profiler's own timers"));
    }
    if !has_default_action(signal) {
        return Err(refused("which the program handles or ignores"));
    }
    // The thread comes first, so that no delivery finds nobody to wake.
    let no_thread = |error| {
        let message = "could not start the thread that CPUPROFILESIGNAL wakes";
        Error::with_source(ErrorKind::Os, message, error)
    };
    let mut toggle = Toggle { asked, files: 0 };
    with_signals_blocked(|| {
        std::thread::Builder::new()
            .name("sigprof-toggle".into())
            .spawn(move || toggle.run())
    })
    .map_err(no_thread)?;
    match install(signal, on_delivery) {
        Ok(Installed::Ours) => Ok(()),
        Ok(Installed::Foreign) => Err(refused("which the program handles")),
        Err(error) => {
            let message = format!("could not install a handler for signal {signal}");
            Err(Error::with_source(ErrorKind::Os, message, error))
        }
    }
}

/// What the thread works with.
struct Toggle {
    asked: Asked,
    /// How many profiles were started.
    files: u32,
}

impl Toggle {
    fn run(&mut self) {
        let _own = OwnThread::begin();
        let mut tids = Vec::new();
        let mut done = 0_u32;
        loop {
            DOORBELL.wait(LOOK_AROUND);
            look_around(&mut tids);
            let delivered = DELIVERIES.load(Ordering::Acquire);
            while done != delivered {
                done = done.wrapping_add(1);
                say_if_failed(guarded(|| self.toggle()));
            }
        }
    }

    fn toggle(&mut self) -> Result<()> {
        if session::is_running() {
            session::stop(None);
            return Ok(());
        }
        let path = env::with_suffix(
            self.asked.path.as_os_str(),
            format!(".{}", self.files).as_ref(),
        );
        self.files += 1;
        session::start(&path, self.asked.profiler.clone())
    }
}
