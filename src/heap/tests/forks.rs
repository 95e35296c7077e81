//! Children that have no profile.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use super::interrupted::{has_interrupted_the_profile, interrupted_until};
use super::{allocate, free, totals};
use crate::heap::{profile, set_sample_interval};

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
        if has_interrupted_the_profile() && made < CHILDREN.len() {
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
    let mut pairs = 1000;
    interrupted_until(
        forks,
        || MADE.load(Ordering::Relaxed) == CHILDREN.len(),
        || {
            free(allocate(100), 100);
            pairs += 1;
        },
    );
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
