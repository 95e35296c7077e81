//! Memory that a recording takes from the program, and whether it gives it back.

use std::thread;
use std::time::{Duration, Instant};

use super::Results;
use crate::options::Options;
use crate::recorder::{Recorder, Recording};
use crate::{Result, load::Crowd, proc};

pub fn run(options: &Options) -> Result<Results> {
    let _crowd = Crowd::new(options.threads, options.busy);
    // Threads fault in their stacks and the allocator its arenas before the program counts as idle.
    thread::sleep(Duration::from_millis(200));
    let before = proc::memory()?;
    let recording = Recording::start(options)?;
    let mut most = proc::memory()?;
    let window = Duration::from_millis(options.window_ms);
    let start = Instant::now();
    while start.elapsed() < window {
        thread::sleep(Duration::from_millis(20));
        let now = proc::memory()?;
        most.rss_kib = most.rss_kib.max(now.rss_kib);
        most.anon_kib = most.anon_kib.max(now.anon_kib);
    }
    recording.discard()?;
    thread::sleep(Duration::from_millis(100));
    let after = proc::memory()?;
    Ok(vec![
        ("before_kib", before.rss_kib as f64),
        ("recording_kib", (most.rss_kib - before.rss_kib) as f64),
        (
            "recording_anon_kib",
            (most.anon_kib - before.anon_kib) as f64,
        ),
        ("stopped_kib", (after.rss_kib - before.rss_kib) as f64),
        (
            "stopped_anon_kib",
            (after.anon_kib - before.anon_kib) as f64,
        ),
    ])
}
