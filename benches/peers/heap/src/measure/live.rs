//! What many sampled blocks in use cost: memory, the time of a profile, and how long allocations
//! wait for it.

use std::alloc::{Layout, alloc, dealloc};
use std::fs;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use super::median;
use crate::options::Options;
use crate::profiler;
use crate::switched::set_profiled;
use crate::{Result, Results};

/// Call chains that blocks are allocated under, in turn.
const STACKS: usize = 10_000;

/// Profiles that are taken, each beside a thread that allocates.
const PROFILES: u32 = 5;

/// Bytes between two samples while profiles are taken, so that the thread waits where sampled
/// allocations and their frees do: they are the only ones that can.
const INTERVAL_BESIDE: u64 = 1024;

/// Blocks that the thread has in use at a time.
const BLOCKS_BESIDE: usize = 64;

/// Has so many thousands of blocks in use without the profiler, and as many again of which those
/// are sampled that the interval says.
pub fn run(options: &Options) -> Result<Results> {
    let layout = Layout::from_size_align(options.size, 8)?;
    let count = options.count as usize * 1000;
    // What the profiler takes once, and the room for the blocks, are not what samples cost.
    let mut blocks: Vec<*mut u8> = Vec::new();
    blocks.resize(2 * count + 1, std::ptr::null_mut());
    let (one, rest) = blocks.split_at_mut(1);
    let (alone, sampled) = rest.split_at_mut(count);
    allocate(one, layout, options.depth);
    let before = rss_bytes()?;
    set_profiled(false);
    allocate(alone, layout, options.depth);
    let with_alone = rss_bytes()?;
    set_profiled(true);
    allocate(sampled, layout, options.depth);
    let with_sampled = rss_bytes()?;

    profiler::set_sample_interval(INTERVAL_BESIDE)?;
    let mut live = f64::NAN;
    let (mut snapshot_ms, mut pause_ms) = (Vec::new(), Vec::new());
    for _ in 0..PROFILES {
        pause_ms.push(longest_pause_during(layout, || {
            let begin = Instant::now();
            live = profiler::blocks_in_profile()?;
            snapshot_ms.push(begin.elapsed().as_secs_f64() * 1000.0);
            Ok(())
        })?);
    }
    for &block in &blocks {
        // SAFETY: the block was allocated with this layout.
        unsafe { dealloc(block, layout) };
    }
    let samples = count as f64;
    let sampled_bytes = (with_sampled - with_alone) - (with_alone - before);
    Ok(vec![
        ("blocks", samples),
        ("blocks_in_profile", live),
        ("bytes_a_block", sampled_bytes / samples),
        ("added_mib", sampled_bytes / f64::from(1 << 20)),
        ("snapshot_ms", median(snapshot_ms)),
        ("pause_ms", median(pause_ms)),
    ])
}

/// Fills in blocks, each under one of the call chains.
fn allocate(blocks: &mut [*mut u8], layout: Layout, depth: u32) {
    for (number, block) in blocks.iter_mut().enumerate() {
        *block = descend(depth, number % STACKS, layout);
        assert!(!block.is_null(), "there is no memory left");
    }
}

/// Allocates under so many calls; which ones, the bits of `path` say.
#[inline(never)]
fn descend(depth: u32, path: usize, layout: Layout) -> *mut u8 {
    let block = match (depth, path % 2) {
        // SAFETY: the layout's size is not 0.
        (0, _) => unsafe { alloc(layout) },
        (_, 0) => descend(depth - 1, path / 2, layout),
        (_, _) => black_box(descend(depth - 1, path / 2, layout)),
    };
    // What keeps the calls above from being jumps.
    black_box(block)
}

/// The longest time in ms between two allocations of a thread while `work` is done. Times in which
/// the kernel had the thread's CPU do something else do not count: nothing here makes it do that.
fn longest_pause_during(layout: Layout, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let is_over = AtomicBool::new(false);
    let is_allocating = AtomicBool::new(false);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut blocks: [*mut u8; BLOCKS_BESIDE] = [std::ptr::null_mut(); _];
            let mut longest = 0.0_f64;
            let mut last = (Instant::now(), preemptions());
            for number in 0.. {
                if is_over.load(Relaxed) {
                    break;
                }
                let block = &mut blocks[number % BLOCKS_BESIDE];
                if !block.is_null() {
                    // SAFETY: the block was allocated with this layout.
                    unsafe { dealloc(*block, layout) };
                }
                // SAFETY: the layout's size is not 0.
                *block = black_box(unsafe { alloc(layout) });
                is_allocating.store(true, Relaxed);
                let now = (Instant::now(), preemptions());
                if now.1 == last.1 {
                    longest = longest.max((now.0 - last.0).as_secs_f64() * 1000.0);
                }
                last = now;
            }
            for block in blocks.into_iter().filter(|block| !block.is_null()) {
                // SAFETY: as above.
                unsafe { dealloc(block, layout) };
            }
            longest
        });
        while !is_allocating.load(Relaxed) {
            thread::yield_now();
        }
        let worked = work();
        is_over.store(true, Relaxed);
        let longest = thread.join().expect("the thread allocates and frees");
        worked.map(|()| longest)
    })
}

/// How often the calling thread's CPU was taken from it.
fn preemptions() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a struct that outlives the call, and zeros are one.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nivcsw
    }
}

/// Memory of this process that is resident.
fn rss_bytes() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib: f64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"))
        .ok_or("/proc/self/status has no VmRSS")?
        .trim()
        .parse()?;
    Ok(kib * 1024.0)
}
