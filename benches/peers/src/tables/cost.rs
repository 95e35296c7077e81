//! What a sample costs the thread that it interrupts.

use super::{SIGPROF, head, row, taking_part, with_ratio};
use crate::plan::{COLD_DEPTHS, Case, DEPTHS, Figures};
use crate::subjects::{EMPTY_HANDLER, Measurement, Subject};

pub fn print(subjects: &[&Subject], figures: &Figures) {
    println!("## A sample's cost\n");
    println!(
        "`raise(SIGPROF)` in a loop under a recursion, and, for new code, under 4096 functions in turn, of which each comes again when \
         all others have been. Signal delivery included. In parentheses: what it costs over the empty handler, times what \
         sigprof costs over it. A frame: what 64 more of them cost, by 64.\n"
    );
    let known = DEPTHS.map(|depth| (Case::Cost { depth }, depth, ""));
    let new = COLD_DEPTHS.map(|depth| (Case::ColdCost { depth }, depth, ", new"));
    let cases: Vec<(Case, u32, &str)> = known.into_iter().chain(new).collect();
    for (field, title) in [("best_ns", "best of 5"), ("median_ns", "median of 5")] {
        let mut titles: Vec<String> = cases
            .iter()
            .map(|(_, depth, which)| format!("depth {depth}{which}"))
            .collect();
        titles.extend(["a frame".to_owned(), "a frame, new".to_owned()]);
        head(title, &titles);
        for subject in taking_part(subjects, Measurement::Cost) {
            let mut cells: Vec<String> = cases
                .iter()
                .map(|&(case, depth, _)| of_a_sample(figures, subject, case, depth, field))
                .collect();
            let known = of_a_frame_by(figures, subject.name, field, |depth| Case::Cost { depth });
            let new = of_a_frame_by(figures, subject.name, field, |depth| Case::ColdCost {
                depth,
            });
            cells.extend([known, new].map(|frame| match frame {
                Some(ns) if subject.name != EMPTY_HANDLER => format!("{ns:.1} ns"),
                _ => String::new(),
            }));
            row(subject.name, &cells);
        }
        println!();
    }
}

fn of_a_sample(
    figures: &Figures,
    subject: &Subject,
    case: Case,
    depth: u32,
    field: &str,
) -> String {
    let over = |name| over_empty_handler(figures, case, name, field);
    let ratio = match subject.name {
        EMPTY_HANDLER | SIGPROF => None,
        // Nothing is how many times as much as noise.
        name => over(name)
            .zip(over(SIGPROF).filter(|&own| own > 50.0))
            .map(|(x, own)| x / own),
    };
    let microseconds = |ns: f64| format!("{:.2} µs", ns / 1e3);
    let cell = with_ratio(figures, case, subject.name, field, microseconds, ratio);
    // Where a profiler does not tell the depth, it says 0.
    match figures.least(case, subject.name, "deepest") {
        Some(frames) if frames > 0.0 && frames <= f64::from(depth) => {
            format!("{cell}, only {frames:.0} frames")
        }
        _ => cell,
    }
}

/// What a sample costs beyond the delivery of its signal, in nanoseconds.
pub fn over_empty_handler(figures: &Figures, case: Case, name: &str, field: &str) -> Option<f64> {
    Some(figures.median(case, name, field)? - figures.median(case, EMPTY_HANDLER, field)?)
}

/// What a frame more costs in nanoseconds, at the best.
pub fn of_a_frame(figures: &Figures, name: &str, case: impl Fn(u32) -> Case) -> Option<f64> {
    of_a_frame_by(figures, name, "best_ns", case)
}

fn of_a_frame_by(
    figures: &Figures,
    name: &str,
    field: &str,
    case: impl Fn(u32) -> Case,
) -> Option<f64> {
    let [few, many] = COLD_DEPTHS;
    let at = |depth| over_empty_handler(figures, case(depth), name, field);
    Some((at(many)? - at(few)?) / f64::from(many - few))
}
