//! What sigprof has to reach, and whether it did.

use sigprof_peers::bar::{self, Bar};

use crate::plan::{
    COLD_DEPTHS, COMMON_HZ, CYCLES, Case, DEPTHS, Figures, IDLE_THREADS, STACKS, YIELD_THREADS,
};
use crate::subjects::{Measurement, Role, Subject};
use crate::tables::{LEAST, SIGPROF, of_a_frame};

/// Prints a line for each bar; whether all were cleared.
pub fn print(subjects: &[&Subject], figures: &Figures) -> bool {
    let mut bars = Vec::new();
    if figures.has(Measurement::Cost) {
        cost(subjects, figures, &mut bars);
    }
    if figures.has(Measurement::Yield) {
        yields(figures, &mut bars);
    }
    if figures.has(Measurement::Rss) {
        rss(figures, &mut bars);
    }
    if figures.has(Measurement::Report) {
        report(figures, &mut bars);
    }
    if figures.has(Measurement::Cycles) {
        cycles(figures, &mut bars);
    }
    if figures.has(Measurement::Overhead) {
        overhead(figures, &mut bars);
    }
    if figures.has(Measurement::Start) {
        start(figures, &mut bars);
    }
    if figures.has(Measurement::Threads) {
        threads(figures, &mut bars);
    }
    bars.push(failures(figures));
    bar::print(&bars)
}

fn cost(subjects: &[&Subject], figures: &Figures, bars: &mut Vec<Bar>) {
    const DEPTH: u32 = 32;
    let over = |case| figures.median(case, SIGPROF, LEAST);
    let own = over(Case::Cost { depth: DEPTH });
    for (depth, most_ns) in [(DEPTH, 800.0), (96, 1500.0)] {
        bars.push(Bar::new(
            format!("a sample at depth {depth}, over an empty handler"),
            format!("at most {:.2} µs", most_ns / 1e3),
            over(Case::Cost { depth }),
            |ns| format!("{:.2} µs", ns / 1e3),
            |ns| ns <= most_ns,
        ));
    }
    for (what, frame, most_ns) in [
        (
            "a frame that is known",
            of_a_frame(figures, SIGPROF, |depth| Case::Cost { depth }),
            8.0,
        ),
        (
            "a frame that is new",
            of_a_frame(figures, SIGPROF, |depth| Case::ColdCost { depth }),
            80.0,
        ),
    ] {
        bars.push(Bar::new(
            what,
            format!("at most {most_ns:.0} ns"),
            frame,
            |ns| format!("{ns:.1} ns"),
            |ns| ns <= most_ns,
        ));
    }
    let best_peer = subjects
        .iter()
        .filter(|subject| subject.role == Role::Peer)
        .filter_map(|peer| {
            let case = Case::Cost { depth: DEPTH };
            let over = figures.median(case, peer.name, LEAST)?;
            Some((over, peer.name))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0));
    let less = own
        .zip(best_peer)
        // A cost that drowns in the noise of the signal's delivery counts as a nanosecond.
        .map(|(own, (peer, _))| peer / own.max(1.0));
    let name = best_peer.map_or("the best peer", |(_, name)| name);
    bars.push(Bar::new(
        format!("the same, times less than {name}"),
        "at least 10",
        less,
        |times| format!("{times:.1}"),
        |times| times >= 10.0,
    ));
    let known = DEPTHS.map(|depth| (Case::Cost { depth }, depth, ""));
    let new = COLD_DEPTHS.map(|depth| (Case::ColdCost { depth }, depth, " in new code"));
    for (case, depth, which) in known.into_iter().chain(new) {
        bars.push(nothing_lost(
            figures,
            case,
            &format!("at depth {depth}{which}"),
        ));
        bars.push(Bar::new(
            format!("frames of the deepest stack, at depth {depth}{which}"),
            format!("more than {depth}"),
            figures.least(case, SIGPROF, "deepest"),
            |n| format!("{n:.0}"),
            |n| n > f64::from(depth),
        ));
    }
}

/// A figure of samples that were not all recorded would be of something else.
fn nothing_lost(figures: &Figures, case: Case, when: &str) -> Bar {
    let lost = figures
        .median(case, SIGPROF, "raised")
        .zip(figures.least(case, SIGPROF, "recorded"))
        .map(|(raised, recorded)| (raised - recorded).max(0.0));
    Bar::new(
        format!("raised signals that are in no stack, {when}"),
        "none",
        lost,
        |n| format!("{n:.0}"),
        |n| n == 0.0,
    )
}

fn yields(figures: &Figures, bars: &mut Vec<Bar>) {
    for hz in [100, 1000] {
        for threads in YIELD_THREADS {
            let case = Case::Yield {
                threads,
                hz,
                late: false,
            };
            bars.push(Bar::new(
                format!("yield at {hz} Hz ×{threads}"),
                "0.98 to 1.02",
                figures.median(case, SIGPROF, "yield"),
                |y| format!("{y:.3}"),
                |y| (0.98..=1.02).contains(&y),
            ));
        }
    }
}

