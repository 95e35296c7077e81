//! The handler allocates nothing: a counting allocator, in a test binary of its own.

#[path = "support/work.rs"]
mod work;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::thread;
use std::time::Duration;

/// Counts what the calling thread allocates and frees.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    CALLS.with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_handler_allocates_nothing() {
    const THREADS: u32 = 4;
    const CPU_A_THREAD: Duration = Duration::from_secs(2);
    let recording = sigprof::cpu::Profiler::new()
        .frequency_hz(1000)
        .start()
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let before = CALLS.with(Cell::get);
                work::burn(CPU_A_THREAD);
                // What the thread raises itself is a tick as well.
                for _ in 0..100 {
                    // SAFETY: a signal to the calling thread.
                    unsafe { libc::raise(libc::SIGPROF) };
                }
                assert_eq!(
                    CALLS.with(Cell::get),
                    before,
                    "the handler ran on this thread"
                );
            });
        }
    });
    let stats = recording.stats();
    assert!(stats.records > u64::from(THREADS) * 300, "{stats}");
}
