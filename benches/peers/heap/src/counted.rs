//! The truth: all that the program allocates and frees, counted. What the profiler allocates for
//! itself meanwhile is not the program's.
#![cfg(feature = "counted")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static ALLOCATED: Count = Count::new();
static FREED: Count = Count::new();

thread_local! {
    /// Calls of the allocator that the thread is in.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Does what the allocator beneath does. What that has allocated and freed is its own.
fn within<T>(call: impl FnOnce() -> T) -> T {
    CALLS.set(CALLS.get() + 1);
    let result = call();
    CALLS.set(CALLS.get() - 1);
    result
}

struct Count {
    objects: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    const fn new() -> Self {
        Self {
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Of a call that is not made within another one.
    fn add(&self, bytes: usize) {
        if CALLS.get() > 0 {
            return;
        }
        self.objects.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn get(&self) -> [f64; 2] {
        [&self.objects, &self.bytes].map(|count| count.load(Relaxed) as f64)
    }
}

/// Objects and bytes allocated since the program began, and those of them that are in use: what
/// the four sample types of a heap profile are estimates of.
pub fn truth() -> [f64; 4] {
    let [objects, bytes] = ALLOCATED.get();
    let [freed_objects, freed_bytes] = FREED.get();
    [objects, bytes, objects - freed_objects, bytes - freed_bytes]
}

/// Counts what a profiler's allocator gives out.
pub struct Counted<A>(A);

impl<A> Counted<A> {
    pub const fn new(allocator: A) -> Self {
        Self(allocator)
    }
}

// SAFETY: blocks are `A`'s, with the layouts that the caller has.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.add(layout.size());
        // SAFETY: the caller's contract.
        within(|| unsafe { self.0.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.add(layout.size());
        // SAFETY: the caller's contract.
        within(|| unsafe { self.0.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        FREED.add(layout.size());
        // SAFETY: the caller's contract.
        within(|| unsafe { self.0.dealloc(block, layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        FREED.add(layout.size());
        ALLOCATED.add(new_size);
        // SAFETY: the caller's contract.
        within(|| unsafe { self.0.realloc(block, layout, new_size) })
    }
}
