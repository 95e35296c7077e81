//! The moments at which an allocator is called that ordinary code is not.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sigprof::heap;

/// Tells threads to stop, whatever happens.
pub struct Stop<'s>(pub &'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something while three threads allocate and free all the time.
fn while_others_allocate(work: impl FnOnce()) {
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(stop);
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    black_box(vec![0_u8; 100]);
                }
            });
        }
        work();
    });
}

/// Bytes in use of blocks of one size.
fn in_use(size: i64) -> i64 {
    let profile = heap::profile().unwrap();
    let is_size = |label: &sigprof::profile::Label| match label.value {
        sigprof::profile::LabelValue::Num { value, .. } => value == size,
        sigprof::profile::LabelValue::Str(_) => false,
    };
    let samples = profile.samples().filter(|s| s.labels.iter().any(is_size));
    samples.map(|sample| sample.values[3]).sum()
}

#[test]
fn a_thread_allocates_and_frees_until_its_last_destructor() {
    struct Late(Vec<u8>);
    impl Drop for Late {
        fn drop(&mut self) {
            // Other thread-locals may be gone, those of the standard library as well.
            black_box(vec![0_u8; 30_011]);
            KEPT.lock().unwrap().push(vec![0; 30_013]);
        }
    }
    thread_local! { static LATE: RefCell<Option<Late>> = const { RefCell::new(None) }; }
    static KEPT: std::sync::Mutex<Vec<Vec<u8>>> = std::sync::Mutex::new(Vec::new());

    heap::set_sample_interval(1);
    for _ in 0..10 {
        let thread = std::thread::spawn(|| {
            LATE.set(Some(Late(vec![0; 30_017])));
            LATE.with_borrow(|late| black_box(late.as_ref().map(|late| late.0.len())));
        });
        thread.join().unwrap();
    }
    heap::set_sample_interval(0);
    assert_eq!([30_011, 30_013, 30_017].map(in_use), [0, 300_130, 0]);
}

#[test]
fn a_forked_child_goes_on_with_a_copy() {
    heap::set_sample_interval(1);
    let before = vec![0_u8; 30_011];
    // Others allocate and free all the time, so that locks are held while the process forks.
    while_others_allocate(|| {
        for _ in 0..5 {
            // SAFETY: the child allocates, as the C library lets it, and ends itself.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0);
            if pid == 0 {
                // SAFETY: it ends this process alone, and within a time.
                unsafe { libc::alarm(60) };
                let new = vec![0_u8; 30_013];
                // Names take many blocks.
                heap::set_sample_interval(0);
                let is_right = [30_011, 30_013].map(counted) == [1, 1];
                drop(new);
                let is_right = is_right && counted(30_013) == 0;
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(!is_right)) };
            }
            let mut status = 0;
            // SAFETY: the place for the status outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert_eq!(status, 0);
        }
    });
    heap::set_sample_interval(0);
    assert_eq!(in_use(30_011), 30_011);
    drop(before);
}

/// Blocks of a size in use.
fn counted(size: i64) -> i64 {
    in_use(size) / size
}

/// As the standard library does where it makes a backtrace.
#[test]
fn a_thread_may_allocate_while_it_holds_the_loaders_lock() {
    unsafe extern "C" fn in_lock(
        _object: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        _data: *mut libc::c_void,
    ) -> libc::c_int {
        // Longer than others go on without a look at what is loaded, for which they wait here.
        let begin = std::time::Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {
            black_box(vec![0_u8; 100]);
        }
        1
    }
    heap::set_sample_interval(1);
    let recording = sigprof::cpu::Profiler::new().start().unwrap();
    // SAFETY: the callback is one of the kind that is called, and needs no data.
    let iterate = || unsafe { libc::dl_iterate_phdr(Some(in_lock), std::ptr::null_mut()) };
    while_others_allocate(|| {
        std::thread::scope(|scope| {
            let iterating = scope.spawn(|| (0..20).for_each(|_| assert_eq!(iterate(), 1)));
            iterate();
            // Most children have the lock held by the thread that they do not have.
            while !iterating.is_finished() {
                // SAFETY: the child allocates, as the C library lets it, and ends itself.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: it ends this process alone, and within a time.
                    unsafe { libc::alarm(60) };
                    // Until it has looked what is loaded.
                    let begin = std::time::Instant::now();
                    while begin.elapsed() < Duration::from_millis(30) {
                        black_box(vec![0_u8; 100]);
                    }
                    // SAFETY: as above.
                    unsafe { libc::_exit(0) }
                }
                let mut status = -1;
                // SAFETY: the place for the status outlives the call.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
            }
        });
    });
    heap::set_sample_interval(0);
    drop(recording.stop().unwrap());
}

