//! How far the shares that a profile gives to threads and functions are from those that they had.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use super::Results;
use crate::Result;
use crate::known::{self, PARTS};
use crate::options::Options;
use crate::recorder::{By, Counts, Recorder, Recording};

/// Threads with uneven work: one part for the first, two for the second, and so on.
pub fn of_threads(options: &Options) -> Result<Results> {
    let parts: usize = (1..=options.threads).sum();
    let one_part = Duration::from_millis(options.window_ms) / parts as u32;
    let names: Vec<String> = (1..=options.threads)
        .map(|number| format!("uneven-{number}"))
        .collect();
    let parties = options.threads + 1;
    // They are born before and end after the recording, and compute within it alone.
    let (begin, end, leave) = (
        Barrier::new(parties),
        Barrier::new(parties),
        Barrier::new(parties),
    );
    let work = |number: u32| {
        begin.wait();
        let spent = known::burn(one_part * number);
        end.wait();
        leave.wait();
        spent
    };
    thread::scope(|scope| {
        let threads = (1..).zip(&names).map(|(number, name)| {
            thread::Builder::new()
                .name(name.clone())
                .spawn_scoped(scope, move || work(number))
                .expect("the system gives a measurement the threads it asks for")
        });
        let threads: Vec<_> = threads.collect();
        // A thread names itself when it first runs.
        thread::sleep(Duration::from_millis(50));
        let recording = Recording::start(options);
        begin.wait();
        end.wait();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let counts = recording.and_then(|recording| recording.count(options, By::Thread, &names));
        // Before any error is returned: the scope waits for the threads.
        leave.wait();
        let spent: Vec<Duration> = threads
            .into_iter()
            .map(|thread| thread.join().expect("work that only computes"))
            .collect();
        Ok(results(&counts?, &spent))
    })
}

/// One thread, in functions that are given 60, 25, 10 and 5 of a hundred.
pub fn of_functions(options: &Options) -> Result<Results> {
    let recording = Recording::start(options)?;
    let spent = known::burn_in_parts(Duration::from_millis(options.window_ms));
    let counts = recording.count(options, By::Function, &PARTS.map(|part| part.name))?;
    Ok(results(&counts, &spent))
}

fn results(counts: &Counts, spent: &[Duration]) -> Results {
    let all: Duration = spent.iter().sum();
    let worst = counts
        .of_name
        .iter()
        .zip(spent)
        .map(|(&samples, spent)| {
            let seen = samples as f64 / counts.all.max(1) as f64;
            (seen - spent.as_secs_f64() / all.as_secs_f64()).abs()
        })
        .fold(0.0, f64::max);
    let unnamed = counts.all - counts.of_name.iter().sum::<u64>();
    vec![
        ("worst_points", worst * 100.0),
        ("samples", counts.all as f64),
        ("unnamed", unnamed as f64),
        ("cpu_ns", all.as_nanos() as f64),
    ]
}
