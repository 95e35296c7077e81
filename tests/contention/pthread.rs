//! The C library's locks, as C and C++ use them.

use std::cell::UnsafeCell;
use std::mem::zeroed;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use sigprof::contention;

use crate::below::{sums_below, sums_of};
use crate::locks::{Lock, assert_waits_are_seen, sleeps, stays_on_the_stack};

/// What C has for a lock, and how it is locked and unlocked.
struct Pthread<T> {
    lock: UnsafeCell<T>,
    take: unsafe fn(*mut T) -> i32,
    release: unsafe fn(*mut T) -> i32,
}

// SAFETY: these are locks.
unsafe impl<T> Sync for Pthread<T> {}

impl<T> Lock for Pthread<T> {
    fn with(&self, work: impl FnOnce()) {
        // SAFETY: the lock stays where it is, and is released by the thread that took it.
        unsafe {
            assert_eq!((self.take)(self.lock.get()), 0);
            work();
            assert_eq!((self.release)(self.lock.get()), 0);
        }
    }
}

fn mutex(take: unsafe fn(*mut libc::pthread_mutex_t) -> i32) -> Pthread<libc::pthread_mutex_t> {
    Pthread {
        lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
        take,
        release: calls::pthread_mutex_unlock,
    }
}

fn rwlock(take: unsafe fn(*mut libc::pthread_rwlock_t) -> i32) -> Pthread<libc::pthread_rwlock_t> {
    Pthread {
        lock: UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER),
        take,
        release: calls::pthread_rwlock_unlock,
    }
}

/// Calls as a C program makes them: an address that is kept in data leads to the function itself.
mod calls {
    macro_rules! calls {
        ($($name:ident($type:ident);)+) => {
            $(
                pub unsafe fn $name(lock: *mut libc::$type) -> i32 {
                    // SAFETY: the caller's own lock.
                    unsafe { libc::$name(lock) }
                }
            )+
        };
    }

    calls! {
        pthread_mutex_lock(pthread_mutex_t);
        pthread_mutex_unlock(pthread_mutex_t);
        pthread_rwlock_wrlock(pthread_rwlock_t);
        pthread_rwlock_unlock(pthread_rwlock_t);
        sem_wait(sem_t);
        sem_post(sem_t);
    }
}

/// A moment that no test lasts to.
fn in_an_hour(clock: libc::clockid_t) -> libc::timespec {
    // SAFETY: fills the value.
    unsafe {
        let mut time = zeroed();
        assert_eq!(libc::clock_gettime(clock, &mut time), 0);
        time.tv_sec += 3600;
        time
    }
}

#[test]
fn waits_for_mutexes_are_seen() {
    let lock = mutex(calls::pthread_mutex_lock);
    assert_waits_are_seen(&lock, "mutex");
}

unsafe fn takes_within_an_hour(mutex: *mut libc::pthread_mutex_t) -> i32 {
    // SAFETY: the caller's own lock.
    unsafe { libc::pthread_mutex_timedlock(mutex, &in_an_hour(libc::CLOCK_REALTIME)) }
}

#[test]
fn waits_for_mutexes_with_an_end_are_seen() {
    let lock = mutex(takes_within_an_hour);
    assert_waits_are_seen(&lock, "mutex");
}

#[test]
fn waits_for_writers_are_seen() {
    let lock = rwlock(calls::pthread_rwlock_wrlock);
    assert_waits_are_seen(&lock, "rwlock");
}

#[test]
fn waits_for_semaphores_are_seen() {
    let lock = Pthread {
        // SAFETY: what `sem_init` is for.
        lock: UnsafeCell::new(unsafe { zeroed() }),
        take: calls::sem_wait,
        release: calls::sem_post,
    };
    // SAFETY: a semaphore that stays where it is.
    assert_eq!(unsafe { libc::sem_init(lock.lock.get(), 0, 1) }, 0);
    assert_waits_are_seen(&lock, "semaphore");
}

