//! What a new thread costs while a recording runs.

use super::{head, plain, row, taking_part};
use crate::plan::{COMMON_HZ, Case, Figures};
use crate::subjects::{Measurement, Subject};

pub fn print(subjects: &[&Subject], figures: &Figures) {
    println!("## A new thread\n");
    println!(
        "What recording adds to the birth and the end of a thread that does nothing: CPU time of the process (in brackets \
         the middle half of the pairs), wall time, and the CPU time without recording. The empty handler gets no \
         signals: what it adds is noise.\n"
    );
    let titles: Vec<String> = COMMON_HZ
        .into_iter()
        .flat_map(|hz| ["CPU", "wall", "CPU without"].map(|what| format!("{hz} Hz, {what}")))
        .collect();
    head("", &titles);
    for subject in taking_part(subjects, Measurement::Threads) {
        let cells: Vec<String> = COMMON_HZ
            .into_iter()
            .flat_map(|hz| {
                let case = Case::Threads { hz };
                let cell = |field, show: fn(f64) -> String| {
                    plain(figures, case, subject.name, field, show)
                };
                let quartile = |field| figures.median(case, subject.name, field);
                let cpu = cell("cpu_ns", added);
                let cpu = match (quartile("lower_cpu_ns"), quartile("upper_cpu_ns")) {
                    (Some(lower), Some(upper)) => {
                        format!("{cpu} [{:+.1} to {:+.1}]", lower / 1e3, upper / 1e3)
                    }
                    _ => cpu,
                };
                [
                    cpu,
                    cell("wall_ns", added),
                    cell("without_cpu_ns", |ns| format!("{:.1} µs", ns / 1e3)),
                ]
            })
            .collect();
        row(subject.name, &cells);
    }
    println!();
}

fn added(ns: f64) -> String {
    format!("{:+.1} µs", ns / 1e3)
}
