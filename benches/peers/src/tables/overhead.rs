//! CPU time that recording adds.

use super::{head, plain, row, taking_part};
use crate::plan::{COMMON_HZ, Case, Figures};
use crate::subjects::{Measurement, Subject};

pub fn print(subjects: &[&Subject], figures: &Figures) {
    println!("## CPU time of a recorded program\n");
    println!(
        "What recording adds to the CPU time of 8 busy threads, the profiler's own threads included: to the work (in \
         brackets the middle half of the pairs), by a start and a stop, and by all of it to a run of 3 s of CPU. The \
         empty handler gets no signals: what it adds is noise.\n"
    );
    let titles: Vec<String> = COMMON_HZ
        .into_iter()
        .flat_map(|hz| {
            ["work", "start and stop", "together"].map(|what| format!("{hz} Hz, {what}"))
        })
        .collect();
    head("", &titles);
    for subject in taking_part(subjects, Measurement::Overhead) {
        let cells: Vec<String> = COMMON_HZ
            .into_iter()
            .flat_map(|hz| {
                let case = Case::Overhead { hz };
                let cell = |field, show: fn(f64) -> String| {
                    plain(figures, case, subject.name, field, show)
                };
                let quartile = |field| figures.median(case, subject.name, field);
                let work = cell("work_percent", percent);
                let work = match (quartile("lower_percent"), quartile("upper_percent")) {
                    (Some(lower), Some(upper)) => format!("{work} [{lower:+.2} to {upper:+.2}]"),
                    _ => work,
                };
                [
                    work,
                    cell("start_stop_ns", |ns| format!("{:.2} ms", ns / 1e6)),
                    cell("percent", percent),
                ]
            })
            .collect();
        row(subject.name, &cells);
    }
    println!();
}

fn percent(percent: f64) -> String {
    format!("{percent:+.2} %")
}
