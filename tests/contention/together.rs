//! Profiles of CPU time, of memory and of locks at once, at aggressive rates.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use sigprof::cpu::Profiler;
use sigprof::profile::Sample;
use sigprof::symbolize::symbolize;
use sigprof::{contention, heap};

use crate::below::{is_below, sums, sums_below};
use crate::locks::{ROUNDS, contend, stays_on_the_stack};

/// Names that a thread makes while it holds a lock.
const NAMES: usize = 10;

#[inline(never)]
fn makes_names() -> Vec<String> {
    let names = (0..NAMES).map(|nth| nth.to_string()).collect();
    stays_on_the_stack();
    names
}

/// Makes names, and frees those of other threads.
#[inline(never)]
fn swaps_names(shared: &Mutex<Vec<String>>) {
    let mut shared = shared.lock().unwrap();
    *shared = makes_names();
    stays_on_the_stack();
}

#[test]
fn nothing_is_lost_uncounted() {
    heap::set_sample_interval(1);
    contention::set_sample_interval(Duration::from_nanos(1));
    let profiler = Profiler::new().frequency_hz(10_000).symbolize(false);
    let recording = profiler.start().unwrap();
    let watch = contention::watch_process().unwrap();

    // Each pair of threads waits so many times.
    thread::scope(|scope| {
        scope.spawn(|| contend(&Mutex::new(()), ROUNDS));
        scope.spawn(|| contend(&std::sync::RwLock::new(()), ROUNDS));
        scope.spawn(|| contend(&parking_lot::Mutex::new(()), ROUNDS));
        scope.spawn(|| contend(&contention::Mutex::new(()), ROUNDS));
    });
    let all = 4 * ROUNDS as i64;
    for (profile, function) in [
        (contention::profile(), "waits_for_lock"),
        (contention::holders(), "holds_lock"),
    ] {
        let profile = profile.unwrap();
        // What they allocate meanwhile takes locks of the heap profile's own.
        let of_heap = sums(profile.samples().filter(|sample| {
            is_below(&profile, sample, function) && is_below(&profile, sample, "sigprof::heap")
        }));
        let [seen, lost] = [function, "[lost]"].map(|name| sums_below(&profile, name)[0]);
        let seen = seen - of_heap[0];
        assert!(
            (all - lost..=all).contains(&seen),
            "{seen} of {all} waits below {function}, beside {} of the heap profile's; {lost} lost: {}",
            of_heap[0],
            profile.top(20)
        );
    }

    // As fast as they can.
    let (shared, times) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let enough = recording.stats().records + 500;
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while recording.stats().records < enough {
                    for _ in 0..20 {
                        swaps_names(&shared);
                    }
                    times.fetch_add(20, Ordering::Relaxed);
                }
            });
        }
    });
    drop(shared);
    drop(watch);
    let mut cpu = recording.stop().unwrap();
    symbolize(&mut cpu);
    assert!(sums_below(&cpu, "swaps_names")[0] > 0, "{}", cpu.top(20));
    for profile in [contention::profile(), contention::holders()] {
        let profile = profile.unwrap();
        let [seen, _] = sums_below(&profile, "swaps_names");
        assert!(seen > 0, "{}", profile.top(20));
    }
    let heap = heap::profile().unwrap();
    let all = times.into_inner() * (1 + NAMES);
    let is_names = |sample: &Sample<'_>| is_below(&heap, sample, "makes_names");
    let of_names = heap.samples().filter(is_names);
    let [allocated, in_use] = of_names.fold([0, 0], |[allocated, in_use], sample| {
        [allocated + sample.values[0], in_use + sample.values[2]]
    });
    assert_eq!([allocated, in_use], [all as i64, 0], "{}", heap.top(20));
}
