//! What a new thread costs more while a recording runs.

use std::thread;
use std::time::Instant;

use super::{Results, pairs, quantile};
use crate::options::Options;
use crate::recorder::{Recorder, Recording};
use crate::{Result, proc};

pub fn run(options: &Options) -> Result<Results> {
    let paired = pairs::alternate(options, |record| {
        let recording = record.then(|| Recording::start(options)).transpose()?;
        let (start, cpu_before_ns) = (Instant::now(), proc::cpu_time_ns());
        for _ in 0..options.count {
            // A thread that does nothing does not panic.
            let _ = thread::spawn(|| ()).join();
        }
        let cpu_ns = proc::cpu_time_ns() - cpu_before_ns;
        let wall_ns = start.elapsed().as_nanos();
        recording.map_or(Ok(()), Recorder::discard)?;
        let count = f64::from(options.count);
        Ok([cpu_ns as f64 / count, wall_ns as f64 / count])
    })?;
    let mut without: Vec<f64> = paired[0].iter().map(|pair| pair.without).collect();
    let [mut cpu, mut wall] = paired
        .map(|pairs| -> Vec<f64> { pairs.iter().map(|pair| pair.with - pair.without).collect() });
    Ok(vec![
        ("cpu_ns", quantile(&mut cpu, 0.5)),
        ("lower_cpu_ns", quantile(&mut cpu, 0.25)),
        ("upper_cpu_ns", quantile(&mut cpu, 0.75)),
        ("wall_ns", quantile(&mut wall, 0.5)),
        ("without_cpu_ns", quantile(&mut without, 0.5)),
    ])
}
