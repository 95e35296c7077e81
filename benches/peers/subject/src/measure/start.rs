//! How long the start of a recording takes in a program of many threads.

use std::thread;
use std::time::{Duration, Instant};

use super::{Results, median};
use crate::options::Options;
use crate::recorder::{Recorder, Recording};
use crate::{Result, load::Crowd};

pub fn run(options: &Options) -> Result<Results> {
    let _crowd = Crowd::waiting(options.threads);
    // Until they wait.
    thread::sleep(Duration::from_millis(500));
    let mut starts_ms = Vec::new();
    for _ in 0..options.count.max(1) {
        let start = Instant::now();
        let recording = Recording::start(options)?;
        starts_ms.push(start.elapsed().as_secs_f64() * 1e3);
        thread::sleep(Duration::from_millis(20));
        recording.discard()?;
        // What a stop leaves to do belongs to no start.
        thread::sleep(Duration::from_millis(50));
    }
    Ok(vec![
        ("first_ms", starts_ms[0]),
        ("median_ms", median(&mut starts_ms)),
    ])
}
