//! The figures as Markdown. A figure is followed by what it is times sigprof's.

mod cost;
mod overhead;
mod shares;
mod start;
mod threads;

use std::fs;

use crate::Settings;
use crate::plan::{CYCLES, Case, Figures, LATE, STACKS, YIELD_HZ, YIELD_THREADS};
use crate::subjects::{Measurement, Role, Subject};

pub use cost::{LEAST, of_a_frame};

/// The subject that ratios are to.
pub const SIGPROF: &str = "sigprof";

pub fn print(settings: &Settings, subjects: &[&Subject], figures: &Figures) {
    print_conditions(settings);
    if figures.has(Measurement::Cost) {
        cost::print(subjects, figures);
    }
    if figures.has(Measurement::Yield) {
        print_yield(subjects, figures);
    }
    if figures.has(Measurement::Rss) {
        print_rss(subjects, figures);
    }
    if figures.has(Measurement::Report) {
        print_report(subjects, figures);
    }
    if figures.has(Measurement::Cycles) {
        print_cycles(subjects, figures);
    }
    if figures.has(Measurement::Shares) {
        shares::print(subjects, figures);
    }
    if figures.has(Measurement::Overhead) {
        overhead::print(subjects, figures);
    }
    if figures.has(Measurement::Start) {
        start::print(subjects, figures);
    }
    if figures.has(Measurement::Threads) {
        threads::print(subjects, figures);
    }
    print_failures(figures);
}

fn print_conditions(settings: &Settings) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    println!("# sigprof and its peers\n");
    println!(
        "{cpus} CPUs, Linux {}, median of rounds: {}{}, load average at the end {load}. Release builds with line tables, \
         without frame pointers except for the frame-pointer mode. In parentheses: times sigprof's figure.\n",
        kernel.trim(),
        settings.rounds,
        if settings.quick {
            " (quick: not for the record)"
        } else {
            ""
        },
    );
}

fn print_yield(subjects: &[&Subject], figures: &Figures) {
    println!("## Yield\n");
    println!(
        "Samples recorded ÷ (CPU time × frequency asked for), busy threads. Where a sample says that it stands for more \
         than one, it is counted so; in brackets the signals themselves, where that is another figure.\n"
    );
    let mut cases = Vec::new();
    let mut titles = Vec::new();
    for hz in YIELD_HZ {
        for threads in YIELD_THREADS {
            cases.push(Case::Yield {
                threads,
                hz,
                late: false,
            });
            titles.push(format!("{hz} Hz ×{threads}"));
        }
    }
    cases.push(LATE);
    titles.push("1000 Hz ×8 born late".to_owned());
    head("", &titles);
    for subject in taking_part(subjects, Measurement::Yield) {
        let cells: Vec<String> = cases
            .iter()
            .map(|&case| {
                let cell = plain(figures, case, subject.name, "yield", |y| format!("{y:.3}"));
                let median = |field| figures.median(case, subject.name, field);
                let mut notes = String::new();
                if let (Some(weighted), Some(signals)) =
                    (median("yield"), median("yield_unweighted"))
                    && (weighted - signals).abs() > 0.005
                {
                    notes += &format!(" [{signals:.3}]");
                }
                if let (Some(all), Some(in_stacks)) = (median("yield"), median("yield_in_stacks"))
                    && all - in_stacks > 0.0005
                {
                    notes += &format!(
                        " ({:.1} % without a stack)",
                        (all - in_stacks) / all * 100.0
                    );
                }
                cell + &notes
            })
            .collect();
        row(subject.name, &cells);
    }
    println!();
}

fn print_rss(subjects: &[&Subject], figures: &Figures) {
    println!("## Memory of a recording\n");
    println!(
        "VmRSS over the same program before the start, 8 threads, 1000 Hz: the most while it records, and what is left \
         after the stop.\n"
    );
    let columns = [
        ("idle, recording", false, "recording_kib"),
        ("idle, stopped", false, "stopped_kib"),
        ("busy, recording", true, "recording_kib"),
        ("busy, stopped", true, "stopped_kib"),
    ];
    head("", &columns.map(|(title, _, _)| title.to_owned()));
    for symbols in [false, true] {
        for subject in taking_part(subjects, Measurement::Rss) {
            let case = |busy| Case::Rss { busy, symbols };
            if symbols && subject.role != Role::Sigprof {
                continue;
            }
            let cells = columns.map(|(_, busy, field)| {
                let ratio = ratio(figures, case(busy), subject.name, field);
                with_ratio(figures, case(busy), subject.name, field, mebibytes, ratio)
            });
            let name = match symbols {
                false => subject.name.to_owned(),
                true => format!("{}, frames named at the stop", subject.name),
            };
            row(&name, &cells);
        }
    }
    println!();
}

