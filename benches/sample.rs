//! What a sample costs the thread that it interrupts, beside a handler that does nothing: the way
//! into the kernel and back is in both.

use std::mem;
use std::ptr;

use divan::Bencher;

mod support;
use support::{BURST, descend, pause, profiler, raise};

fn main() {
    divan::main();
}

extern "C" fn do_nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

#[divan::bench(sample_size = BURST, sample_count = 100)]
fn empty_handler(bencher: Bencher) {
    // SAFETY: all zeroes are a valid sigaction; it is complete when it is installed, and its
    // handler does nothing.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = do_nothing as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&mut action.sa_mask);
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()), 0);
    }
    raise_in_bursts(bencher, libc::SIGUSR1);
}

/// The stack is deeper than any of these depths, and cut at each, so that all samples have exactly
/// that many frames. It is the same each time: what the profiler remembers of a stack is warm.
#[divan::bench(args = [8, 32, 96], sample_size = BURST, sample_count = 100)]
fn sample(bencher: Bencher, depth: usize) {
    let recording = profiler(1).max_depth(depth).start().unwrap();
    let raised = raise_in_bursts(bencher, libc::SIGPROF);
    recording.stop().unwrap();
    let stats = recording.stats();
    assert_eq!(stats.lost.total(), 0, "{stats}");
    assert!(stats.records >= raised.into(), "{raised} raised: {stats}");
    // But for a tick of the thread's own clock outside of it.
    assert!(stats.truncated.depth + 5 >= stats.records, "{stats}");
}

/// Benchmarks a signal, and counts how often it was raised.
fn raise_in_bursts(bencher: Bencher, signal: libc::c_int) -> u32 {
    let mut bencher = Some(bencher);
    let mut raised = 0;
    descend(100, &mut || {
        // The first ones page code in and warm caches.
        (0..BURST).for_each(|_| raise(signal));
        let wait_before_a_burst = || {
            if raised % BURST == 0 {
                pause();
            }
            raised += 1;
        };
        if let Some(bencher) = bencher.take() {
            bencher
                .with_inputs(wait_before_a_burst)
                .bench_local_values(|()| raise(signal));
        }
    });
    raised + BURST
}
