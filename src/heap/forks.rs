//! What a fork means for the profile: the child goes on with a copy of it.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::{countdown, live, sites, stack};
use crate::sys::fork_mutex::{Held, around_forks, hold_all, let_go_of_all};
use crate::sys::per_process::PerProcess;

/// There in a process whose profile is whole: whoever makes a child without the C library's `fork`
/// leaves it with none, since other threads may have left locks and tables behind as they were.
static IS_WHOLE: PerProcess<()> = PerProcess::new();
static IS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether there is a profile to be used in this process. It is made ready by the first call;
/// another thread that calls meanwhile hears that there is none.
pub(super) fn is_whole() -> bool {
    IS_WHOLE.get().is_some() || begin()
}

#[cold]
fn begin() -> bool {
    if IS_BEGUN.swap(true, Ordering::Relaxed) {
        return false;
    }
    stack::begin();
    // In a child the last hook makes again what is there now.
    IS_WHOLE.get_or_make(|| ()).is_ok() && around_forks(prepare, in_parent, in_child).is_ok()
}

fn mutexes() -> impl Iterator<Item = &'static dyn Held> {
    stack::mutexes()
        .chain(sites::mutexes())
        .chain(live::mutexes())
}

/// A signal's handler that forks may have interrupted the profile's own work on this thread, which
/// holds a mutex then: none is taken, and the child has no profile.
extern "C" fn prepare() {
    if !countdown::is_inside() {
        hold_all(mutexes());
    }
}

extern "C" fn in_parent() {
    if !countdown::is_inside() {
        let_go_of_all(mutexes());
    }
}

extern "C" fn in_child() {
    if !countdown::is_inside() {
        stack::begin_in_child();
        let_go_of_all(mutexes());
        let _ = IS_WHOLE.get_or_make(|| ());
    }
}
