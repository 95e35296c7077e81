//! What a sample costs the thread that it interrupts.

use super::{SIGPROF, head, row, taking_part, with_ratio};
use crate::plan::{COLD_DEPTHS, Case, DEPTHS, Figures};
use crate::subjects::{Measurement, Subject};

pub fn print(subjects: &[&Subject], figures: &Figures) {
    println!("## A sample's cost\n");
    println!(
        "`raise(SIGPROF)` in bursts under a recursion, and, for new code, under 4096 functions in turn, of which each comes again when \
         all others have been; each burst less as many signals to an empty handler right behind it. In parentheses: times what sigprof \
         costs. A frame: what 64 more of them cost, by 64. {}.\n",
        of_delivery(figures)
    );
    let known = DEPTHS.map(|depth| (Case::Cost { depth }, depth, ""));
    let new = COLD_DEPTHS.map(|depth| (Case::ColdCost { depth }, depth, ", new"));
    let cases: Vec<(Case, u32, &str)> = known.into_iter().chain(new).collect();
    for (field, title) in [(LEAST, "the least tenth"), ("over_ns", "median")] {
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
                Some(ns) => format!("{ns:.1} ns"),
                None => String::new(),
            }));
            row(subject.name, &cells);
        }
        println!();
    }
}

/// What a sample costs beyond the delivery of its signal in the least tenth of the bursts, where
/// nothing else took the processor.
pub const LEAST: &str = "least_over_ns";

fn of_delivery(figures: &Figures) -> String {
    let empty = figures.median(Case::Cost { depth: DEPTHS[0] }, SIGPROF, "empty_ns");
    empty.map_or_else(String::new, |ns| {
        format!("The empty handler's signals take {:.2} µs", ns / 1e3)
    })
}

fn of_a_sample(
    figures: &Figures,
    subject: &Subject,
    case: Case,
    depth: u32,
    field: &str,
) -> String {
    let of = |name| figures.median(case, name, field);
    let ratio = match subject.name {
        SIGPROF => None,
        // Nothing is how many times as much as noise.
        name => of(name)
            .zip(of(SIGPROF).filter(|&own| own > 50.0))
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

/// What a frame more costs, in nanoseconds.
pub fn of_a_frame(figures: &Figures, name: &str, case: impl Fn(u32) -> Case) -> Option<f64> {
    of_a_frame_by(figures, name, LEAST, case)
}

fn of_a_frame_by(
    figures: &Figures,
    name: &str,
    field: &str,
    case: impl Fn(u32) -> Case,
) -> Option<f64> {
    let [few, many] = COLD_DEPTHS;
    let at = |depth| figures.median(case(depth), name, field);
    Some((at(many)? - at(few)?) / f64::from(many - few))
}
