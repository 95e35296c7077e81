//! What an allocation and its free cost together.

use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

use super::clock;
use super::pairs::{Pairs, order};
use crate::options::Options;
use crate::switched::set_profiled;
use crate::{Result, Results};

/// Allocations whose time is taken together: a few milliseconds. Samples are in it as they fall,
/// some twelve at the default interval.
const BATCH: u32 = 100_000;

pub fn run(options: &Options) -> Result<Results> {
    let layout = Layout::from_size_align(options.size, 8)?;
    let count = options.count;
    // The thread that switches takes part: none is in a batch while it does.
    let barrier = Barrier::new(options.threads + 1);
    let costs = || {
        let mut pairs = Pairs::default();
        for is_profiled in order(count) {
            barrier.wait();
            pairs.push(is_profiled, batch(layout));
            barrier.wait();
        }
        pairs.least()
    };
    let least: Vec<[f64; 2]> = thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(costs)).collect();
        for is_profiled in order(count) {
            set_profiled(is_profiled);
            barrier.wait();
            barrier.wait();
        }
        let threads = threads.into_iter();
        threads
            .map(|thread| thread.join().expect("the thread allocates and frees"))
            .collect()
    });
    let mean =
        |which: usize| least.iter().map(|costs| costs[which]).sum::<f64>() / least.len() as f64;
    let [pair_ns, alone_ns] = [mean(0), mean(1)];
    Ok(vec![
        ("pair_ns", pair_ns),
        ("alone_ns", alone_ns),
        ("added_ns", pair_ns - alone_ns),
    ])
}

/// CPU time of a pair.
fn batch(layout: Layout) -> f64 {
    let begin_ns = clock::thread_ns();
    for _ in 0..BATCH {
        // SAFETY: the layout's size is not 0, and a block that is not null is freed with the layout
        // that it was allocated with.
        unsafe {
            let block = black_box(alloc(layout));
            assert!(!block.is_null(), "there is no memory left");
            dealloc(block, layout);
        }
    }
    (clock::thread_ns() - begin_ns) as f64 / f64::from(BATCH)
}