/// A mutex of a kind.
fn mutex_of(kind: libc::c_int) -> Pthread<libc::pthread_mutex_t> {
    let lock = mutex(calls::pthread_mutex_lock);
    // SAFETY: as the functions' manuals have it.
    unsafe {
        let mut attributes = zeroed();
        assert_eq!(libc::pthread_mutexattr_init(&mut attributes), 0);
        assert_eq!(libc::pthread_mutexattr_settype(&mut attributes, kind), 0);
        assert_eq!(libc::pthread_mutex_init(lock.lock.get(), &attributes), 0);
    }
    lock
}

#[test]
fn waits_for_mutexes_of_every_kind_are_seen() {
    assert_waits_are_seen(&mutex_of(libc::PTHREAD_MUTEX_RECURSIVE), "mutex");
    assert_answers_are_those_of_the_c_library();
}

/// What a lock answers while the process is watched is what it would answer otherwise, and none of
/// these calls is a wait.
fn assert_answers_are_those_of_the_c_library() {
    let [before, _] = sums_below(&contention::all_waits().unwrap(), "answers");
    let watch = contention::watch_process().unwrap();
    answers();
    drop(watch);
    let all = contention::all_waits().unwrap();
    assert_eq!(
        sums_below(&all, "answers")[0] - before,
        1,
        "{}",
        all.top(20)
    );
}

#[inline(never)]
fn answers() {
    let [checking, recursive] = [
        libc::PTHREAD_MUTEX_ERRORCHECK,
        libc::PTHREAD_MUTEX_RECURSIVE,
    ]
    .map(mutex_of);
    let [checking, recursive] = [&checking, &recursive].map(|lock| lock.lock.get());
    // SAFETY: locks that stay where they are.
    unsafe {
        assert_eq!(libc::pthread_mutex_unlock(checking), libc::EPERM);
        assert_eq!(libc::pthread_mutex_lock(checking), 0);
        assert_eq!(libc::pthread_mutex_lock(checking), libc::EDEADLK);
        assert_eq!(libc::pthread_mutex_unlock(checking), 0);
        assert_eq!(libc::pthread_mutex_lock(recursive), 0);
        assert_eq!(libc::pthread_mutex_lock(recursive), 0);
        assert_eq!(libc::pthread_mutex_unlock(recursive), 0);
        assert_eq!(libc::pthread_mutex_unlock(recursive), 0);
        let rwlock = rwlock(calls::pthread_rwlock_wrlock);
        assert_eq!(libc::pthread_rwlock_wrlock(rwlock.lock.get()), 0);
        assert_eq!(
            libc::pthread_rwlock_rdlock(rwlock.lock.get()),
            libc::EDEADLK
        );
        // A semaphore that cannot be had in time leaves its error in errno, and one that can be
        // had leaves errno alone. The first is the wait.
        let mut semaphore = zeroed();
        assert_eq!(libc::sem_init(&mut semaphore, 0, 0), 0);
        let past = zeroed();
        assert_eq!(libc::sem_timedwait(&mut semaphore, &past), -1);
        assert_eq!(*libc::__errno_location(), libc::ETIMEDOUT);
        assert_eq!(libc::sem_post(&mut semaphore), 0);
        *libc::__errno_location() = 77;
        assert_eq!(libc::sem_wait(&mut semaphore), 0);
        assert_eq!(*libc::__errno_location(), 77);
    }
}

/// A mutex, a condition variable, and what is waited for.
struct Condvar {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    condvar: UnsafeCell<libc::pthread_cond_t>,
    is_set: UnsafeCell<bool>,
}

// SAFETY: the value is used with the mutex held.
unsafe impl Sync for Condvar {}

impl Condvar {
    const fn new() -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            condvar: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            is_set: UnsafeCell::new(false),
        }
    }

    #[inline(never)]
    fn awaits(&self) {
        // SAFETY: as the functions' manuals have it.
        unsafe {
            assert_eq!(libc::pthread_mutex_lock(self.mutex.get()), 0);
            while !*self.is_set.get() {
                let error = libc::pthread_cond_wait(self.condvar.get(), self.mutex.get());
                assert_eq!(error, 0);
            }
            assert_eq!(libc::pthread_mutex_unlock(self.mutex.get()), 0);
        }
    }

    #[inline(never)]
    fn sets(&self) {
        // SAFETY: as above.
        unsafe {
            assert_eq!(libc::pthread_mutex_lock(self.mutex.get()), 0);
            *self.is_set.get() = true;
            assert_eq!(libc::pthread_cond_signal(self.condvar.get()), 0);
            assert_eq!(libc::pthread_mutex_unlock(self.mutex.get()), 0);
        }
    }
}

