//! A profiler that cannot harm its host: programs made to be harmed, each in a process of its own.

#[cfg(target_arch = "x86_64")]
#[path = "support/mappings.rs"]
mod mappings;
#[path = "support/process.rs"]
mod process;
#[path = "support/sandbox.rs"]
mod sandbox;
#[path = "support/work.rs"]
mod work;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use process::{child, soak, succeed};
use sandbox::trap;
use sigprof::cpu::{Engine, Profiler, Recording};
use work::{StopOnDrop, burn};

fn profiler(frequency_hz: u32) -> Profiler {
    let profiler = Profiler::new().frequency_hz(frequency_hz);
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler
}

fn start(frequency_hz: u32) -> Recording {
    profiler(frequency_hz)
        .start()
        .expect("nothing else records")
}

macro_rules! in_a_process_of_their_own {
    ($($test:ident runs $child:ident;)*) => {$(
        #[test]
        fn $test() {
            succeed(&mut child(stringify!($child)));
        }
    )*};
}

in_a_process_of_their_own! {
    a_stack_that_loses_a_page_while_it_is_read runs child_whose_stack_has_holes;
    a_stack_out_of_an_arena_with_coroutines runs child_with_coroutines_in_an_arena;
    a_sandbox_that_answers_system_calls_with_a_trap runs child_in_a_trapping_sandbox;
    a_filter_is_not_called_after_the_stop runs child_that_frees_its_filter;
    a_handler_slower_than_the_period_leaves_time_to_the_program runs child_with_a_slow_filter;
    forks_beside_starts_and_stops runs child_that_forks_all_the_time;
    starts_stops_and_snapshots_from_many_threads runs child_of_many_recorders;
    half_of_the_queued_signals_are_the_hosts runs child_with_few_queued_signals;
    a_handler_that_is_replaced_is_told runs child_that_takes_the_signal;
    a_stopped_recording_keeps_its_figures runs child_that_records_twice;
}

#[cfg(target_arch = "x86_64")]
mod coroutine {
    // Runs on another stack, in code that has no unwind data, with a frame pointer of the caller's
    // choice: what a coroutine that was just made, or hand-written code that computes in rbp, looks
    // like to an unwinder.
    std::arch::global_asm!(
        ".globl spin_on_stack",
        ".type spin_on_stack, @function",
        "spin_on_stack:",
        "push rbp",
        "push r12",
        "mov r12, rsp",
        "mov rsp, rdi",
        "mov rbp, rsi",
        "call 3f",
        "mov rsp, r12",
        "pop r12",
        "pop rbp",
        "ret",
        "3:",
        "dec rdx",
        "jnz 3b",
        "ret",
        ".size spin_on_stack, . - spin_on_stack",
    );

    unsafe extern "C" {
        pub fn spin_on_stack(stack: *mut u8, frame_pointer: *mut u8, turns: u64);
    }
}

#[test]
#[ignore = "a child process"]
#[cfg(target_arch = "x86_64")]
fn child_whose_stack_has_holes() {
    const KIB: usize = 1024;
    let memory = mappings::map(1024 * KIB) as usize;
    let stop = AtomicBool::new(false);
    let recording = start(10_000);
    // SAFETY: no arguments.
    let this_thread = unsafe { libc::pthread_self() };
    thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        scope.spawn(|| {
            let page = (memory + 512 * KIB) as *mut libc::c_void;
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: a page of the test's own, which nothing but the unwinder looks at.
                unsafe {
                    libc::munmap(page, 4096);
                    libc::mmap(
                        page,
                        4096,
                        libc::PROT_READ | libc::PROT_WRITE,
                        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                        -1,
                        0,
                    );
                    page.cast::<u8>().write_volatile(1);
                }
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the main thread of the test outlives the scope.
                unsafe { libc::pthread_kill(this_thread, libc::SIGPROF) };
            }
        });
        // SAFETY: the stack is the lower half of the memory; the frame pointer leads to the page
        // that comes and goes.
        unsafe {
            coroutine::spin_on_stack(
                (memory + 256 * KIB) as *mut u8,
                (memory + 512 * KIB + 64) as *mut u8,
                (300e6 * soak()) as u64,
            );
        }
    });
    recording.stop().unwrap();
    assert!(recording.stats().records > 1000, "{}", recording.stats());
}

