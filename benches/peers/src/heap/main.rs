//! Runs sigprof's heap profiles over several allocators beside these alone, alternating, and prints
//! as Markdown what each of them costs and how far estimates are from the truth.

mod bars;
mod figures;
mod subjects;
mod tables;

use std::process::ExitCode;

use figures::{Case, Figures};
use sigprof_peers::program::Folders;
use subjects::SUBJECTS;

const USAGE: &str = "\
usage: heap [--quick] [--rounds N] [--only MEASUREMENT]

  --quick     one round of short measurements: shows that all runs, not what it costs
  --rounds N  measures everything N times and takes medians (3)
  --only M    takes one measurement alone: pair, sampled, live, churn, server or truth

Prints tables and bars on stdout, progress on stderr. Exits with 1 if a bar is missed.";

/// What was asked for.
#[derive(Debug)]
pub struct Settings {
    pub quick: bool,
    pub rounds: u32,
    pub only: Option<String>,
}

fn main() -> ExitCode {
    if std::env::args().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match parse(std::env::args().skip(1)).and_then(|settings| run(&settings)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Settings, String> {
    let mut settings = Settings {
        quick: false,
        rounds: 0,
        only: None,
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => settings.quick = true,
            "--rounds" => {
                settings.rounds = args
                    .next()
                    .and_then(|n| n.parse().ok())
                    .filter(|&n| n > 0)
                    .ok_or("--rounds needs a number from 1")?;
            }
            "--only" => {
                let name = args.next().unwrap_or_default();
                if !Case::ALL.iter().any(|case| case.measurement() == name) {
                    return Err(format!("--only needs one of the following\n\n{USAGE}"));
                }
                settings.only = Some(name);
            }
            _ => return Err(format!("there is no option {arg}\n\n{USAGE}")),
        }
    }
    if settings.rounds == 0 {
        settings.rounds = if settings.quick { 1 } else { 3 };
    }
    Ok(settings)
}

/// Whether every bar was cleared.
fn run(settings: &Settings) -> Result<bool, String> {
    let cases: Vec<Case> = Case::ALL
        .into_iter()
        .filter(|case| {
            let only = settings.only.as_deref();
            only.is_none_or(|only| only == case.measurement())
        })
        .collect();
    let folders = Folders::prepare("heap")?;
    for subject in SUBJECTS {
        if cases.iter().any(|&case| subject.takes_part(case)) {
            subject.build(&folders)?;
        }
    }
    let figures = Figures::measure(settings, &cases, &folders);
    tables::print(settings, &cases, &figures);
    Ok(bars::print(&cases, &figures))
}
