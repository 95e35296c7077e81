//! One version of sigprof has the program's memory, and records its CPU time first: the other says
//! that it cannot, and harms nothing.

use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: sigprof::heap::Allocator = sigprof::heap::Allocator::system();

const KEPT: i64 = 64 << 20;

fn main() {
    let kept: Vec<Vec<u8>> = (0..KEPT >> 16).map(|_| vec![1; 1 << 16]).collect();
    let profile = sigprof::heap::profile().expect("its allocator is in use");
    // The last of the sample types is `inuse_space`.
    let in_use = profile
        .samples()
        .map(|sample| sample.values[3])
        .sum::<i64>();
    assert!((KEPT * 3 / 4..KEPT * 5 / 4).contains(&in_use), "{in_use}");
    let error = other::heap::profile().expect_err("the other version has no allocator here");
    assert!(error.to_string().contains("sigprof 0.0."), "{error}");

    // Both its CPU time and its memory, beside the other version.
    sigprof::heap::set_sample_interval(64);
    let recording = sigprof::cpu::Profiler::new()
        .start()
        .expect("nobody else records");
    let error = other::cpu::Profiler::new()
        .start()
        .expect_err("the signal is taken");
    assert_eq!(error.kind(), other::ErrorKind::SignalInUse, "{error}");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    let profile = recording.stop().expect("it records");
    assert!(profile.samples().len() > 0);
    println!("{in_use} B in use; the other version: {error}");
    drop(black_box(kept));
}

/// Allocates and frees for a while.
fn work() {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        let words: Vec<String> = (0..1000).map(|i| format!("{i:64}")).collect();
        drop(black_box(words));
    }
}