fn print_report(subjects: &[&Subject], figures: &Figures) {
    println!("## Reports\n");
    println!(
        "{STACKS} unique stacks of 30 frames, one sample each. RSS over the program before the start. pprof-rs has no \
         format without symbols to write: there its report is the collected stacks. gperftools writes while it records.\n"
    );
    type Show = fn(f64) -> String;
    let columns: [(&str, &str, Show); 7] = [
        ("RSS at start", "started_kib", mebibytes),
        ("a sample", "sample_ns", |ns| format!("{:.1} µs", ns / 1e3)),
        ("report", "report_ms", |ms| format!("{ms:.1} ms")),
        ("RSS at the peak", "peak_kib", mebibytes),
        ("RSS after", "after_kib", mebibytes),
        ("file", "file_bytes", file_size),
        ("recorded", "recorded", |n| format!("{n:.0}")),
    ];
    for symbols in [false, true] {
        let title = if symbols {
            "with symbols"
        } else {
            "without symbols"
        };
        head(title, &columns.map(|(title, _, _)| title.to_owned()));
        let case = Case::Report { symbols };
        for subject in taking_part(subjects, Measurement::Report) {
            if figures.median(case, subject.name, "report_ms").is_none()
                && figures.failure(case, subject.name).is_none()
            {
                continue;
            }
            let cells = columns.map(|(_, field, show)| {
                let ratio = match field {
                    "recorded" | "file_bytes" => None,
                    _ => ratio(figures, case, subject.name, field),
                };
                with_ratio(figures, case, subject.name, field, show, ratio)
            });
            row(subject.name, &cells);
        }
        println!();
    }
}

fn print_cycles(subjects: &[&Subject], figures: &Figures) {
    println!("## While not recording\n");
    println!("Before the first start, and after {CYCLES} cycles of start, 5 ms of work, stop.\n");
    let columns = [
        ("threads before", "threads_before"),
        ("timers before", "timers_before"),
        ("threads after", "threads_after"),
        ("timers after", "timers_after"),
        ("files left open", "files_grown"),
        ("memory grown", "grown_kib"),
    ];
    head("", &columns.map(|(title, _)| title.to_owned()));
    for subject in taking_part(subjects, Measurement::Cycles) {
        let cells = columns.map(|(_, field)| {
            plain(
                figures,
                Case::Cycles,
                subject.name,
                field,
                |n| match field {
                    "grown_kib" => format!("{n:.0} KiB"),
                    _ => format!("{n:.0}"),
                },
            )
        });
        row(subject.name, &cells);
    }
    println!();
}

fn print_failures(figures: &Figures) {
    let failures: Vec<_> = figures.failures().collect();
    if failures.is_empty() {
        return;
    }
    println!("## Measurements that failed\n");
    for (case, subject, failed, rounds, error) in failures {
        println!("- {subject}, {case:?}, {failed} of {rounds} rounds: {error}");
    }
    println!();
}

fn taking_part<'s>(
    subjects: &'s [&Subject],
    measurement: Measurement,
) -> impl Iterator<Item = &'s Subject> {
    subjects
        .iter()
        .copied()
        .filter(move |subject| subject.measured.contains(&measurement))
}

fn mebibytes(kib: f64) -> String {
    format!("{:+.1} MiB", kib / 1024.0)
}

fn file_size(bytes: f64) -> String {
    match bytes {
        0.0 => "none".to_owned(),
        bytes => format!("{:.2} MiB", bytes / 1048576.0),
    }
}

/// A figure times sigprof's. None where that would be noise over noise.
fn ratio(figures: &Figures, case: Case, name: &str, field: &str) -> Option<f64> {
    if name == SIGPROF {
        return None;
    }
    let own = figures.median(case, SIGPROF, field)?;
    let noise = if field.ends_with("_kib") { 256.0 } else { 0.0 };
    (own > noise).then_some(figures.median(case, name, field)? / own)
}

fn plain(
    figures: &Figures,
    case: Case,
    name: &str,
    field: &str,
    show: impl Fn(f64) -> String,
) -> String {
    with_ratio(figures, case, name, field, show, None)
}

fn with_ratio(
    figures: &Figures,
    case: Case,
    name: &str,
    field: &str,
    show: impl Fn(f64) -> String,
    ratio: Option<f64>,
) -> String {
    match (figures.median(case, name, field), ratio) {
        (Some(figure), Some(ratio)) => format!("{} (×{ratio:.1})", show(figure)),
        (Some(figure), None) => show(figure),
        (None, _) => match figures.failure(case, name) {
            Some(_) => "failed".to_owned(),
            None => "–".to_owned(),
        },
    }
}

fn head(first: &str, titles: &[String]) {
    println!("| {first} | {} |", titles.join(" | "));
    println!("|---|{}", "---|".repeat(titles.len()));
}

fn row(name: &str, cells: &[String]) {
    println!("| {name} | {} |", cells.join(" | "));
}
