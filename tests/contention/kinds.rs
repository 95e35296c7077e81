//! What threads wait for, and which waits are shown.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use sigprof::contention;

use crate::below::sums_of;

const ROUNDS: usize = 20;

/// Is woken `ROUNDS` times.
#[inline(never)]
fn waits_for_condition(times: &Mutex<usize>, condition: &Condvar, waits: &AtomicUsize) {
    for round in 0..ROUNDS {
        let mut count = times.lock().unwrap();
        while *count == round {
            waits.fetch_add(1, Ordering::Relaxed);
            count = condition.wait(count).unwrap();
        }
    }
}

#[inline(never)]
fn is_parked(is_over: &AtomicUsize, waits: &AtomicUsize) {
    while is_over.load(Ordering::Acquire) == 0 {
        waits.fetch_add(1, Ordering::Relaxed);
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn threads_that_have_nothing_to_do_are_left_out_and_counted() {
    contention::set_sample_interval(Duration::from_nanos(1));
    let watch = contention::watch_process().unwrap();
    let (times, condition) = (Mutex::new(0), Condvar::new());
    let [waits, parks, is_over] = [0; 3].map(AtomicUsize::new);
    std::thread::scope(|scope| {
        scope.spawn(|| is_parked(&is_over, &parks));
        let waiter = scope.spawn(|| waits_for_condition(&times, &condition, &waits));
        while !waiter.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
            // One at a time, each of which it sees.
            let mut count = times.lock().unwrap();
            if *count < waits.load(Ordering::Relaxed) && *count < ROUNDS {
                *count += 1;
                condition.notify_one();
            }
        }
        is_over.store(1, Ordering::Release);
    });
    drop(watch);
    let all = contention::all_waits().unwrap();
    let shown = contention::profile().unwrap();
    let [waits, parks] = [waits, parks].map(|waits| waits.into_inner() as i64);
    let mut idle = 0;
    for (function, kind, most) in [
        ("waits_for_condition", "condvar", waits),
        ("is_parked", "park", parks),
    ] {
        // Beside these, the mutex may be waited for that goes with the condition.
        let [count, ns] = sums_of(&all, function, kind);
        // A wait that was over before it began is none.
        assert!((1..=most).contains(&count) && ns > 0, "{}", all.top(20));
        assert_eq!(sums_of(&shown, function, kind), [0, 0]);
        idle += count;
    }
    // Besides, the thread is parked that has made the two.
    let hidden = all.total(0) - shown.total(0);
    assert!(hidden >= idle, "{hidden}, {idle}");
    let comment = format!("hidden: {hidden} waits for condition variables and of parked threads");
    let comments = &shown.comments;
    assert!(
        comments.iter().any(|line| line.starts_with(&comment)),
        "{comments:?}"
    );
    assert!(all.comments.iter().all(|line| !line.contains("hidden")));
    // Whoever ends such waits keeps nobody waiting.
    let holders = contention::holders().unwrap();
    for kind in ["condvar", "park", "other"] {
        assert_eq!(sums_of(&holders, "", kind), [0, 0], "{}", holders.top(20));
    }
}

/// tokio's mutex, taken by threads that are none of its own.
#[cfg(feature = "http")]
#[test]
fn waits_for_mutexes_of_tokio_are_seen() {
    struct Lock(tokio::sync::Mutex<()>);

    impl crate::locks::Lock for Lock {
        fn with(&self, work: impl FnOnce()) {
            let _guard = self.0.blocking_lock();
            work();
        }
    }

    crate::locks::assert_waits_are_seen(&Lock(tokio::sync::Mutex::new(())), "mutex");
}
