//! CPU time that recording adds to a program's.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Results, median, pairs, quantile};
use crate::options::Options;
use crate::recorder::{Recorder, Recording};
use crate::{Result, load, proc};

/// Different chains of calls that the work goes through: the code of a program's busiest part.
const CHAINS: u32 = 64;

/// Words that the work reads and writes, of each thread: 32 KiB, more than an L1 cache keeps beside
/// others.
const WORDS: usize = 4096;

/// CPU time of the run that one start and one stop are spread over. Phases are shorter than such a
/// run: many of them are steadier than a few long ones, but each has a start and a stop.
const RUN_CPU_NS: f64 = 3e9;

pub fn run(options: &Options) -> Result<Results> {
    let leave = AtomicBool::new(false);
    let parties = options.threads + 1;
    let (begin, end) = (Barrier::new(parties), Barrier::new(parties));
    let work = || {
        let mut memory = vec![1_u64; WORDS];
        loop {
            begin.wait();
            if leave.load(Ordering::Relaxed) {
                return;
            }
            for number in 0..options.count {
                load::unique_chain(number % CHAINS, &mut || compute(&mut memory));
            }
            end.wait();
        }
    };
    thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(work);
        }
        let paired = pairs::alternate(options, |record| {
            let before_ns = proc::cpu_time_ns();
            let recording = record.then(|| Recording::start(options)).transpose()?;
            let started_ns = proc::cpu_time_ns();
            begin.wait();
            end.wait();
            let worked_ns = proc::cpu_time_ns();
            recording.map_or(Ok(()), Recorder::discard)?;
            let stopped_ns = proc::cpu_time_ns();
            let start_stop_ns = (started_ns - before_ns) + (stopped_ns - worked_ns);
            Ok([(worked_ns - started_ns) as f64, start_stop_ns as f64])
        });
        // Before any error is returned: the scope waits for the threads.
        leave.store(true, Ordering::Relaxed);
        begin.wait();
        let [work, start_stop] = paired?;
        let mut added: Vec<f64> = work
            .iter()
            .map(|pair| (pair.with / pair.without - 1.0) * 100.0)
            .collect();
        let mut start_stop_ns: Vec<f64> = start_stop.iter().map(|pair| pair.with).collect();
        let start_stop_ns = median(&mut start_stop_ns);
        let work_percent = median(&mut added);
        Ok(vec![
            ("percent", work_percent + start_stop_ns / RUN_CPU_NS * 100.0),
            ("work_percent", work_percent),
            ("lower_percent", quantile(&mut added, 0.25)),
            ("upper_percent", quantile(&mut added, 0.75)),
            ("start_stop_ns", start_stop_ns),
            ("phase_ns", work[0].without),
        ])
    })
}

/// Some 20 µs of arithmetic that goes through memory.
fn compute(memory: &mut [u64]) {
    let mut value = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..6_000 {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        let word = &mut memory[value as usize % WORDS];
        *word = word.wrapping_add(value);
    }
    black_box(memory);
}