/// Has a thread of the C library's run a function; with the least stack, if so. What it returned.
fn run_in_thread(
    run: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
    has_least_stack: bool,
    meanwhile: impl FnOnce(libc::pthread_t),
) -> *mut libc::c_void {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
    let mut returned = std::ptr::null_mut();
    // SAFETY: the calls fill what they are given before others read it, and the thread is joined.
    unsafe {
        let least = libc::sysconf(libc::_SC_THREAD_STACK_MIN) as usize;
        assert_eq!(libc::pthread_attr_init(attributes.as_mut_ptr()), 0);
        if has_least_stack {
            let set = libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), least);
            assert_eq!(set, 0, "{least}");
        }
        let (attributes, argument) = (attributes.as_mut_ptr(), std::ptr::null_mut());
        let made = libc::pthread_create(thread.as_mut_ptr(), attributes, run, argument);
        assert_eq!(made, 0);
        meanwhile(thread.assume_init());
        assert_eq!(libc::pthread_join(thread.assume_init(), &mut returned), 0);
        libc::pthread_attr_destroy(attributes);
    }
    returned
}

/// Loads a module, so that the next sample looks what is loaded.
fn load_another() {
    // SAFETY: a library of the C library's own, whose initialization does nothing.
    let module = unsafe { libc::dlopen(c"libutil.so.1".as_ptr(), libc::RTLD_NOW) };
    assert!(!module.is_null());
    std::thread::sleep(Duration::from_millis(110));
}

#[test]
fn a_thread_with_the_least_stack_takes_samples() {
    static IS_LOADED: AtomicBool = AtomicBool::new(false);
    extern "C" fn allocates(_argument: *mut libc::c_void) -> *mut libc::c_void {
        // The first one makes what sampling needs.
        black_box(vec![0_u8; 30_011]);
        while !IS_LOADED.load(Ordering::Relaxed) {
            black_box(vec![0_u8; 100]);
        }
        // Enough to have tables made of all modules.
        (0..20_000).for_each(|_| drop(black_box(vec![0_u8; 30_013])));
        std::ptr::null_mut()
    }
    heap::set_sample_interval(0);
    run_in_thread(allocates, true, |_| {
        heap::set_sample_interval(1);
        load_another();
        IS_LOADED.store(true, Ordering::Relaxed);
    });
    heap::set_sample_interval(0);
    let profile = heap::profile().unwrap();
    let size = |s: &sigprof::profile::Sample<'_>| s.values[1] / s.values[0].max(1);
    let seen: i64 = profile
        .samples()
        .filter(|s| size(s) == 30_013)
        .map(|s| s.values[0])
        .sum();
    assert!(seen > 19_000, "{seen}");
}

/// A thread is cancelled where it looks at a file next, which must not be the profile's.
#[test]
fn a_thread_that_is_cancelled_is_not_in_the_middle_of_a_sample() {
    static IS_CANCELLED: AtomicBool = AtomicBool::new(false);
    extern "C" fn allocates(_argument: *mut libc::c_void) -> *mut libc::c_void {
        while !IS_CANCELLED.load(Ordering::Relaxed) {
            black_box(vec![0_u8; 100]);
        }
        (0..20_000).for_each(|_| drop(black_box(vec![0_u8; 100])));
        std::ptr::without_provenance_mut(7)
    }
    heap::set_sample_interval(1);
    let returned = run_in_thread(allocates, false, |thread| {
        // SAFETY: the thread is not joined yet.
        assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
        load_another();
        IS_CANCELLED.store(true, Ordering::Relaxed);
    });
    assert_eq!(returned.addr(), 7);
    // Nothing is held that a fork waits for.
    // SAFETY: the child ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it ends this process alone.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: the place for the status outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[inline(never)]
fn allocates_without_files() -> Vec<Vec<u8>> {
    (0..100).map(|_| black_box(vec![0; 30_011])).collect()
}

#[test]
fn stacks_are_walked_where_no_file_can_be_opened() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call fills the limit.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(got, 0);
    let set = move |most| {
        let limit = libc::rlimit {
            rlim_cur: most,
            ..limit
        };
        // SAFETY: no more than the limit that there is.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    };
    heap::set_sample_interval(0);
    let refused = std::thread::spawn(move || {
        set(0);
        heap::set_sample_interval(1);
        let blocks = allocates_without_files();
        heap::set_sample_interval(0);
        blocks
    });
    drop(refused.join().unwrap());
    set(limit.rlim_cur);
    let profile = heap::profile().unwrap().to_string();
    assert!(profile.contains("allocates_without_files"), "{profile}");
}

/// What sigprof allocates for a profile would be the peak of a small program for ever.
#[test]
fn profiles_are_in_no_profile() {
    heap::set_sample_interval(1);
    let kept = black_box(vec![0_u8; 30_011]);
    // Bytes allocated, in use, in use at the peak, and of growth.
    let totals = || {
        let profiles = [heap::profile(), heap::peak(), heap::growth()].map(Result::unwrap);
        let [profile, peak, growth] = &profiles;
        [
            profile.total(1),
            profile.total(3),
            peak.total(1),
            growth.total(1),
        ]
    };
    let first = totals();
    let recording = sigprof::cpu::Profiler::new().start().unwrap();
    drop(recording.stop().unwrap());
    drop(heap::lifetimes().unwrap());
    let second = totals();
    crate::process::figure!("{first:?}, after profiles {second:?}");
    for (first, second) in first.into_iter().zip(second) {
        // A profile without names of the debug information would take more.
        assert!(
            first >= 30_011 && second - first < 10_000,
            "{first} {second}"
        );
    }
    drop(kept);
}
