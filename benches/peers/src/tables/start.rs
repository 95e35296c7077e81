//! The start in a program of many threads.

use super::{head, ratio, row, taking_part, with_ratio};
use crate::plan::{COMMON_HZ, Case, Figures, IDLE_THREADS, STARTS};
use crate::subjects::{Measurement, Subject};

pub fn print(subjects: &[&Subject], figures: &Figures) {
    println!("## Start with many threads\n");
    println!(
        "Wall time of the start in a program of {IDLE_THREADS} idle threads: the first of the process, and the median of \
         {STARTS}.\n"
    );
    let titles: Vec<String> = COMMON_HZ
        .into_iter()
        .flat_map(|hz| ["first", "median"].map(|which| format!("{hz} Hz, {which}")))
        .collect();
    head("", &titles);
    for subject in taking_part(subjects, Measurement::Start) {
        let cells: Vec<String> = COMMON_HZ
            .into_iter()
            .flat_map(|hz| {
                let case = Case::Start { hz };
                ["first_ms", "median_ms"].map(|field| {
                    let ratio = ratio(figures, case, subject.name, field);
                    let milliseconds = |ms: f64| format!("{ms:.1} ms");
                    with_ratio(figures, case, subject.name, field, milliseconds, ratio)
                })
            })
            .collect();
        row(subject.name, &cells);
    }
    println!();
}
