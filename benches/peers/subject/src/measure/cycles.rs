//! What is left of a profiler that is not recording, and what it leaves behind each time it has
//! recorded.

use std::thread;
use std::time::Duration;

use super::Results;
use crate::options::Options;
use crate::recorder::{Recorder, Recording};
use crate::{Result, load, proc};

/// Cycles before memory is first looked at: allocators reach their working size in them.
const WARM_UP: u32 = 20;

pub fn run(options: &Options) -> Result<Results> {
    let threads_before = proc::threads()?;
    let timers_before = proc::timers()?;
    for _ in 0..WARM_UP {
        cycle(options)?;
    }
    let warm = settled()?;
    let files_warm = proc::open_files()?;
    for _ in 0..options.count {
        cycle(options)?;
    }
    let after = settled()?;
    Ok(vec![
        ("threads_before", threads_before as f64 - 1.0),
        ("timers_before", timers_before as f64),
        ("threads_after", proc::threads()? as f64 - 1.0),
        ("timers_after", proc::timers()? as f64),
        (
            "files_grown",
            proc::open_files()? as f64 - files_warm as f64,
        ),
        ("grown_kib", (after.anon_kib - warm.anon_kib) as f64),
        ("warm_kib", warm.rss_kib as f64),
    ])
}

/// Long enough for a scheduler tick at 250 Hz, so that most recordings hold something.
fn cycle(options: &Options) -> Result<()> {
    let recording = Recording::start(options)?;
    load::spin_for(Duration::from_millis(5));
    recording.discard()
}

/// A thread that was joined is still listed for a moment.
fn settled() -> Result<proc::Memory> {
    thread::sleep(Duration::from_millis(50));
    proc::memory()
}
