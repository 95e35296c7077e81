//! The program whose heap is profiled: one allocator, one measurement, one line of `key=value`
//! results.

mod allocator;
mod counted;
mod estimate;
mod measure;
mod options;
mod profiler;
mod switched;

use std::process::ExitCode;

/// A bench has no caller who would act on an error's kind: a sentence is enough.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Named figures, units in the names.
pub type Results = Vec<(&'static str, f64)>;

const MEASUREMENTS: &str = "pair, churn, sampled, live or server";

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

fn run() -> Result<Results> {
    let mut args = std::env::args().skip(1);
    let measurement = args
        .next()
        .ok_or_else(|| format!("name a measurement: {MEASUREMENTS}"))?;
    let options = options::Options::parse(args)?;
    profiler::start(options.interval)?;
    match measurement.as_str() {
        "pair" => measure::pair::run(&options),
        "churn" => measure::churn::run(&options),
        "sampled" => measure::sampled::run(&options),
        "live" => measure::live::run(&options),
        "server" => measure::server::run(&options),
        other => {
            Err(format!("there is no measurement \"{other}\": name one of {MEASUREMENTS}").into())
        }
    }
}