#[test]
fn waits_on_condition_variables_are_apart() {
    contention::set_sample_interval(Duration::from_nanos(1));
    let (condvar, tid) = (Condvar::new(), AtomicI32::new(0));
    let watch = contention::watch_process().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: asks for a number.
            tid.store(unsafe { libc::gettid() }, Ordering::Release);
            condvar.awaits();
        });
        while !sleeps(tid.load(Ordering::Acquire)) {
            std::thread::yield_now();
        }
        condvar.sets();
    });
    drop(watch);
    let all = contention::all_waits().unwrap();
    assert!(sums_of(&all, "awaits", "condvar")[0] > 0, "{}", all.top(20));
    let busy = contention::profile().unwrap();
    assert_eq!(sums_of(&busy, "awaits", "condvar"), [0, 0]);
    assert!(busy.comments.iter().any(|c| c.starts_with("hidden: ")));
}

static CANCELLED: Condvar = Condvar::new();

extern "C" fn waits_for_ever(tid: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the test passes that.
    let tid = unsafe { &*tid.cast::<AtomicI32>() };
    // SAFETY: asks for a number.
    tid.store(unsafe { libc::gettid() }, Ordering::Release);
    CANCELLED.awaits();
    std::ptr::null_mut()
}

/// A thread that is cancelled while it waits is not among those who wait from then on.
#[test]
fn a_wait_may_be_cancelled() {
    contention::set_sample_interval(Duration::from_nanos(1));
    let watch = contention::watch_process().unwrap();
    const TIMES: usize = 100;
    for _ in 0..TIMES {
        let tid = AtomicI32::new(0);
        // SAFETY: as the functions' manuals have it. The cancelled thread unwinds through frames
        // that have nothing to drop.
        unsafe {
            let mut thread = zeroed();
            let argument = (&raw const tid).cast_mut().cast();
            let start = std::mem::transmute::<*const (), extern "C" fn(*mut _) -> *mut _>(
                waits_for_ever as *const (),
            );
            let error = libc::pthread_create(&mut thread, std::ptr::null(), start, argument);
            assert_eq!(error, 0);
            while tid.load(Ordering::Acquire) == 0 || !sleeps(tid.load(Ordering::Acquire)) {
                std::thread::yield_now();
            }
            assert_eq!(libc::pthread_cancel(thread), 0);
            let mut result = std::ptr::null_mut();
            assert_eq!(libc::pthread_join(thread, &mut result), 0);
            assert_eq!(result as isize, -1, "it was not cancelled");
            // The cancelled thread had taken the mutex again.
            assert_eq!(libc::pthread_mutex_unlock(CANCELLED.mutex.get()), 0);
        }
    }
    // Nobody waits: whoever ends waits has nothing to answer for.
    CANCELLED.sets();
    drop(watch);
    let holders = contention::holders().unwrap();
    assert_eq!(sums_below(&holders, "sets"), [0, 0], "{}", holders.top(20));
    // Not even such as are left out, as waits on condition variables are.
    assert_eq!(holders.comments, [""; 0]);
}

