//! The program that is measured: one profiler, one measurement, one line of `key=value` results.
//!
//! Every measurement is a process of its own, so that none finds the memory, threads and handlers
//! of another.

mod known;
mod load;
mod maze;
mod measure;
mod options;
mod proc;
mod recorder;

use std::process::ExitCode;

/// A bench has no caller who would act on an error's kind: a sentence is enough.
pub type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const MEASUREMENTS: &str = "cost, cold-cost, yield, rss, report, cycles, thread-shares, function-shares, overhead, start or threads";

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
        .ok_or_else(|| format!("name a measurement: {MEASUREMENTS}"))?;
    let mut options = options::Options::parse(args)?;
    if matches!(measurement.as_str(), "cost" | "cold-cost" | "report") {
        options.frequency_hz = measure::QUIET_HZ;
    }
    recorder::prepare(&options)?;
    match measurement.as_str() {
        "cost" => measure::cost::run(&options),
        "cold-cost" => measure::cost::run_cold(&options),
        "yield" => measure::yields::run(&options),
        "rss" => measure::rss::run(&options),
        "report" => measure::report::run(&options),
        "cycles" => measure::cycles::run(&options),
        "thread-shares" => measure::shares::of_threads(&options),
        "function-shares" => measure::shares::of_functions(&options),
        "overhead" => measure::overhead::run(&options),
        "start" => measure::start::run(&options),
        "threads" => measure::threads::run(&options),
        other => {
            Err(format!("there is no measurement \"{other}\": name one of {MEASUREMENTS}").into())
        }
    }
}
