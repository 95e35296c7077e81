//! Children that have no profile.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use super::{allocate, free, totals};
use crate::heap::{countdown, profile, set_sample_interval};

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

/// Works a little with the allocator, in a child that has no profile, and ends.
fn works_without_a_profile() -> ! {
    // SAFETY: it ends this process alone, and within a time.
    unsafe { libc::alarm(60) };
    (1..1000).for_each(|size| free(allocate(size), size));
    let is_refused = profile().is_err_and(|error| error.to_string().contains("forked"));
    // SAFETY: as above.
    unsafe { libc::_exit(i32::from(!is_refused)) }
}

fn ends_well(child: libc::pid_t) -> bool {
    let mut status = -1;
    // SAFETY: the place for the status outlives the call.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    ended == child && status == 0
}

#[test]
fn a_child_of_a_handler_that_interrupted_an_allocation_has_no_profile() {
    /// Children to be made, as they are made.
    static CHILDREN: [AtomicI32; 20] = [const { AtomicI32::new(0) }; 20];
    static MADE: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn forks(_signal: libc::c_int) {
        let made = MADE.load(Ordering::Relaxed);
        // Only where the profile is at work, and not in the C library, whose own locks are not those
        // that are tested.
        if countdown::is_inside() && !IS_IN_MALLOC.get() && made < CHILDREN.len() {
            // SAFETY: the child works with what a forked child may, and ends.
            match unsafe { libc::fork() } {
                0 => works_without_a_profile(),
                child => CHILDREN[made].store(child, Ordering::Relaxed),
            }
            MADE.store(made + 1, Ordering::Relaxed);
        }
    }
    set_sample_interval(1);
    (0..1000).for_each(|_| free(allocate(100), 100));
    // SAFETY: a handler of its kind for a signal that nobody else uses here.
    unsafe { libc::signal(libc::SIGUSR1, forks as extern "C" fn(libc::c_int) as usize) };
    // SAFETY: it has no preconditions.
    let this = unsafe { libc::pthread_self() };
    let (mut pairs, is_done) = (1000, || MADE.load(Ordering::Relaxed) == CHILDREN.len());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done() {
                // SAFETY: the thread is the one that waits for this one.
                unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        while !is_done() {
            free(allocate(100), 100);
            pairs += 1;
        }
    });
    for child in &CHILDREN {
        assert!(ends_well(child.load(Ordering::Relaxed)));
    }
    assert_eq!(totals(), [pairs, 100 * pairs, 0, 0]);
}

#[test]
fn a_child_that_the_c_library_has_not_forked_has_no_profile() {
    set_sample_interval(1);
    let block = allocate(100);
    // SAFETY: as `fork`, without the C library.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        0 => {
            free(block, 100);
            works_without_a_profile()
        }
        child => assert!(ends_well(child as libc::pid_t)),
    }
    assert_eq!(totals(), [1, 100, 1, 100]);
    free(block, 100);
}
