//! Labels of the program's own are on the samples that were taken under them, and on no others.
#![cfg(feature = "symbolize")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use sigprof::cpu::{Engine, Profiler};
use sigprof::profile::Sample;
use sigprof::{Labels, Profile, label};

use crate::common::{MS, argument, figure, run_child, soak, text_label};
use crate::support::{go_pprof, tool};
use crate::work::{
    burn_five, burn_on_first, burn_on_second, burn_ten, burn_twenty_five, thread_cpu,
};

fn start(frequency_hz: u32) -> sigprof::cpu::Recording {
    let profiler = Profiler::new().frequency_hz(frequency_hz);
    profiler.start().expect("nothing else records")
}

/// Whether a function is on the stack of a sample.
fn has_function(profile: &Profile, sample: &Sample<'_>, name: &str) -> bool {
    sample.stack.iter().any(|&location| {
        profile.location(location).lines.iter().any(|line| {
            let function = profile.string(profile.function(line.function).name);
            function.split("::").any(|part| part == name)
        })
    })
}

#[test]
fn alternating_labels_are_on_the_right_samples() {
    run_child("labels::child_of_alternating_labels", &[]);
}

/// A length between 0.3 and 3 ms, in no order.
fn odd_length(state: &mut u64) -> Duration {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    Duration::from_micros(300 + (*state >> 33) % 2700)
}

#[test]
#[ignore = "a child process"]
fn child_of_alternating_labels() {
    let recording = start(10_000);
    let engine = recording.stats().engine;
    let work = move |seed: u64| {
        let mut state = seed;
        let end = thread_cpu() + Duration::from_secs(2).mul_f64(soak());
        while thread_cpu() < end {
            {
                let _on = label("on", "first");
                burn_on_first(odd_length(&mut state));
            }
            {
                let _on = label("on", "second");
                burn_on_second(odd_length(&mut state));
            }
            // Without a label.
            burn_ten(odd_length(&mut state) / 2);
        }
    };
    let threads = [1, 2].map(|seed| thread::spawn(move || work(seed)));
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let profile = recording.stop().unwrap();
    let mut counts: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for sample in profile.samples() {
        let functions = ["burn_on_first", "burn_on_second", "burn_ten"];
        let Some(function) = functions
            .into_iter()
            .find(|f| has_function(&profile, &sample, f))
        else {
            continue;
        };
        let on = text_label(&profile, &sample, "on").unwrap_or("none");
        *counts.entry((function, on)).or_default() += sample.values[0];
    }
    let right = [
        ("burn_on_first", "first"),
        ("burn_on_second", "second"),
        ("burn_ten", "none"),
    ];
    let all: i64 = counts.values().sum();
    let wrong: i64 = counts
        .iter()
        .filter(|(key, _)| !right.contains(key))
        .map(|(_, n)| n)
        .sum();
    figure!("labels: {wrong} of {all} wrong, {engine:?}: {counts:?}");
    for key in right {
        assert!(
            counts.get(&key).is_some_and(|n| *n > all / 10),
            "{counts:?}"
        );
    }
    assert!((wrong as f64) < 0.001 * all as f64, "{counts:?}");
    let least = if engine == Engine::PerfEvent {
        30_000
    } else {
        1000
    };
    assert!(all > least, "{all}");
}

#[test]
fn labels_follow_work_to_threads_and_through_futures() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("labels.pb.gz");
    run_child(
        "labels::child_whose_labels_travel",
        &[("FILE", file.to_str().unwrap())],
    );
    let Some(go) = tool("go") else { return };
    // What Go's reader makes of the file: 40 % are payments, of which half are in the future.
    let options = [
        "-top",
        "-nodecount=1000",
        "-nodefraction=0",
        "-tagfocus=route=/pay",
    ];
    let table = go_pprof(&go, &options, &file).stdout;
    for function in ["burn_on_first", "burn_on_second", "burn_twenty_five"] {
        assert!(table.contains(function), "{function} is not in:\n{table}");
    }
    for function in ["burn_ten", "burn_five"] {
        assert!(!table.contains(function), "{function} is in:\n{table}");
    }
    let tags = go_pprof(&go, &["-tags"], &file).stdout;
    for value in ["/pay", "/cart", "card"] {
        assert!(tags.contains(value), "{value} is not in:\n{tags}");
    }
    let ignored = go_pprof(
        &go,
        &["-top", "-nodefraction=0", "-tagignore=route=/pay"],
        &file,
    )
    .stdout;
    assert!(
        ignored.contains("burn_ten") && !ignored.contains("burn_on_first"),
        "{ignored}"
    );
}

