//! The locks of `sigprof::contention`, which are parking_lot's, and are seen without a stand-in.

use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sigprof::contention::{self, Condvar, Mutex, ReentrantMutex, RwLock};

use crate::below::{sums_below, sums_of};
use crate::compile;
use crate::locks::{
    Lock, assert_waits_are_seen, assert_watch_sees_waits, current_tid, sleeps, stays_on_the_stack,
};
use crate::moments::panic_while_another_waits;
use crate::process::succeed;

impl Lock for Mutex<()> {
    fn with(&self, work: impl FnOnce()) {
        let _guard = self.lock();
        work();
    }
}

impl Lock for ReentrantMutex<()> {
    fn with(&self, work: impl FnOnce()) {
        let _guards = (self.lock(), self.lock());
        work();
    }
}

/// A lock's way to be waited for, and the one to be held.
struct Ways<'l>(&'l RwLock<()>, fn(&RwLock<()>, &mut dyn FnMut()));

impl Lock for Ways<'_> {
    fn with(&self, work: impl FnOnce()) {
        let mut work = Some(work);
        self.1(self.0, &mut || work.take().unwrap()());
    }
}

fn assert_both_watches_see(lock: &impl Lock, kind: &str, is_whole_process: bool) {
    match is_whole_process {
        true => assert_waits_are_seen(lock, kind),
        false => assert_watch_sees_waits(contention::watch_locks().unwrap(), lock, kind),
    }
}

#[test]
fn waits_for_mutexes_are_seen() {
    static MUTEX: Mutex<()> = contention::const_mutex(());
    assert_both_watches_see(&MUTEX, "mutex", false);
}

#[test]
fn waits_for_mutexes_are_seen_once_where_the_process_is_watched() {
    assert_both_watches_see(&Mutex::new(()), "mutex", true);
}

#[test]
fn waits_for_reentrant_mutexes_are_seen() {
    static MUTEX: ReentrantMutex<()> = contention::const_reentrant_mutex(());
    assert_both_watches_see(&MUTEX, "mutex", false);
}

#[test]
fn waits_for_writers_are_seen() {
    static LOCK: RwLock<()> = contention::const_rwlock(());
    let way = |lock: &RwLock<()>, work: &mut dyn FnMut()| {
        let _guard = lock.write();
        work();
    };
    assert_both_watches_see(&Ways(&LOCK, way), "rwlock", false);
}

#[test]
fn waits_for_writers_are_seen_once_where_the_process_is_watched() {
    let lock = RwLock::new(());
    let way = |lock: &RwLock<()>, work: &mut dyn FnMut()| {
        let _guard = lock.write();
        work();
    };
    assert_both_watches_see(&Ways(&lock, way), "rwlock", true);
}

#[test]
fn waits_for_readers_that_become_writers_are_seen() {
    let lock = RwLock::new(());
    let way = |lock: &RwLock<()>, work: &mut dyn FnMut()| {
        let guard = lock.upgradable_read();
        work();
        drop(contention::RwLockUpgradableReadGuard::upgrade(guard));
    };
    assert_both_watches_see(&Ways(&lock, way), "rwlock", false);
}

#[inline(never)]
fn is_notified(mutex: &Mutex<bool>, condvar: &Condvar) {
    let mut is_set = mutex.lock();
    condvar.wait_while(&mut is_set, |is_set| !*is_set);
    *is_set = false;
    stays_on_the_stack();
}

#[inline(never)]
fn notifies(mutex: &Mutex<bool>, condvar: &Condvar) {
    *mutex.lock() = true;
    condvar.notify_one();
    stays_on_the_stack();
}

