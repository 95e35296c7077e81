//! A program in which nothing can be put into the way to the C library: its own locks are watched.
//! One thread waits for another once, and who that was is printed.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sigprof::contention::{self, Mutex};

#[inline(never)]
fn waits(mutex: &Mutex<u32>) {
    *mutex.lock() += 1;
}

#[inline(never)]
fn holds(mutex: &Mutex<u32>, waiter: &AtomicI32) {
    let mut guard = mutex.lock();
    let sleeps = |stat: String| stat.contains(") S ");
    loop {
        let tid = waiter.load(Ordering::Acquire);
        if std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).is_ok_and(sleeps) {
            break;
        }
        thread::yield_now();
    }
    *guard += 1;
}

fn main() {
    let refused = contention::watch_process().unwrap_err().to_string();
    assert!(refused.contains("watch_locks"), "{refused}");
    let watch = contention::watch_locks().unwrap();
    contention::set_sample_interval(Duration::from_nanos(1));
    let (mutex, waiter) = (Mutex::new(0), AtomicI32::new(0));
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !mutex.is_locked() {
                thread::yield_now();
            }
            // SAFETY: asks for a number.
            waiter.store(unsafe { gettid() }, Ordering::Release);
            waits(&mutex);
        });
        holds(&mutex, &waiter);
    });
    let most = begin.elapsed();
    drop(watch);
    for profile in [contention::profile(), contention::holders()] {
        let profile = profile.unwrap();
        let [count, delay] = [profile.total(0), profile.total(1)];
        assert!(count == 1 && (1..=most.as_nanos() as i64).contains(&delay));
        println!("{}", profile.top(30));
    }
}

unsafe extern "C" {
    fn gettid() -> i32;
}
