//! `key=value` arguments.

use std::path::PathBuf;

use crate::Result;

/// What to measure, and how the profiler is set up for it. A measurement reads the fields that
/// concern it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Frequency asked of the profiler.
    pub frequency_hz: u32,
    /// Frames of recursion below the measurement.
    pub depth: u64,
    /// Threads of load.
    pub threads: usize,
    /// Whether these threads compute or wait.
    pub busy: bool,
    /// Whether these threads are born while the recording runs rather than before.
    pub born_late: bool,
    /// Length of the recording.
    pub window_ms: u64,
    /// Distinct stacks, samples, cycles or threads to go through.
    pub count: u32,
    /// How often what is recorded is held against what is not.
    pub pairs: u32,
    /// Whether the profile's frames are named.
    pub symbols: bool,
    /// sigprof's engine, or the clock of the bare timers.
    pub engine: String,
    /// Where a profile is written.
    pub path: PathBuf,
}

impl Options {
    pub fn parse(args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            frequency_hz: 100,
            depth: 32,
            threads: 1,
            busy: true,
            born_late: false,
            window_ms: 1000,
            count: 200,
            pairs: 7,
            symbols: false,
            engine: "auto".to_owned(),
            path: std::env::temp_dir().join(format!("sigprof-peers-{}", std::process::id())),
        };
        for arg in args {
            let (key, value) = arg
                .split_once('=')
                .ok_or_else(|| format!("\"{arg}\" is not of the form key=value"))?;
            let number = || {
                value
                    .parse::<u32>()
                    .map_err(|e| format!("\"{arg}\" needs a number: {e}"))
            };
            match key {
                "hz" => options.frequency_hz = number()?.max(1),
                "depth" => options.depth = number()?.into(),
                "threads" => options.threads = number()? as usize,
                "busy" => options.busy = number()? != 0,
                "late" => options.born_late = number()? != 0,
                "ms" => options.window_ms = number()?.into(),
                "count" => options.count = number()?,
                "pairs" => options.pairs = number()?.max(1),
                "symbols" => options.symbols = number()? != 0,
                "engine" => options.engine = value.to_owned(),
                "path" => options.path = value.into(),
                _ => return Err(format!("there is no option \"{key}\"").into()),
            }
        }
        Ok(options)
    }
}