#[test]
#[ignore = "a child process"]
#[cfg(target_arch = "x86_64")]
fn child_with_coroutines_in_an_arena() {
    const KIB: usize = 1024;

    extern "C" fn body(arena: *mut libc::c_void) -> *mut libc::c_void {
        let first = arena.cast::<u8>().wrapping_add(64 * KIB);
        let stale = first.wrapping_add(32 * KIB);
        // SAFETY: stacks of the arena's; the second one is given back while nothing runs on it.
        unsafe {
            coroutine::spin_on_stack(first.sub(64), std::ptr::null_mut(), 500_000_000);
            assert_eq!(libc::mprotect(first.cast(), 64 * KIB, libc::PROT_NONE), 0);
            coroutine::spin_on_stack(first.sub(64), stale, 1_000_000_000);
        }
        std::ptr::null_mut()
    }

    let arena = mappings::map(256 * KIB);
    let recording = start(1000);
    // SAFETY: the upper half of the arena is the thread's stack, and the thread is joined.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        let stack = arena.add(128 * KIB).cast();
        assert_eq!(
            libc::pthread_attr_setstack(&mut attributes, stack, 128 * KIB),
            0
        );
        let mut thread: libc::pthread_t = 0;
        assert_eq!(
            libc::pthread_create(&mut thread, &attributes, body, arena.cast()),
            0
        );
        libc::pthread_join(thread, std::ptr::null_mut());
    }
    recording.stop().unwrap();
    assert!(recording.stats().records > 50, "{}", recording.stats());
}

#[test]
#[ignore = "a child process"]
#[cfg(not(target_arch = "x86_64"))]
fn child_whose_stack_has_holes() {}

#[test]
#[ignore = "a child process"]
#[cfg(not(target_arch = "x86_64"))]
fn child_with_coroutines_in_an_arena() {}

extern "C" fn answer_for_the_kernel(
    _: libc::c_int,
    _: *const libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel's own `ucontext_t`; the register holds the system call's answer.
    unsafe {
        let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        #[cfg(target_arch = "x86_64")]
        {
            machine.gregs[libc::REG_RAX as usize] = -i64::from(libc::EPERM);
        }
        #[cfg(target_arch = "aarch64")]
        {
            machine.regs[0] = -i64::from(libc::EPERM) as u64;
        }
    }
}

/// Gives the calling thread's handlers a stack that two signals fit on. Where the sandbox answers a
/// handler's own system call, the second signal's frame stands on the first one's stack, and beside
/// a CPU's widest registers the 8 KiB that Rust gives its threads hold one frame only.
fn take_signals_on_a_larger_stack() {
    const STACK: usize = 64 * 1024;
    let alternate = libc::stack_t {
        ss_sp: mappings::map(STACK).cast(),
        ss_flags: 0,
        ss_size: STACK,
    };
    // SAFETY: the stack is never unmapped.
    let installed = unsafe { libc::sigaltstack(&alternate, std::ptr::null_mut()) };
    assert_eq!(installed, 0);
}

/// Blocks the signal of the ticks in the calling thread, or unblocks it.
fn block_ticks(how: libc::c_int) {
    // SAFETY: a set of this function's own, and no stack of signals is asked for.
    unsafe {
        let mut ticks: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut ticks, libc::SIGPROF);
        libc::pthread_sigmask(how, &ticks, std::ptr::null_mut());
    }
}

#[test]
#[ignore = "a child process"]
fn child_in_a_trapping_sandbox() {
    // SAFETY: the handler writes one register of the interrupted system call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = answer_for_the_kernel as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut());
    }
    take_signals_on_a_larger_stack();
    // SAFETY: a system call without arguments.
    let tid = unsafe { libc::gettid() };
    let recording = start(1000);
    // What the flusher calls to arm a new thread, and the handler for a signal that a program
    // sends.
    trap(libc::SYS_timer_create);
    trap(libc::SYS_gettid);
    thread::scope(|scope| {
        // The first tick can come with the thread's first instructions.
        block_ticks(libc::SIG_BLOCK);
        scope.spawn(|| {
            take_signals_on_a_larger_stack();
            block_ticks(libc::SIG_UNBLOCK);
            burn(Duration::from_millis(100));
        });
        block_ticks(libc::SIG_UNBLOCK);
    });
    // To this thread: a signal to the process is taken by any of its threads, and the test runner's
    // first one has a small stack.
    // SAFETY: the signal has a handler.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGPROF) };
    burn(Duration::from_millis(50));
    recording.stop().unwrap();
}

static FILTER_ALLOWED: AtomicBool = AtomicBool::new(false);
static LATE_CALLS: AtomicU64 = AtomicU64::new(0);

extern "C" fn slow_filter(_: *mut libc::c_void) -> libc::c_int {
    let end = work::thread_cpu() + Duration::from_millis(2);
    while work::thread_cpu() < end {
        if !FILTER_ALLOWED.load(Ordering::Relaxed) {
            LATE_CALLS.fetch_add(1, Ordering::Relaxed);
        }
    }
    1
}

#[test]
#[ignore = "a child process"]
fn child_that_frees_its_filter() {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    burn(Duration::from_millis(1));
                }
            });
        }
        for _ in 0..50 {
            FILTER_ALLOWED.store(true, Ordering::Relaxed);
            // SAFETY: the filter reads clocks and atomics.
            let profiler = unsafe { profiler(1000).filter(slow_filter, std::ptr::null_mut()) };
            let recording = profiler.start().unwrap();
            thread::sleep(Duration::from_millis(6));
            recording.stop().unwrap();
            FILTER_ALLOWED.store(false, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(10));
    });
    assert_eq!(LATE_CALLS.load(Ordering::Relaxed), 0);
}

