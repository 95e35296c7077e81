//! Bad moments.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sigprof::{ErrorKind, contention};

use crate::locks::sums_below;

/// Threads wait for a lock that each of them holds for a moment.
#[inline(never)]
fn contends(lock: &Mutex<u64>, is_over: &AtomicBool) -> u64 {
    let mut times = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut sum = lock.lock().unwrap();
        for i in 0..2000_u64 {
            *sum = std::hint::black_box(sum.wrapping_add(i));
        }
        times += 1;
    }
    times
}

#[test]
fn a_process_that_was_never_watched_has_no_profile() {
    let error = contention::profile().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn there_is_one_watch_at_a_time() {
    let watch = contention::watch_process().unwrap();
    let error = contention::watch_process().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyRunning, "{error}");
    drop(watch);
    drop(contention::watch_process().unwrap());
}

#[test]
fn watching_on_and_off_under_load_harms_nobody() {
    contention::set_sample_interval(Duration::from_nanos(1));
    let (lock, is_over) = (Mutex::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| contends(&lock, &is_over));
        }
        for _ in 0..50 {
            let watch = contention::watch_process().unwrap();
            std::thread::sleep(Duration::from_millis(2));
            drop(watch);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let profile = contention::profile().unwrap();
    let [count, ns] = sums_below(&profile, "contends");
    assert!(count > 0 && ns > 0, "{}", profile.top(10));
}

#[test]
fn a_forked_child_is_not_watched_and_can_be() {
    let watch = contention::watch_process().unwrap();
    // SAFETY: the child does what Rust lets it, and ends itself.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: it ends this process alone, and within a time.
            unsafe { libc::alarm(120) };
            let is_right = contention::profile().is_err()
                && contention::watch_process().is_ok_and(|watch| {
                    drop(watch);
                    contention::profile().is_ok()
                });
            drop(watch);
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!is_right)) }
        }
        child => {
            let mut status = -1;
            // SAFETY: the place for the status outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
}