fn rss(figures: &Figures, bars: &mut Vec<Bar>) {
    for symbols in [false, true] {
        for busy in [false, true] {
            let case = Case::Rss { busy, symbols };
            let threads = if busy {
                "8 busy threads"
            } else {
                "8 idle threads"
            };
            let named = if symbols { ", frames named" } else { "" };
            for (when, field, most_mib) in [
                ("while recording", "recording_kib", 8.0),
                ("after the stop", "stopped_kib", 2.0),
            ] {
                bars.push(Bar::new(
                    format!("RSS {when}, {threads}{named}"),
                    format!("at most +{most_mib} MiB"),
                    figures.median(case, SIGPROF, field),
                    |kib| format!("{:+.1} MiB", kib / 1024.0),
                    |kib| kib <= most_mib * 1024.0,
                ));
            }
        }
    }
}

fn report(figures: &Figures, bars: &mut Vec<Bar>) {
    for (symbols, most_ms) in [(false, 60.0), (true, 500.0)] {
        let case = Case::Report { symbols };
        let title = if symbols {
            "with symbols"
        } else {
            "without symbols"
        };
        bars.push(Bar::new(
            format!("stop and write, {title}"),
            format!("at most {most_ms} ms"),
            figures.median(case, SIGPROF, "report_ms"),
            |ms| format!("{ms:.1} ms"),
            |ms| ms <= most_ms,
        ));
        bars.push(Bar::new(
            format!("RSS at the peak, {title}"),
            "at most +60 MiB",
            figures.median(case, SIGPROF, "peak_kib"),
            |kib| format!("{:+.1} MiB", kib / 1024.0),
            |kib| kib <= 60.0 * 1024.0,
        ));
        bars.push(nothing_lost(figures, case, title));
        bars.push(Bar::new(
            format!("stacks told apart, {title}"),
            format!("at least {STACKS}"),
            figures.least(case, SIGPROF, "stacks"),
            |n| format!("{n:.0}"),
            |n| n >= f64::from(STACKS),
        ));
    }
}

fn cycles(figures: &Figures, bars: &mut Vec<Bar>) {
    let median = |field| figures.median(Case::Cycles, SIGPROF, field);
    for (what, field) in [
        ("threads before the first start", "threads_before"),
        ("timers before the first start", "timers_before"),
        ("threads after a stop", "threads_after"),
        ("timers after a stop", "timers_after"),
        ("files left open", "files_grown"),
    ] {
        bars.push(Bar::new(
            what,
            "none",
            median(field),
            |n| format!("{n:.0}"),
            |n| n <= 0.0,
        ));
    }
    // What leaks in every cycle leaks a page sooner or later; a quarter of a page a cycle is beyond
    // the noise.
    let most_kib = f64::from(CYCLES);
    bars.push(Bar::new(
        format!("memory grown over {CYCLES} cycles"),
        format!("at most {most_kib} KiB"),
        median("grown_kib"),
        |kib| format!("{kib:.0} KiB"),
        |kib| kib <= most_kib,
    ));
}

fn overhead(figures: &Figures, bars: &mut Vec<Bar>) {
    for (hz, most) in COMMON_HZ.into_iter().zip([0.3, 1.5]) {
        bars.push(Bar::new(
            format!("CPU time added at {hz} Hz, with start and stop"),
            format!("at most {most} %"),
            figures.median(Case::Overhead { hz }, SIGPROF, "percent"),
            |percent| format!("{percent:.2} %"),
            |percent| percent <= most,
        ));
    }
}

fn start(figures: &Figures, bars: &mut Vec<Bar>) {
    for (threads, most_ms) in IDLE_THREADS.into_iter().zip([5.0, 30.0]) {
        for hz in COMMON_HZ {
            for (which, field) in [("the first", "first_ms"), ("a", "median_ms")] {
                bars.push(Bar::new(
                    format!("{which} start at {hz} Hz, idle threads: {threads}"),
                    format!("at most {most_ms} ms"),
                    figures.median(Case::Start { threads, hz }, SIGPROF, field),
                    |ms| format!("{ms:.1} ms"),
                    |ms| ms <= most_ms,
                ));
            }
        }
    }
}

fn threads(figures: &Figures, bars: &mut Vec<Bar>) {
    for hz in COMMON_HZ {
        for (time, field) in [("CPU", "cpu_ns"), ("wall", "wall_ns")] {
            bars.push(Bar::new(
                format!("{time} time added to a new thread at {hz} Hz"),
                "at most 15 µs",
                figures.median(Case::Threads { hz }, SIGPROF, field),
                |ns| format!("{:.1} µs", ns / 1e3),
                |ns| ns <= 15_000.0,
            ));
        }
    }
}

fn failures(figures: &Figures) -> Bar {
    let failed: usize = figures
        .failures()
        .filter(|(_, subject, ..)| *subject == SIGPROF)
        .map(|(_, _, failed, ..)| failed)
        .sum();
    Bar::new(
        "measurements that crashed, hung or failed",
        "none",
        Some(failed as f64),
        |n| format!("{n:.0}"),
        |n| n == 0.0,
    )
}
