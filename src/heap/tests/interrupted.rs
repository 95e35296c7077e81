//! Signals that interrupt the profile's own work.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::thread;
use std::time::Duration;

use crate::heap::countdown;

thread_local! {
    /// The thread is in a function of the C library's allocator, which a fork waits for.
    static IS_IN_MALLOC: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, of which a signal's handler knows whether it has interrupted it.
struct Noting;

#[global_allocator]
static NOTING: Noting = Noting;

fn noting<T>(call: impl FnOnce() -> T) -> T {
    IS_IN_MALLOC.set(true);
    let result = call();
    IS_IN_MALLOC.set(false);
    result
}

// SAFETY: blocks are the system's.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        noting(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        noting(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        noting(|| unsafe { System.dealloc(block, layout) });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's contract.
        noting(|| unsafe { System.realloc(block, layout, new_size) })
    }
}

/// Whether a signal's handler has interrupted the profile at work: not in the C library, whose own
/// locks are not those that are tested.
pub(super) fn has_interrupted_the_profile() -> bool {
    countdown::is_inside() && !IS_IN_MALLOC.get()
}

/// Does work again and again until it is done, while signals with this handler come.
pub(super) fn interrupted_until(
    handler: extern "C" fn(libc::c_int),
    is_done: impl Fn() -> bool + Sync,
    mut work: impl FnMut(),
) {
    // SAFETY: a handler of its kind for a signal that nobody else uses here.
    unsafe { libc::signal(libc::SIGUSR1, handler as usize) };
    // SAFETY: it has no preconditions.
    let this = unsafe { libc::pthread_self() };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done() {
                // SAFETY: the thread is the one that waits for this one.
                unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
                thread::sleep(Duration::from_micros(200));
            }
        });
        while !is_done() {
            work();
        }
    });
}
