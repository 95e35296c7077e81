//! `key=value` arguments.

use crate::Result;

/// What to measure. A measurement reads the fields that concern it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes between two samples, where it is not the profiler's default.
    pub interval: Option<u64>,
    /// Threads that allocate, or that serve.
    pub threads: usize,
    /// Calls that a sampled allocation is made under.
    pub depth: u32,
    /// Size of a block.
    pub size: usize,
    /// How often a measurement goes through its work.
    pub count: u32,
    /// Length of a load.
    pub seconds: u32,
}

impl Options {
    pub fn parse(args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            interval: None,
            threads: 1,
            depth: 32,
            size: 64,
            count: 5,
            seconds: 3,
        };
        for arg in args {
            let (key, value) = arg
                .split_once('=')
                .ok_or_else(|| format!("\"{arg}\" is not of the form key=value"))?;
            let number: u32 = value
                .parse()
                .map_err(|e| format!("\"{arg}\" needs a number: {e}"))?;
            match key {
                "interval" => options.interval = Some(number.into()),
                "threads" => options.threads = number.max(1) as usize,
                "depth" => options.depth = number,
                "size" => options.size = number.max(1) as usize,
                "count" => options.count = number,
                "seconds" => options.seconds = number.max(1),
                _ => return Err(format!("there is no option \"{key}\"").into()),
            }
        }
        Ok(options)
    }
}
