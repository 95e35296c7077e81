//! Bad moments.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::Duration;

use sigprof::{ErrorKind, contention};

use crate::below::sums_below;
use crate::locks::{current_tid, sleeps, stays_on_the_stack};
use crate::process;
use crate::sandbox::{allow, refuse_to_unprotect_pages};

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

/// Of a lock of their own.
fn have_two_contend() {
    let (lock, is_over) = (Mutex::new(0), AtomicBool::new(false));
    let times = thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| contends(&lock, &is_over)));
        while *lock.lock().unwrap() == 0 {
            thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(times.iter().sum::<u64>() > 0);
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

/// Takes a lock, and panics once a thread waits for it.
#[inline(never)]
fn panics_with<G>(lock: impl FnOnce() -> G, is_held: &AtomicBool, waiter: &AtomicI32) {
    let _guard = lock();
    is_held.store(true, Ordering::Release);
    while !sleeps(waiter.load(Ordering::Acquire)) {
        thread::yield_now();
    }
    resume_unwind(Box::new("in a critical section"));
}

#[inline(never)]
fn waits_for_panic(lock: impl FnOnce()) {
    lock();
    stays_on_the_stack();
}

/// A thread panics in [`panics_with`] with a lock that another one waits for in
/// [`waits_for_panic`].
pub fn panic_while_another_waits<G>(take: impl FnOnce() -> G, wait: impl FnOnce() + Send) {
    let (is_held, waiter) = (AtomicBool::new(false), AtomicI32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_held.load(Ordering::Acquire) {
                thread::yield_now();
            }
            waiter.store(current_tid(), Ordering::Release);
            waits_for_panic(wait);
        });
        let panics = || panics_with(take, &is_held, &waiter);
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    });
}

#[test]
fn who_panics_with_a_lock_answers_for_those_who_find_it_poisoned() {
    contention::set_sample_interval(Duration::from_nanos(1));
    let watch = contention::watch_process().unwrap();
    let (mutex, lock) = (Mutex::new(()), RwLock::new(()));
    panic_while_another_waits(|| mutex.lock(), || assert!(mutex.lock().is_err()));
    panic_while_another_waits(|| lock.write(), || assert!(lock.read().is_err()));
    drop(watch);
    assert!(mutex.is_poisoned() && lock.is_poisoned());
    let [waiters, holders] = [contention::profile(), contention::holders()].map(Result::unwrap);
    for (profile, function) in [(waiters, "waits_for_panic"), (holders, "panics_with")] {
        let [count, _] = sums_below(&profile, function);
        assert_eq!(count, 2, "{function}: {}", profile.top(20));
    }
}

/// Forks a child that is to answer whether all was right in it.
fn fork(is_right: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child does what the C library lets it, and ends itself.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: it ends this process alone, and within a time.
            unsafe { libc::alarm(120) };
            let is_right = catch_unwind(AssertUnwindSafe(is_right)).is_ok_and(|is| is);
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!is_right)) }
        }
        child => child,
    }
}

#[test]
fn who_forks_while_waits_are_recorded_has_children_that_wait_and_watch() {
    contention::set_sample_interval(Duration::from_nanos(1));
    let watch = contention::watch_process().unwrap();
    let (lock, is_over) = (Mutex::new(0), AtomicBool::new(false));
    const CHILDREN: usize = 40;
    let is_right_in_child = |nth: usize| {
        let watch = nth
            .is_multiple_of(2)
            .then(|| contention::watch_process().unwrap());
        have_two_contend();
        let is_watched = watch.is_some();
        drop(watch);
        // Names take time.
        nth < CHILDREN - 4 || contention::profile().is_ok() == is_watched
    };
    let mut statuses = [-1; CHILDREN];
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| contends(&lock, &is_over));
        }
        for (nth, status) in statuses.iter_mut().enumerate() {
            let child = fork(|| is_right_in_child(nth));
            // SAFETY: the place for the status outlives the call.
            unsafe { libc::waitpid(child, status, 0) };
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(watch);
    assert_eq!(statuses, [0; CHILDREN]);
    let [count, _] = sums_below(&contention::profile().unwrap(), "contends");
    assert!(count > 0);
}

/// A thread that has the loader's lock while another one forks.
#[test]
fn a_child_that_cannot_know_what_is_loaded_says_so() {
    drop(contention::watch_process().unwrap());
    static HAS_LOCK: AtomicBool = AtomicBool::new(false);
    static IS_FORKED: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn waits(
        _: *mut libc::dl_phdr_info,
        _: libc::size_t,
        _: *mut libc::c_void,
    ) -> libc::c_int {
        HAS_LOCK.store(true, Ordering::Release);
        while !IS_FORKED.load(Ordering::Acquire) {
            thread::yield_now();
        }
        1
    }
    let mut status = -1;
    thread::scope(|scope| {
        // SAFETY: the callback uses nothing of what it is passed.
        scope.spawn(|| unsafe { libc::dl_iterate_phdr(Some(waits), ptr::null_mut()) });
        while !HAS_LOCK.load(Ordering::Acquire) {
            thread::yield_now();
        }
        // A panic in the child would look for the loader's list.
        let child = fork(|| match contention::watch_process() {
            Err(error) => error.to_string().contains("the loader's lock"),
            Ok(watch) => {
                drop(watch);
                false
            }
        });
        IS_FORKED.store(true, Ordering::Release);
        // SAFETY: the place for the status outlives the call.
        unsafe { libc::waitpid(child, &mut status, 0) };
    });
    assert_eq!(status, 0);
}

#[test]
fn threads_in_a_sandbox_may_wait() {
    process::succeed(&mut process::child("moments::child_with_sandboxed_threads"));
}

/// What the program's own threads call in it, and what reads a stack that is not known yet: a
/// record needs nothing else.
const OF_THREADS: [libc::c_long; 9] = [
    libc::SYS_process_vm_readv,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_rseq,
    libc::SYS_exit,
];

#[test]
#[ignore = "a child process"]
fn child_with_sandboxed_threads() {
    contention::set_sample_interval(Duration::from_nanos(1));
    let watch = contention::watch_process().unwrap();
    let (lock, is_over) = (Mutex::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                allow(&OF_THREADS);
                contends(&lock, &is_over)
            });
        }
        for profile in [contention::profile, contention::holders] {
            while sums_below(&profile().unwrap(), "contends")[0] < 100 {}
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(watch);
}

#[test]
fn a_sandbox_that_lets_no_entry_be_restored_harms_nobody() {
    process::succeed(&mut process::child("moments::child_whose_entries_stay"));
}

#[test]
#[ignore = "a child process"]
fn child_whose_entries_stay() {
    let watch = contention::watch_process().unwrap();
    refuse_to_unprotect_pages();
    // Entries lead to the stand-ins still, which make the calls.
    drop(watch);
    have_two_contend();
}

#[test]
fn a_sandbox_that_lets_no_entry_be_changed_is_told() {
    process::succeed(&mut process::child("moments::child_without_entries"));
}

#[test]
#[ignore = "a child process"]
fn child_without_entries() {
    refuse_to_unprotect_pages();
    let error = contention::watch_process().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Os, "{error}");
    assert!(error.to_string().contains("mprotect"), "{error}");
    // Nothing is to be changed for these.
    drop(contention::watch_locks().unwrap());
}
