//! Many distinct stacks: what each costs to record, and what it costs to turn them into a file.

use std::time::{Duration, Instant};

use super::{BURST, Results, pause_between_bursts};
use crate::options::Options;
use crate::recorder::{Recorder, Recording};
use crate::{Result, load, proc};

pub fn run(options: &Options) -> Result<Results> {
    // The chains' code and the stack are the program's, not the profiler's: page them in before
    // counting.
    for number in 0..options.count {
        load::unique_chain(number, &mut || ());
    }
    let before = proc::memory()?;
    proc::reset_peak()?;
    let recording = Recording::start(options)?;
    let started = proc::memory()?;
    let mut spent = Duration::ZERO;
    for number in 0..options.count {
        load::unique_chain(number, &mut || {
            let start = Instant::now();
            load::tick();
            spent += start.elapsed();
        });
        if number % BURST == BURST - 1 {
            pause_between_bursts();
        }
    }
    let start = Instant::now();
    let tally = recording.write(options)?;
    let written = start.elapsed();
    let after = proc::memory()?;
    let file_bytes = std::fs::metadata(&options.path).map_or(0, |file| file.len());
    let over = |kib: i64| (kib - before.rss_kib) as f64;
    Ok(vec![
        (
            "sample_ns",
            spent.as_nanos() as f64 / f64::from(options.count),
        ),
        ("report_ms", written.as_secs_f64() * 1e3),
        ("started_kib", over(started.rss_kib)),
        ("peak_kib", over(after.peak_kib)),
        ("after_kib", over(after.rss_kib)),
        ("file_bytes", file_bytes as f64),
        ("raised", f64::from(options.count)),
        ("recorded", tally.in_stacks as f64),
        ("stacks", tally.distinct_stacks as f64),
    ])
}
