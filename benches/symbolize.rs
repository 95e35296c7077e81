//! What the names of a profile cost: of this program, which is built with debug information.

use std::time::Duration;

use divan::Bencher;
use sigprof::Profile;
use sigprof::symbolize::symbolize;

mod support;
use support::{DEPTH, profiler, raise_in_distinct_stacks};

fn main() {
    divan::main();
}

/// A thousand stacks through 256 functions, and what symbolizing itself was seen at: much inlined
/// code.
fn of_this_program() -> Profile {
    let recording = profiler(4000).max_depth(DEPTH).start().unwrap();
    raise_in_distinct_stacks(1000);
    symbolize(&mut recording.snapshot().unwrap());
    recording.stop().unwrap()
}

#[divan::bench(max_time = Duration::from_secs(5))]
fn this_program(bencher: Bencher) {
    let profile = of_this_program();
    bencher
        .counter(divan::counter::ItemsCount::new(profile.locations().len()))
        .with_inputs(|| profile.clone())
        .bench_local_refs(symbolize);
}
