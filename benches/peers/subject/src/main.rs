//! The program that is measured: one profiler, one measurement, one line of `key=value` results.
//!
//! Every measurement is a process of its own, so that none finds the memory, threads and handlers of another.

mod load;
mod measure;
mod options;
mod proc;
mod recorder;

use std::process::ExitCode;

/// A bench has no caller who would act on an error's kind: a sentence is enough.
pub type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match run() {
        Ok(results) => {
            let fields: Vec<String> = results
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            println!("{}", fields.join(" "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<measure::Results> {
    let mut args = std::env::args().skip(1);
    let measurement = args
        .next()
        .ok_or("name a measurement: cost, yield, rss, report or cycles")?;
    let mut options = options::Options::parse(args)?;
    if matches!(measurement.as_str(), "cost" | "report") {
        options.frequency_hz = measure::QUIET_HZ;
    }
    recorder::prepare(&options)?;
    match measurement.as_str() {
        "cost" => measure::cost::run(&options),
        "yield" => measure::yields::run(&options),
        "rss" => measure::rss::run(&options),
        "report" => measure::report::run(&options),
        "cycles" => measure::cycles::run(&options),
        other => Err(format!(
            "there is no measurement \"{other}\": name cost, yield, rss, report or cycles"
        )
        .into()),
    }
}
