//! What sigprof has to reach, and whether it did.

use sigprof_peers::bar::{self, Bar};

use crate::figures::{Case, Figures};
use crate::subjects::{Role, SUBJECTS, Subject};
use crate::tables::ERRORS;

/// sigprof over System, which the bars are for.
fn sigprof() -> &'static Subject {
    let mut subjects = SUBJECTS.iter();
    let sigprof = subjects.find(|subject| subject.role == Role::Sigprof);
    sigprof.expect("sigprof is among the subjects")
}

/// Standard errors. One run in 15,000 is further off by chance: with three, one run of this
/// benchmark in twenty would be.
const MOST_ERROR: f64 = 4.0;

/// Prints a line for each bar; whether all were cleared.
pub fn print(cases: &[Case], figures: &Figures) -> bool {
    let mut bars = Vec::new();
    for &case in cases {
        match case {
            Case::Pair { threads } => bars.push(pair(figures, case, threads)),
            Case::Sampled => bars.push(sampled(figures)),
            Case::Live => bars.extend(live(figures)),
            Case::Churn => bars.push(program(figures, case, "a program of JSON and a B-tree")),
            Case::Server => bars.push(program(figures, case, "a server, each answer")),
            Case::TruthOfChurn => bars.extend(truth(figures, case, "serde_json", 0.3)),
            Case::TruthOfServer => bars.extend(truth(figures, case, "hyper", 0.9)),
        }
    }
    let failures = figures.failures().count() as f64;
    bars.push(Bar::new(
        "measurements that crashed, hung or failed",
        "none",
        Some(failures),
        |n| format!("{n:.0}"),
        |n| n == 0.0,
    ));
    bar::print(&bars)
}

fn pair(figures: &Figures, case: Case, threads: u32) -> Bar {
    Bar::new(
        format!("an allocation and its free over System alone, threads: {threads}"),
        "at most 2 ns",
        figures.added(case, sigprof()),
        |ns| format!("{ns:+.2} ns"),
        |ns| ns <= 2.0,
    )
}

fn sampled(figures: &Figures) -> Bar {
    Bar::new(
        "a sampled allocation at depth 32",
        "at most 1 µs",
        figures.added(Case::Sampled, sigprof()),
        |ns| format!("{:.2} µs", ns / 1000.0),
        |ns| ns <= 1000.0,
    )
}

fn live(figures: &Figures) -> [Bar; 3] {
    let bar = |what: &str, wanted: &str, field, unit, most: f64| {
        Bar::new(
            what,
            wanted,
            figures.median(Case::Live, sigprof().name, field),
            move |value| format!("{value:.2} {unit}"),
            move |value| value <= most,
        )
    };
    [
        bar(
            "memory of 1,000,000 sampled blocks in use, beside their own",
            "at most 150 MiB",
            "added_mib",
            "MiB",
            150.0,
        ),
        bar(
            "a profile of them, 10,000 stacks of 32 frames",
            "at most 1 s",
            "snapshot_ms",
            "ms",
            1000.0,
        ),
        bar(
            "the longest that an allocation beside it takes",
            "at most 1 ms",
            "pause_ms",
            "ms",
            1.0,
        ),
    ]
}

fn program(figures: &Figures, case: Case, what: &str) -> Bar {
    Bar::new(
        format!("{what}: CPU time over System alone"),
        "at most 0.5 %",
        figures.added(case, sigprof()),
        |percent| format!("{percent:+.2} %"),
        |percent| percent <= 0.5,
    )
}

/// That estimates are right, and that at least so much of what was allocated is below the functions
/// that did.
fn truth(figures: &Figures, case: Case, function: &str, part: f64) -> Vec<Bar> {
    let counted: Vec<&Subject> = SUBJECTS
        .iter()
        .filter(|subject| subject.role == Role::Counted)
        .collect();
    let errors = counted.iter().flat_map(|subject| {
        let of = |&(field, _)| figures.furthest(case, subject.name, field);
        ERRORS.iter().filter_map(of)
    });
    let furthest = errors.max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let below = counted
        .iter()
        .filter_map(|subject| figures.median(case, subject.name, "part_below"))
        .min_by(f64::total_cmp);
    vec![
        Bar::new(
            format!("{case:?}: how far the furthest estimate is off"),
            format!("at most {MOST_ERROR} standard errors"),
            furthest,
            |error| format!("{error:+.2}"),
            |error| error.abs() <= MOST_ERROR,
        ),
        Bar::new(
            format!("{case:?}: bytes allocated below {function}"),
            format!("at least {:.0} %", part * 100.0),
            below,
            |part| format!("{:.1} %", part * 100.0),
            |below| below >= part,
        ),
    ]
}
