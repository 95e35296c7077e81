//! What a recording costs the program that starts it, stops it, and looks at it.

use std::time::Duration;

use divan::Bencher;

mod support;
use support::{DEPTH, profiler, raise_in_distinct_stacks, stacks};

fn main() {
    divan::main();
}

#[divan::bench(max_time = Duration::from_secs(3))]
fn start_and_stop(bencher: Bencher) {
    bencher.bench_local(|| profiler(100).start().unwrap().stop().unwrap());
}

/// Of 20,000 stacks of 30 frames, without names.
#[divan::bench(max_time = Duration::from_secs(5))]
fn snapshot(bencher: Bencher) {
    let recording = profiler(1).max_depth(DEPTH).start().unwrap();
    raise_in_distinct_stacks(stacks());
    let so_far = recording.snapshot().unwrap();
    let stats = recording.stats();
    assert_eq!(stats.lost.total(), 0, "{stats}");
    assert!(so_far.stacks().len() >= stacks() as usize, "{stats}");
    bencher.bench_local(|| recording.snapshot().unwrap());
}