#[test]
#[ignore = "a child process"]
fn child_with_a_slow_filter() {
    FILTER_ALLOWED.store(true, Ordering::Relaxed);
    // SAFETY: the filter reads clocks and atomics.
    let profiler = unsafe { profiler(10_000).filter(slow_filter, std::ptr::null_mut()) };
    let recording = profiler.start().unwrap();
    let mut turns = 0;
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        turns += 1;
    }
    let profile = recording.stop().unwrap();
    assert!(turns > 1000, "the program got to do {turns} turns");
    let stats = recording.stats();
    assert!(stats.records > 10, "{stats}");
    let ratio = profile.total(1) as f64 / stats.cpu.total.as_nanos() as f64;
    assert!((0.99..1.01).contains(&ratio), "{ratio:.3}\n{stats}");
}

extern "C" fn look(
    _: *mut libc::dl_phdr_info,
    _: libc::size_t,
    _: *mut libc::c_void,
) -> libc::c_int {
    0
}

#[test]
#[ignore = "a child process"]
fn child_that_forks_all_the_time() {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(start(1000));
            }
        });
        let begun = Instant::now();
        let mut forks = 0;
        // Longer on a crowded machine.
        while begun.elapsed() < Duration::from_secs(2).mul_f64(soak()) || forks <= 100 {
            // SAFETY: the child does what a child may that was forked by glibc, and leaves by
            // `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: the callback does nothing.
                unsafe { libc::dl_iterate_phdr(Some(look), std::ptr::null_mut()) };
                if forks % 8 == 0 {
                    drop(start(1000));
                }
                // SAFETY: leaves without the parent's exit handlers.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for the child made above.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "after {forks} forks a child failed");
            forks += 1;
        }
    });
}

#[test]
#[ignore = "a child process"]
fn child_of_many_recorders() {
    let end = Instant::now() + Duration::from_secs(2).mul_f64(soak());
    let recorded = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let Ok(recording) = profiler(1000).start() else {
                        thread::yield_now();
                        continue;
                    };
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            while recording.snapshot().is_ok() {
                                recording.stats();
                            }
                        });
                        burn(Duration::from_millis(2));
                        let other = scope.spawn(|| recording.stop().is_ok());
                        let mine = recording.stop().is_ok();
                        assert!(
                            mine != other.join().unwrap(),
                            "one of two stops has the profile"
                        );
                    });
                    recorded.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(recorded.into_inner() > 10);
}

#[test]
#[ignore = "a child process"]
fn child_with_few_queued_signals() {
    let limit = libc::rlimit {
        rlim_cur: 30,
        rlim_max: 30,
    };
    let end = Instant::now() + Duration::from_secs(2);
    // SAFETY: the limit is read by the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &limit) };
    assert_eq!(set, 0);
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| thread::sleep(end.saturating_duration_since(Instant::now())));
        }
        // Other processes of this user may have used the limit up already: then there is nothing to
        // show.
        let Ok(recording) = Profiler::new().engine(Engine::ThreadTimer).start() else {
            return;
        };
        let stats = recording.stats();
        assert!(stats.threads_armed <= 15, "{stats}");
        assert!(stats.threads_refused >= 26, "{stats}");
        assert!(stats.to_string().contains("RLIMIT_SIGPENDING"), "{stats}");
        drop(recording);
        // Who did not ask for timers on threads gets one that sees them all.
        let recording = start(200);
        let before = work::process_cpu();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| burn(Duration::from_millis(300)));
            }
        });
        let truth = work::process_cpu() - before;
        let profile = recording.stop().unwrap();
        let stats = recording.stats();
        assert_eq!(stats.engine, Engine::ProcessTimer, "{stats}");
        assert_eq!(
            (stats.threads_armed, stats.threads_refused),
            (0, 0),
            "{stats}"
        );
        let ratio = profile.total(1) as f64 / truth.as_nanos() as f64;
        assert!(
            (0.95..1.05).contains(&ratio),
            "{ratio:.3} of {truth:?}\n{stats}"
        );
    });
}

extern "C" fn somebody_elses(_: libc::c_int) {}

#[test]
#[ignore = "a child process"]
fn child_that_takes_the_signal() {
    let recording = start(100);
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGPROF, somebody_elses as *const () as usize) };
    burn(Duration::from_millis(50));
    recording.stop().unwrap();
    assert!(recording.stats().handler_replaced);
    assert!(recording.stats().to_string().contains("replaced"));
    // What is there now is left alone.
    assert!(Profiler::new().start().is_err());
}

#[test]
#[ignore = "a child process"]
fn child_that_records_twice() {
    let first = start(1000);
    burn(Duration::from_millis(200));
    first.stop().unwrap();
    let figures = first.stats();
    let second = start(1000);
    burn(Duration::from_millis(100));
    second.stop().unwrap();
    assert_eq!(first.stats(), figures);
    assert_ne!(second.stats().ticks, figures.ticks);
}
