//! What a fork means for the profile: the child goes on with a copy of it.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::{countdown, deferred, live, peak, sites, stack};
use crate::sys::fork::{Hooks, around_forks};
use crate::sys::fork_mutex::{Held, hold_all, let_go_of_all};
use crate::sys::per_process::PerProcess;

/// There in a process whose profile is whole: whoever makes a child without the C library's `fork`
/// leaves it with none, since other threads may have left locks and tables behind as they were.
static IS_WHOLE: PerProcess<()> = PerProcess::new();
static IS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether there is a profile to be used in this process.
pub(super) fn is_whole() -> bool {
    IS_WHOLE.get().is_some()
}

/// Makes the profile ready. Called by the first thread that allocates, before anybody else has
/// functions called around a fork: those are called first, and may wait for a thread that
/// allocates.
#[cold]
pub(super) fn begin() {
    if IS_BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    stack::begin();
    let hooks = Hooks {
        is_interrupted: countdown::is_inside,
        before: || hold_all(mutexes()),
        in_parent: || let_go_of_all(mutexes()),
        in_child,
    };
    if around_forks(hooks).is_ok() {
        // In a child the hook makes again what is there now.
        let _ = IS_WHOLE.get_or_make(|| ());
    }
}

fn mutexes() -> impl Iterator<Item = &'static dyn Held> {
    stack::mutexes()
        .chain(sites::mutexes())
        .chain([peak::mutex()])
        .chain(live::mutexes())
}

/// A child of a signal's handler that had interrupted the profile's own work comes not here, and
/// has no profile: that thread may have held a mutex.
fn in_child() {
    stack::begin_in_child();
    countdown::begin_in_child();
    peak::begin_in_child();
    deferred::begin_in_child();
    let_go_of_all(mutexes());
    let _ = IS_WHOLE.get_or_make(|| ());
}