#[test]
#[ignore = "a child process"]
fn child_whose_labels_travel() {
    let file = PathBuf::from(argument("FILE").expect("the parent names a file"));
    let recording = start(1000);
    let time = 200 * MS;
    {
        let _route = label("route", "/pay");
        // On this thread, on another, and in a future that two threads poll in turn.
        burn_on_first(time);
        let labels = Labels::capture().with("step", "card");
        let in_thread = labels.clone();
        let worker = thread::spawn(move || {
            {
                let _labels = in_thread.enter();
                burn_on_second(time);
            }
            burn_ten(time);
        });
        worker.join().unwrap();
        let mut polls = 0;
        let future = labels.wrap(std::future::poll_fn(move |_| {
            polls += 1;
            burn_twenty_five(time / 4);
            if polls < 4 {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        }));
        let (give, given) = mpsc::channel();
        give.send(Box::pin(future)).unwrap();
        let given = std::sync::Mutex::new(given);
        let poll_twice = || {
            let _cart = label("route", "/cart");
            let mut future = given.lock().unwrap().recv().unwrap();
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..2 {
                burn_five(time / 4);
                let _ = future.as_mut().poll(&mut context);
            }
            future
        };
        let half_way = thread::scope(|scope| scope.spawn(poll_twice).join().unwrap());
        give.send(half_way).unwrap();
        thread::scope(|scope| drop(scope.spawn(poll_twice).join().unwrap()));
    }
    burn_ten(time);
    let profile = recording.stop().unwrap();
    profile.save(&file).unwrap();
    let mut of_function: BTreeMap<(&str, String), i64> = BTreeMap::new();
    for sample in profile.samples() {
        let functions = [
            "burn_on_first",
            "burn_on_second",
            "burn_twenty_five",
            "burn_ten",
            "burn_five",
        ];
        if let Some(function) = functions
            .into_iter()
            .find(|f| has_function(&profile, &sample, f))
        {
            let of = |key| text_label(&profile, &sample, key).unwrap_or("").to_owned();
            let labels = format!("{} {}", of("route"), of("step"));
            *of_function.entry((function, labels)).or_default() += sample.values[0];
        }
    }
    figure!("labels that travel: {of_function:?}");
    let expected = [
        ("burn_on_first", "/pay "),
        ("burn_on_second", "/pay card"),
        ("burn_twenty_five", "/pay card"),
        ("burn_ten", " "),
        ("burn_five", "/cart "),
    ];
    for ((function, labels), n) in &of_function {
        assert!(
            expected.contains(&(function, labels)),
            "{n} × {function} under {labels:?}"
        );
    }
    assert_eq!(of_function.len(), expected.len(), "{of_function:?}");
}

#[test]
fn labels_of_threads_that_come_and_go_stay_with_their_samples() {
    run_child("labels::child_of_labelled_threads", &[]);
}

/// A thread's labels end with it, also where its id, and its slot, is another's at once.
#[test]
#[ignore = "a child process"]
fn child_of_labelled_threads() {
    let recording = start(10_000);
    let mut bodies = Vec::new();
    for round in 0..100 {
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let is_labelled = (round + i) % 2 == 0;
                thread::spawn(move || {
                    if is_labelled {
                        let labels = Labels::new().with("kind", "labelled");
                        let guard = labels.enter();
                        burn_on_first(2 * MS);
                        // Left on: the thread ends with it.
                        std::mem::forget(guard);
                    } else {
                        burn_on_second(2 * MS);
                    }
                })
            })
            .collect();
        bodies.extend(threads.into_iter().map(|thread| thread.join().is_ok()));
    }
    let profile = recording.stop().unwrap();
    let (mut right, mut wrong) = (0, 0);
    for sample in profile.samples() {
        let is_labelled = text_label(&profile, &sample, "kind").is_some();
        for (function, expected) in [("burn_on_first", true), ("burn_on_second", false)] {
            if has_function(&profile, &sample, function) {
                let count = if is_labelled == expected {
                    &mut right
                } else {
                    &mut wrong
                };
                *count += sample.values[0];
            }
        }
    }
    figure!("labels of short threads: {wrong} wrong, {right} right");
    assert!(wrong * 1000 < right, "{wrong} wrong, {right} right");
}