#[test]
fn waits_for_condition_variables_are_seen() {
    const TIMES: i64 = 20;
    for watch in [contention::watch_locks, contention::watch_process] {
        let before = contention::all_waits()
            .map_or([0, 0], |waits| sums_of(&waits, "is_notified", "condvar"));
        let watch = watch().unwrap();
        contention::set_sample_interval(Duration::from_nanos(1));
        let (mutex, condvar) = (Mutex::new(false), Condvar::new());
        let tid = AtomicI32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                tid.store(current_tid(), Ordering::Release);
                (0..TIMES).for_each(|_| is_notified(&mutex, &condvar));
            });
            for _ in 0..TIMES {
                // Until the other thread waits, and not for the answer to the last time.
                while !sleeps(tid.load(Ordering::Acquire)) || *mutex.lock() {
                    thread::yield_now();
                }
                notifies(&mutex, &condvar);
            }
        });
        drop(watch);
        let waits = contention::all_waits().unwrap();
        let [count, ns] = sums_of(&waits, "is_notified", "condvar");
        assert_eq!(count - before[0], TIMES, "{}", waits.top(20));
        assert!(ns > before[1]);
        // They hide waits of threads that have nothing to do.
        let busy = contention::profile().unwrap();
        assert_eq!(sums_of(&busy, "is_notified", "condvar"), [0, 0]);
        assert!(
            busy.comments
                .iter()
                .any(|comment| comment.contains("hidden"))
        );
    }
}

#[inline(never)]
fn tries_in_vain(mutex: &Mutex<()>, timeout: Duration) {
    assert!(mutex.try_lock().is_none());
    assert!(mutex.try_lock_for(timeout).is_none());
    assert!(mutex.try_lock_until(Instant::now() + timeout).is_none());
    stays_on_the_stack();
}

#[test]
fn waits_for_a_lock_that_is_never_let_go_end_in_time_and_are_seen() {
    let watch = contention::watch_locks().unwrap();
    contention::set_sample_interval(Duration::from_nanos(1));
    let mutex = Mutex::new(());
    std::mem::forget(mutex.lock());
    let (timeout, begin) = (Duration::from_millis(5), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| tries_in_vain(&mutex, timeout));
    });
    let took = begin.elapsed();
    drop(watch);
    let profile = contention::profile().unwrap();
    // One that only tries does not wait.
    let [count, ns] = sums_below(&profile, "tries_in_vain");
    let bounds = [2 * timeout, took].map(|time| time.as_nanos() as i64);
    assert_eq!(count, 2, "{}", profile.top(10));
    assert!((bounds[0]..=bounds[1]).contains(&ns), "{ns}: {bounds:?}");
    let holders = contention::holders().unwrap();
    assert_eq!(sums_below(&holders, "end_waits"), [0, 0]);
}

#[test]
fn who_panics_while_others_wait_answers_for_them() {
    let watch = contention::watch_locks().unwrap();
    contention::set_sample_interval(Duration::from_nanos(1));
    let mutex = Mutex::new(0);
    panic_while_another_waits(|| mutex.lock(), || *mutex.lock() += 1);
    drop(watch);
    assert_eq!(*mutex.lock(), 1);
    let holders = contention::holders().unwrap();
    let [count, _] = sums_below(&holders, "panics_with");
    assert_eq!(count, 1, "{}", holders.top(10));
}

