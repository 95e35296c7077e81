//! The measurements. Each runs once in a fresh process.

pub mod cost;
pub mod cycles;
pub mod overhead;
mod pairs;
pub mod report;
pub mod rss;
pub mod shares;
pub mod start;
pub mod threads;
pub mod yields;

use std::thread;
use std::time::Duration;

/// Named figures, units in the names.
pub type Results = Vec<(&'static str, f64)>;

/// The frequency at which the profiler's own timer is out of the way of a measurement that raises
/// its signals itself. Not 1 Hz: gperftools divides a second by it into microseconds, and the
/// kernel refuses a million of them.
pub const QUIET_HZ: u32 = 2;

/// Signals raised in one go. A profiler that records through a buffer of fixed size is not asked to
/// hold more.
pub const BURST: u32 = 200;

/// Lets a profiler that drains its buffer in a thread do so.
pub fn pause_between_bursts() {
    thread::sleep(Duration::from_millis(2));
}

fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value that `part` of the values are below, between two of them where it falls there.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let position = part * (values.len() - 1) as f64;
    let below = values[position.floor() as usize];
    let above = values[position.ceil() as usize];
    below + (above - below) * position.fract()
}
