//! The handler allocates nothing, and nothing that a thread runs of sigprof's when it begins and
//! ends: a counting allocator, in a test binary of its own.

#[path = "support/soak.rs"]
mod soak;
#[path = "support/work.rs"]
mod work;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Counts what the calling thread allocates and frees.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// While true, whoever allocates waits, as for somebody who holds the allocator's lock.
static IS_LOCKED: AtomicBool = AtomicBool::new(false);

fn count() {
    // A thread that is about to be gone counts no more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
    while IS_LOCKED.load(Ordering::Relaxed) {
        // SAFETY: sleeps; allocates nothing.
        unsafe { libc::usleep(50) };
    }
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

static TURN: Mutex<()> = Mutex::new(());

#[test]
fn the_handler_allocates_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    const THREADS: u32 = 4;
    let cpu_of_a_thread = Duration::from_secs(1).mul_f64(soak::soak());
    let recording = sigprof::cpu::Profiler::new()
        .frequency_hz(1000)
        .start()
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let before = CALLS.with(Cell::get);
                work::burn(cpu_of_a_thread);
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

extern "C" fn start(_: *mut libc::c_void) -> *mut libc::c_void {
    std::ptr::null_mut()
}

/// An allocator may start a thread while it holds its own lock, and wait until it has run. The
/// profiler's thread allocates all the while, and must not hold then what the new thread waits for.
#[test]
fn a_thread_begins_and_ends_while_nobody_can_allocate() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for frequency_hz in [100, 10_000] {
        let recording = sigprof::cpu::Profiler::new()
            .frequency_hz(frequency_hz)
            .start()
            .unwrap();
        for round in 0..300 {
            // At another point of the profiler's turn each time.
            thread::sleep(Duration::from_micros(round * 37 % 1000));
            IS_LOCKED.store(true, Ordering::Relaxed);
            // SAFETY: a thread that does nothing; it is joined before the lock is given back.
            unsafe {
                let mut id: libc::pthread_t = std::mem::zeroed();
                let nothing = std::ptr::null_mut();
                let made = libc::pthread_create(&mut id, std::ptr::null(), start, nothing);
                let joined = libc::pthread_join(id, std::ptr::null_mut());
                IS_LOCKED.store(false, Ordering::Relaxed);
                assert_eq!((made, joined), (0, 0));
            }
        }
        drop(recording);
    }
}
