//! What an allocation and its free cost together.

use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

use super::clock;
use crate::options::Options;
use crate::{Result, Results};

/// Pairs whose time is taken together: some ten milliseconds.
const BATCH: u32 = 500_000;

pub fn run(options: &Options) -> Result<Results> {
    let layout = Layout::from_size_align(options.size, 8)?;
    let begin = Barrier::new(options.threads);
    let least: Vec<f64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|_| {
                scope.spawn(|| {
                    begin.wait();
                    (0..options.count)
                        .map(|_| batch(layout))
                        .fold(f64::INFINITY, f64::min)
                })
            })
            .collect();
        let threads = threads.into_iter();
        threads
            .map(|thread| thread.join().expect("the thread allocates and frees"))
            .collect()
    });
    // What others make a thread wait for only adds to its time.
    let mean = least.iter().sum::<f64>() / least.len() as f64;
    Ok(vec![("pair_ns", mean)])
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
