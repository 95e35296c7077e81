//! The figures as Markdown.

use std::fs;

use crate::Settings;
use crate::figures::{Case, Figures};
use crate::subjects::{Role, SUBJECTS, Subject};

/// What an estimate's error is called, in the programs' figures and here.
pub const ERRORS: [(&str, &str); 4] = [
    ("alloc_objects_error", "alloc_objects"),
    ("alloc_space_error", "alloc_space"),
    ("inuse_objects_error", "inuse_objects"),
    ("inuse_space_error", "inuse_space"),
];

pub fn print(settings: &Settings, cases: &[Case], figures: &Figures) {
    print_conditions(settings);
    if cases.iter().any(|case| !case.is_of_truth()) {
        print_costs(cases, figures);
    }
    for &case in cases.iter().filter(|case| case.is_of_truth()) {
        print_truth(case, figures);
    }
    print_failures(figures);
}

fn print_conditions(settings: &Settings) {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("# Heap profiles\n");
    println!(
        "{cpus} CPUs, Linux {}, median of rounds: {}{}. Release builds with line tables.\n",
        kernel.trim(),
        settings.rounds,
        if settings.quick {
            " (quick: not for the record)"
        } else {
            ""
        },
    );
}

fn print_costs(cases: &[Case], figures: &Figures) {
    println!("## Costs\n");
    println!(
        "CPU time of an allocation of 64 bytes and its free, of a sampled allocation over one that \
         is none, of a part of the program, and of an answer of the server. In parentheses: over \
         the allocator alone, in turn with it in one process. The rows of an allocator alone are \
         the same measurement of nothing: a figure is as good as they are near 0. An allocator's \
         own profiler cannot be switched; it is held against the allocator's row, which is another \
         process and differs by a few percent from itself. 1,000,000 blocks in use: the memory \
         that it takes to have them all sampled, the time of a profile, and the longest that an \
         allocation beside it takes.\n"
    );
    let costs: Vec<Case> = cases
        .iter()
        .copied()
        .filter(|case| !case.is_of_truth())
        .collect();
    head("", costs.iter().map(|&case| title(case)));
    for subject in SUBJECTS.iter().filter(|s| s.role != Role::Counted) {
        let cells = costs.iter().map(|&case| cost(figures, case, subject));
        row(subject.name, cells);
    }
    println!();
}

fn title(case: Case) -> String {
    match case {
        Case::Pair { threads: 1 } => "alloc and free".to_owned(),
        Case::Pair { threads } => format!("alloc and free, {threads} threads"),
        Case::Sampled => "sampled, depth 32".to_owned(),
        Case::Live => "1,000,000 blocks in use".to_owned(),
        Case::Churn | Case::TruthOfChurn => "JSON and B-tree".to_owned(),
        Case::Server | Case::TruthOfServer => "hyper under wrk".to_owned(),
    }
}

fn cost(figures: &Figures, case: Case, subject: &Subject) -> String {
    if !subject.takes_part(case) {
        return "–".to_owned();
    }
    let median = |field| figures.median(case, subject.name, field);
    let added = figures.added(case, subject);
    let Some((cost, added)) = median(case.cost()).zip(added) else {
        return "failed".to_owned();
    };
    match case {
        Case::Pair { .. } => format!("{cost:.2} ns ({added:+.2} ns)"),
        Case::Sampled => format!("{added:.0} ns"),
        Case::Live => match median("snapshot_ms").zip(median("pause_ms")) {
            Some((snapshot, pause)) => format!("{cost:.1} MiB, {snapshot:.0} ms, {pause:.2} ms"),
            None => "failed".to_owned(),
        },
        Case::Churn | Case::TruthOfChurn => format!("{:.3} ms ({added:+.2} %)", cost / 1e6),
        Case::Server | Case::TruthOfServer => format!("{:.2} µs ({added:+.2} %)", cost / 1e3),
    }
}

fn print_truth(case: Case, figures: &Figures) {
    println!("## Estimates beside the truth: {}\n", title(case));
    println!(
        "How far each total of the profile is from what the program allocated and had in use, in \
         standard errors, in the round that was furthest off; nothing where there are fewer than \
         10 samples. A sample each 8 KiB.\n"
    );
    head("", ERRORS.iter().map(|&(_, name)| name.to_owned()));
    for subject in SUBJECTS.iter().filter(|s| s.role == Role::Counted) {
        let cells = ERRORS.iter().map(|&(field, _)| {
            let error = figures.furthest(case, subject.name, field);
            error.map_or_else(|| "–".to_owned(), |error| format!("{error:+.2}"))
        });
        row(subject.name, cells);
    }
    println!();
}

fn print_failures(figures: &Figures) {
    for (case, subject, error) in figures.failures() {
        println!("- {subject}, {case:?}: {error}");
    }
}

fn head(first: &str, titles: impl Iterator<Item = String>) {
    let titles: Vec<String> = titles.collect();
    println!("| {first} | {} |", titles.join(" | "));
    println!("|---{}|", "|---".repeat(titles.len()));
}

fn row(first: &str, cells: impl Iterator<Item = String>) {
    let cells: Vec<String> = cells.collect();
    println!("| {first} | {} |", cells.join(" | "));
}
