//! Runs sigprof beside its published peers, alternating, and prints as Markdown what each of them
//! costs.

mod bars;
mod plan;
mod subjects;
mod tables;

use std::fs;
use std::process::ExitCode;

use plan::Figures;
use sigprof_peers::program::Folders;
use subjects::{Measurement, SUBJECTS, Subject};

const USAGE: &str = "\
usage: sigprof-peers [--quick] [--rounds N] [--only MEASUREMENT] [--peers-only]

  --quick       one round of short measurements: shows that all runs, not what it costs
  --rounds N    measures everything N times and takes medians (3)
  --only M      takes one measurement alone: cost, yield, rss, report, cycles, shares, overhead, start or threads
  --peers-only  leaves sigprof out

Prints tables and bars on stdout, progress on stderr. Exits with 1 if a bar is missed.";

/// What was asked for.
#[derive(Debug)]
pub struct Settings {
    pub quick: bool,
    pub rounds: u32,
    pub only: Option<Measurement>,
    pub peers_only: bool,
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
        peers_only: false,
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => settings.quick = true,
            "--peers-only" => settings.peers_only = true,
            "--rounds" => {
                settings.rounds = args
                    .next()
                    .and_then(|n| n.parse().ok())
                    .filter(|&n| n > 0)
                    .ok_or("--rounds needs a number from 1")?;
            }
            "--only" => {
                let name = args.next().unwrap_or_default();
                settings.only = Some(
                    Measurement::named(&name)
                        .ok_or_else(|| format!("--only needs one of the following\n\n{USAGE}"))?,
                );
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
    let subjects: Vec<&'static Subject> = SUBJECTS
        .iter()
        .filter(|subject| !(settings.peers_only && subject.is_sigprof()))
        .filter(|subject| {
            settings
                .only
                .is_none_or(|only| subject.measured.contains(&only))
        })
        .collect();
    let folders = Folders::prepare("cpu")?;
    for subject in &subjects {
        subject.build(&folders)?;
    }
    let scratch = std::env::temp_dir().join(format!("sigprof-peers-{}", std::process::id()));
    fs::create_dir_all(&scratch).map_err(|e| format!("cannot make {}: {e}", scratch.display()))?;
    let figures = Figures::measure(settings, &subjects, &folders, &scratch);
    // A folder of temporary files that stays behind is no reason to lose the figures.
    let _ = fs::remove_dir_all(&scratch);
    tables::print(settings, &subjects, &figures);
    Ok(settings.peers_only || bars::print(&subjects, &figures))
}
