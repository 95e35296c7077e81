//! What one sample costs the thread that it interrupts, signal delivery included.

use std::time::{Duration, Instant};

use super::{BURST, Results, median, pause_between_bursts, quantile};
use crate::options::Options;
use crate::recorder::{Recorder, Recording};
use crate::{Result, load, maze::Way};

/// Bursts that are left out of the count: the first signals page in code and warm caches.
const WARM_UP: u32 = 1;

/// Of a burst's signals, those that the profiler handled and those that nothing did.
struct Spent {
    sampled: Duration,
    empty: Duration,
}

/// The same stack again and again.
pub fn run(options: &Options) -> Result<Results> {
    let time = |signal: fn()| {
        let start = Instant::now();
        for _ in 0..BURST {
            signal();
        }
        start.elapsed()
    };
    run_in_bursts(options, &mut || {
        let mut spent = None;
        load::descend(options.depth, &mut || {
            spent = Some(Spent {
                sampled: time(load::tick),
                empty: time(load::tick_in_vain),
            });
        });
        spent.expect("the recursion has an end")
    })
}

/// Code that no sample before was in, but so long ago that it is forgotten.
pub fn run_cold(options: &Options) -> Result<Results> {
    let mut way = Way::default();
    let time = |signal: fn()| {
        let start = Instant::now();
        signal();
        start.elapsed()
    };
    run_in_bursts(options, &mut || {
        let mut spent = Spent {
            sampled: Duration::ZERO,
            empty: Duration::ZERO,
        };
        for _ in 0..BURST {
            way.descend(options.depth, &mut || {
                spent.sampled += time(load::tick);
                spent.empty += time(load::tick_in_vain);
            });
        }
        spent
    })
}

/// Each burst is held against as many signals to an empty handler right behind it: on a shared
/// machine slow and fast times take turns, and both fall into the same.
fn run_in_bursts(options: &Options, burst: &mut dyn FnMut() -> Spent) -> Result<Results> {
    load::handle_in_vain()?;
    let recording = Recording::start(options)?;
    let bursts = options.count.div_ceil(BURST).max(1);
    for _ in 0..WARM_UP {
        burst();
        pause_between_bursts();
    }
    let (mut sampled, mut empty, mut over) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bursts {
        let spent = burst();
        pause_between_bursts();
        let of_a_signal = |time: Duration| time.as_nanos() as f64 / f64::from(BURST);
        let (own, without) = (of_a_signal(spent.sampled), of_a_signal(spent.empty));
        sampled.push(own);
        empty.push(without);
        over.push(own - without);
    }
    let tally = recording.stop()?;
    Ok(vec![
        ("median_ns", median(&mut sampled)),
        ("empty_ns", median(&mut empty)),
        ("over_ns", median(&mut over)),
        ("least_over_ns", quantile(&mut over, 0.1)),
        ("raised", f64::from((bursts + WARM_UP) * BURST)),
        ("recorded", tally.in_stacks as f64),
        ("deepest", tally.deepest as f64),
    ])
}
