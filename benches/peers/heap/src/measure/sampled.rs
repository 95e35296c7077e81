//! What a sampled allocation costs over one that is none: with an interval of 1.

use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;

use super::clock;
use super::pairs::Pairs;
use crate::options::Options;
use crate::{Result, Results};

/// Blocks that are allocated and then freed, both in a row.
const BATCH: usize = 1000;

/// Allocates with the profiler and with the allocator beneath alone, under so many calls.
pub fn run(options: &Options) -> Result<Results> {
    let layout = Layout::from_size_align(options.size, 8)?;
    // gperftools' tcmalloc takes no sample of a thread's first 16 MiB.
    drop(black_box(Vec::<u8>::with_capacity(32 << 20)));
    let mut blocks = Vec::with_capacity(BATCH);
    let mut frees = Pairs::default();
    let allocations = Pairs::measure(options.count, |is_profiled| {
        let begin_ns = clock::thread_ns();
        descend(options.depth, &mut || {
            // SAFETY: the layout's size is not 0.
            blocks.extend((0..BATCH).map(|_| unsafe { alloc(layout) }));
        });
        let allocated_ns = clock::thread_ns();
        for block in blocks.drain(..) {
            assert!(!block.is_null(), "there is no memory left");
            // SAFETY: the block was allocated with this layout.
            unsafe { dealloc(block, layout) };
        }
        let freed_ns = clock::thread_ns();
        frees.push(is_profiled, (freed_ns - allocated_ns) as f64 / BATCH as f64);
        Ok((allocated_ns - begin_ns) as f64 / BATCH as f64)
    })?;
    let [sampled, alone] = allocations.medians();
    let [sampled_free, free_alone] = frees.medians();
    Ok(vec![
        ("allocation_ns", sampled),
        ("sampled_ns", sampled - alone),
        ("sampled_free_ns", sampled_free - free_alone),
    ])
}

/// Calls `work` under so many calls.
#[inline(never)]
fn descend(depth: u32, work: &mut dyn FnMut()) {
    match depth {
        0 => work(),
        _ => descend(depth - 1, work),
    }
    // What keeps the call above from being a jump.
    black_box(depth);
}
