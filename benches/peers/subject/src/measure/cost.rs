//! What one sample costs the thread that it interrupts, signal delivery included.

use std::time::{Duration, Instant};

use super::{BURST, Results, median, pause_between_bursts};
use crate::options::Options;
use crate::recorder::{Recorder, Recording};
use crate::{Result, load, maze::Way};

const REPETITIONS: usize = 5;

/// The same stack again and again.
pub fn run(options: &Options) -> Result<Results> {
    let mut chains = || {
        let mut spent = Duration::ZERO;
        load::descend(options.depth, &mut || {
            let start = Instant::now();
            for _ in 0..BURST {
                load::tick();
            }
            spent = start.elapsed();
        });
        spent
    };
    run_in_bursts(options, &mut chains)
}

/// Code that no sample before was in, but so long ago that it is forgotten.
pub fn run_cold(options: &Options) -> Result<Results> {
    let mut way = Way::default();
    let mut chains = || {
        let mut spent = Duration::ZERO;
        for _ in 0..BURST {
            way.descend(options.depth, &mut || {
                let start = Instant::now();
                load::tick();
                spent += start.elapsed();
            });
        }
        spent
    };
    run_in_bursts(options, &mut chains)
}

fn run_in_bursts(options: &Options, burst: &mut dyn FnMut() -> Duration) -> Result<Results> {
    let recording = Recording::start(options)?;
    let bursts = options.count.div_ceil(BURST).max(1);
    // Not counted: the first signals page in code and warm caches.
    burst();
    pause_between_bursts();
    let mut per_sample_ns = Vec::with_capacity(REPETITIONS);
    for _ in 0..REPETITIONS {
        let mut spent = Duration::ZERO;
        for _ in 0..bursts {
            spent += burst();
            pause_between_bursts();
        }
        per_sample_ns.push(spent.as_nanos() as f64 / f64::from(bursts * BURST));
    }
    let tally = recording.stop()?;
    let raised = (REPETITIONS as u32 * bursts + 1) * BURST;
    let best_ns = per_sample_ns.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(vec![
        ("best_ns", best_ns),
        ("median_ns", median(&mut per_sample_ns)),
        ("raised", f64::from(raised)),
        ("recorded", tally.in_stacks as f64),
        ("deepest", tally.deepest as f64),
    ])
}
