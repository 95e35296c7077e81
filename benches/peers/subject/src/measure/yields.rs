//! Samples recorded for the CPU time that there was to sample.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::Results;
use crate::options::Options;
use crate::recorder::{Recorder, Recording};
use crate::{Result, load, proc};

pub fn run(options: &Options) -> Result<Results> {
    let stop = AtomicBool::new(false);
    let parties = options.threads + 1;
    // The threads compute in the recording's window alone: what start and stop cost is no part of
    // it, and a thread that ended inside it would take its clock along.
    let (begin, end, leave) = (
        Barrier::new(parties),
        Barrier::new(parties),
        Barrier::new(parties),
    );
    let work = || {
        begin.wait();
        load::spin(&stop);
        end.wait();
        leave.wait();
    };
    thread::scope(|scope| {
        let spawn_all = || {
            for _ in 0..options.threads {
                scope.spawn(work);
            }
        };
        if !options.born_late {
            spawn_all();
            // Until each of them has reached the barrier, so that its birth is not in the window.
            thread::sleep(Duration::from_millis(50));
        }
        let recording = Recording::start(options);
        let cpu_before_ns = proc::cpu_time_ns();
        if options.born_late {
            spawn_all();
        }
        begin.wait();
        thread::sleep(Duration::from_millis(options.window_ms));
        stop.store(true, Ordering::Relaxed);
        end.wait();
        let cpu_ns = proc::cpu_time_ns() - cpu_before_ns;
        let tally = recording.and_then(Recorder::stop);
        // Before any error is returned: the scope waits for the threads.
        leave.wait();
        let tally = tally?;
        let expected = cpu_ns as f64 / 1e9 * f64::from(options.frequency_hz);
        Ok(vec![
            ("yield", tally.weight as f64 / expected),
            ("yield_in_stacks", tally.in_stacks as f64 / expected),
            ("yield_unweighted", tally.signals as f64 / expected),
            ("cpu_ns", cpu_ns as f64),
            ("weight", tally.weight as f64),
        ])
    })
}
