//! The start, in a program of one thread and of many.

use super::{head, ratio, row, taking_part, with_ratio};
use crate::plan::{COMMON_HZ, Case, Figures, IDLE_THREADS, STARTS};
use crate::subjects::{Measurement, Subject};

pub fn print(subjects: &[&Subject], figures: &Figures) {
    println!("## Start\n");
    println!(
        "Wall time of the start in a program of so many idle threads: the first of the process, and the median of \
         {STARTS}.\n"
    );
    let cases: Vec<(u32, u32, &str)> = IDLE_THREADS
        .into_iter()
        .flat_map(|threads| COMMON_HZ.map(|hz| (threads, hz)))
        .flat_map(|(threads, hz)| FIELDS.map(|(field, _)| (threads, hz, field)))
        .collect();
    let titles: Vec<String> = IDLE_THREADS
        .into_iter()
        .flat_map(|threads| COMMON_HZ.map(|hz| (threads, hz)))
        .flat_map(|(threads, hz)| FIELDS.map(|(_, which)| format!("{threads} at {hz} Hz, {which}")))
        .collect();
    head("", &titles);
    for subject in taking_part(subjects, Measurement::Start) {
        let cells: Vec<String> = cases
            .iter()
            .map(|&(threads, hz, field)| {
                let case = Case::Start { threads, hz };
                let ratio = ratio(figures, case, subject.name, field);
                let milliseconds = |ms: f64| format!("{ms:.1} ms");
                with_ratio(figures, case, subject.name, field, milliseconds, ratio)
            })
            .collect();
        row(subject.name, &cells);
    }
    println!();
}

const FIELDS: [(&str, &str); 2] = [("first_ms", "first"), ("median_ms", "median")];