/// What a program does with locks of this interface.
macro_rules! uses {
    ($name:ident, $($locks:ident)::+) => {
        #[test]
        fn $name() {
            use $($locks)::+::{
                Condvar, MappedMutexGuard, Mutex, MutexGuard, ReentrantMutex, RwLock,
                RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
            };

            static MUTEX: Mutex<[u32; 2]> = Mutex::new([1, 2]);
            let second: MappedMutexGuard<'_, u32> =
                MutexGuard::map(MUTEX.lock(), |pair| &mut pair[1]);
            assert!(*second == 2 && MUTEX.is_locked() && MUTEX.try_lock().is_none());
            MappedMutexGuard::unlock_fair(second);
            let mut guard = MUTEX.lock();
            MutexGuard::bump(&mut guard);
            MutexGuard::unlocked(&mut guard, || assert!(!MUTEX.is_locked()));
            let moment = Duration::from_micros(10);
            assert!(MUTEX.try_lock_for(moment).is_none());
            MutexGuard::unlock_fair(guard);
            assert_eq!(Mutex::new(5).into_inner(), 5);
            assert_eq!(format!("{:?}", Mutex::new(5)), "Mutex { data: 5 }");

            let lock = RwLock::new(vec![1]);
            let readers = (lock.read(), lock.read_recursive());
            assert!(lock.try_write().is_none() && lock.try_write_for(moment).is_none());
            assert!(lock.try_read().is_some() && lock.is_locked() && !lock.is_locked_exclusive());
            RwLockReadGuard::unlock_fair(readers.0);
            drop(readers.1);
            let mut writer = lock.write();
            writer.push(2);
            assert!(lock.try_read_until(Instant::now() + moment).is_none());
            assert!(lock.try_upgradable_read_for(moment).is_none());
            let upgradable = RwLockWriteGuard::downgrade_to_upgradable(writer);
            assert_eq!(*lock.read(), [1, 2]);
            let mut writer = RwLockUpgradableReadGuard::upgrade(upgradable);
            RwLockWriteGuard::bump(&mut writer);
            let reader = RwLockWriteGuard::downgrade(writer);
            let upgradable = lock.upgradable_read();
            let upgradable = RwLockUpgradableReadGuard::try_upgrade(upgradable).unwrap_err();
            let upgradable =
                RwLockUpgradableReadGuard::try_upgrade_for(upgradable, moment).unwrap_err();
            drop(RwLockUpgradableReadGuard::downgrade(upgradable));
            drop(reader);
            assert!(!lock.is_locked());

            let reentrant = ReentrantMutex::new(7);
            let both = (reentrant.lock(), reentrant.try_lock().unwrap());
            assert!(*both.0 == *both.1 && reentrant.is_owned_by_current_thread());

            let (mutex, condvar) = (Mutex::new(0), Condvar::new());
            assert!(!condvar.notify_one() && condvar.notify_all() == 0);
            let mut guard = mutex.lock();
            assert!(condvar.wait_for(&mut guard, moment).timed_out());
            assert!(condvar.wait_until(&mut guard, Instant::now() + moment).timed_out());
            assert!(condvar.wait_while_for(&mut guard, |_| true, moment).timed_out());
            assert!(!condvar.wait_while_for(&mut guard, |n| *n != 0, Duration::MAX).timed_out());
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| condvar.wait(&mut mutex.lock()));
                }
                let mut woken = 0;
                drop(guard);
                woken += usize::from(condvar.notify_one());
                while woken < 3 {
                    woken += condvar.notify_all();
                    thread::yield_now();
                }
            });
            assert!(!mutex.is_locked());
        }
    };
}

uses!(they_do_what_those_of_parking_lot_do, sigprof::contention);
uses!(those_of_parking_lot_do_that, parking_lot);

#[test]
#[cfg(target_env = "gnu")]
fn waits_of_a_static_program_are_seen() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-Ctarget-feature=+crt-static"];
    let program = compile::program(
        directory.path(),
        "tests/contention/static_program.rs",
        &flags,
    );
    let printed = succeed(&mut Command::new(program)).stdout;
    if cfg!(feature = "symbolize") {
        let printed = String::from_utf8_lossy(&printed);
        assert!(
            !printed.contains("as lock_api::mutex::RawMutex>"),
            "{printed}"
        );
        assert!(!printed.contains("locks::let_go"), "{printed}");
        // The one profile, and the other.
        let (waiters, holders) = printed.split_at(printed.rfind("File: program").unwrap());
        let whose = |profile: &str| {
            ["static_program::waits", "static_program::holds"].map(|name| profile.contains(name))
        };
        assert_eq!(
            [waiters, holders].map(whose),
            [[true, false], [false, true]],
            "{printed}"
        );
    }
}
