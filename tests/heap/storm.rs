//! All that a program does with memory, at once and at aggressive rates: a CPU profile is taken
//! meanwhile, others fork, libraries come and go.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sigprof::{Profile, heap};

use crate::moments::Stop;
use crate::process::soak;

const THREADS: u64 = 8;

/// A block of the storm's.
struct Block {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: memory belongs to whoever has the block.
unsafe impl Send for Block {}

/// Numbers that look random (Marsaglia: "Xorshift RNGs", 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// All blocks are allocated here.
#[inline(never)]
fn storm_allocates(numbers: &mut Numbers) -> Block {
    let size = match numbers.below(1000) {
        0 => 1 << 20,
        _ => 1 + numbers.below(3000) as usize,
    };
    let align = 1 << numbers.below(13);
    let layout = Layout::from_size_align(size, align).unwrap();
    // SAFETY: the size is not 0.
    let start = unsafe {
        match numbers.below(2) {
            0 => alloc(layout),
            _ => alloc_zeroed(layout),
        }
    };
    assert!(!start.is_null());
    Block { start, layout }
}

/// And grow and shrink here.
#[inline(never)]
fn storm_reallocates(block: &mut Block, size: usize) {
    // SAFETY: the block has this layout, and the new size is not 0.
    block.start = unsafe { realloc(block.start, block.layout, size) };
    assert!(!block.start.is_null());
    block.layout = Layout::from_size_align(size, block.layout.align()).unwrap();
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// Objects allocated by the storm's functions, and those that are in use.
fn counted(profile: &Profile) -> [i64; 2] {
    let is_storms = |&id: &sigprof::profile::LocationId| {
        let mut lines = profile.location(id).lines.iter();
        lines.any(|line| {
            let name = profile.string(profile.function(line.function).name);
            name.ends_with("::storm_allocates") || name.ends_with("::storm_reallocates")
        })
    };
    let samples = profile.samples().filter(|s| s.stack.iter().any(is_storms));
    samples.fold([0, 0], |[all, in_use], sample| {
        [all + sample.values[0], in_use + sample.values[2]]
    })
}

#[test]
fn nothing_is_lost_in_a_storm() {
    let turns = (10_000.0 * soak()) as u64;
    // Blocks that anybody frees.
    let common: &Mutex<Vec<Block>> = &Mutex::default();
    let works = |thread: u64| {
        let mut numbers = Numbers(thread + 1);
        let mut own: Vec<Block> = Vec::new();
        let mut allocations = 0_i64;
        for _ in 0..turns {
            match numbers.below(8) {
                0..3 => {
                    own.push(storm_allocates(&mut numbers));
                    allocations += 1;
                }
                3 if !own.is_empty() => {
                    let place = numbers.below(own.len() as u64) as usize;
                    storm_reallocates(&mut own[place], 1 + numbers.below(5000) as usize);
                    allocations += 1;
                }
                4 => common.lock().unwrap().extend(own.pop()),
                5 => drop(common.lock().unwrap().pop()),
                6 if !own.is_empty() => {
                    drop(own.swap_remove(numbers.below(own.len() as u64) as usize));
                }
                _ => drop(own.pop()),
            }
        }
        allocations
    };
    heap::set_sample_interval(1);
    let recording = sigprof::cpu::Profiler::new().frequency_hz(10_000).start();
    let recording = recording.unwrap();
    let is_over = &AtomicBool::new(false);
    let allocations: i64 = std::thread::scope(|scope| {
        let _stop = Stop(is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                forks();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                opens_and_closes();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || works(thread)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    heap::set_sample_interval(0);
    common.lock().unwrap().clear();
    drop(recording.stop().unwrap());
    assert_eq!(counted(&heap::profile().unwrap()), [allocations, 0]);
}

/// Makes a child that allocates and frees what it has.
fn forks() {
    // SAFETY: the child allocates, as the C library lets it, and ends itself.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: it ends this process alone, and within a time.
            unsafe { libc::alarm(120) };
            let mut numbers = Numbers(1);
            drop(
                (0..100)
                    .map(|_| storm_allocates(&mut numbers))
                    .collect::<Vec<_>>(),
            );
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = -1;
            // SAFETY: the place for the status outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
}

/// Some library that is everywhere.
fn opens_and_closes() {
    // SAFETY: libraries of the C library's; what they do at their beginning and end is theirs.
    unsafe {
        let library = libc::dlopen(c"libresolv.so.2".as_ptr(), libc::RTLD_NOW);
        if !library.is_null() {
            libc::dlclose(library);
        }
    }
}