/// Several readers hold a lock: each answers for its time, and the wait counts once.
#[test]
fn readers_answer_for_what_a_writer_waits() {
    contention::set_sample_interval(Duration::from_nanos(1));
    let lock = rwlock(calls::pthread_rwlock_wrlock);
    let tid = AtomicI32::new(0);
    let watch = contention::watch_process().unwrap();
    std::thread::scope(|scope| {
        let readers: [_; 2] = std::array::from_fn(|nth| {
            let lock = &lock;
            let is_over = std::sync::Arc::new(AtomicBool::new(false));
            let is_held = std::sync::Arc::new(AtomicBool::new(false));
            let (over, held) = (is_over.clone(), is_held.clone());
            let thread = scope.spawn(move || {
                let reads = [first_reader, second_reader][nth];
                reads(lock, &held, &over);
            });
            while !is_held.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            (is_over, thread)
        });
        scope.spawn(|| {
            // SAFETY: asks for a number.
            tid.store(unsafe { libc::gettid() }, Ordering::Release);
            lock.with(|| {});
        });
        while tid.load(Ordering::Acquire) == 0 || !sleeps(tid.load(Ordering::Acquire)) {
            std::thread::yield_now();
        }
        for (is_over, thread) in readers {
            std::thread::sleep(Duration::from_millis(5));
            is_over.store(true, Ordering::Release);
            thread.join().unwrap();
        }
    });
    drop(watch);
    let (waiters, holders) = (
        contention::profile().unwrap(),
        contention::holders().unwrap(),
    );
    let [first, second] = ["first_reader", "second_reader"].map(|f| sums_below(&holders, f));
    let [waits, ns] = sums_of(&waiters, "readers_answer", "rwlock");
    assert_eq!(
        [first[0], second[0], waits],
        [1, 0, 1],
        "{}",
        holders.top(20)
    );
    assert!(first[1] >= 5_000_000 && second[1] >= 5_000_000);
    assert!(first[1] + second[1] <= ns);
}

type RwLock = Pthread<libc::pthread_rwlock_t>;

fn reads(lock: &RwLock, is_held: &AtomicBool, is_over: &AtomicBool) {
    // SAFETY: a lock that stays where it is.
    assert_eq!(unsafe { libc::pthread_rwlock_rdlock(lock.lock.get()) }, 0);
    is_held.store(true, Ordering::Release);
    while !is_over.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    // SAFETY: as above.
    assert_eq!(unsafe { libc::pthread_rwlock_unlock(lock.lock.get()) }, 0);
}

#[inline(never)]
fn first_reader(lock: &RwLock, is_held: &AtomicBool, is_over: &AtomicBool) {
    reads(lock, is_held, is_over);
    stays_on_the_stack();
}

#[inline(never)]
fn second_reader(lock: &RwLock, is_held: &AtomicBool, is_over: &AtomicBool) {
    reads(lock, is_held, is_over);
    stays_on_the_stack();
}

/// Waits for a mutex that another one has, so many times, each of which is given up at once.
#[inline(never)]
fn gives_up(mutex: &Pthread<libc::pthread_mutex_t>, times: u32) {
    // Before any time: the C library makes no system call.
    let no_time = libc::timespec {
        tv_sec: -1,
        tv_nsec: 0,
    };
    for _ in 0..times {
        // SAFETY: the mutex is one, and the time outlives the call.
        let error = unsafe { libc::pthread_mutex_timedlock(mutex.lock.get(), &raw const no_time) };
        assert_eq!(error, libc::ETIMEDOUT);
    }
}

#[test]
fn some_of_very_many_waits_stand_for_all() {
    const WAITS: u32 = 3_000_000;
    contention::set_sample_interval(Duration::from_nanos(1));
    let mutex = mutex(calls::pthread_mutex_lock);
    let watch = contention::watch_process().unwrap();
    let begin = Instant::now();
    mutex.with(|| gives_up(&mutex, WAITS));
    // A wait that takes no time takes as long as to ask for it.
    (0..WAITS).for_each(|_| {
        std::hint::black_box(Instant::now());
    });
    let most_ns = begin.elapsed().as_nanos() as i64;
    drop(watch);
    let profile = contention::profile().unwrap();
    // Those without a stack are counted, too.
    let [count, ns] = [profile.total(0), profile.total(1)];
    // Stacks are recorded at a rate that is bounded. Did each stand for 10,000 waits, this would be
    // more than five standard errors.
    let off = count - i64::from(WAITS);
    assert!(off.abs() < i64::from(WAITS) / 3, "{}", profile.top(10));
    assert!(0 < ns && ns < most_ns * 4 / 3, "{}", profile.top(10));
    let [below, _] = sums_below(&profile, "gives_up");
    assert!(below > 0, "{}", profile.top(10));
}
