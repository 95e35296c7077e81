//! The profiler in this binary, behind one face.

#[cfg(not(any(
    feature = "sigprof",
    feature = "pprof",
    feature = "rpprof",
    feature = "gperftools",
    feature = "framehop"
)))]
mod bare;
#[cfg(feature = "framehop")]
mod framehop_alone;
#[cfg(feature = "gperftools")]
mod gperftools;
#[cfg(any(feature = "pprof", feature = "rpprof"))]
mod pprof_rs;
#[cfg(feature = "sigprof")]
mod sigprof_cpu;

#[cfg(not(any(
    feature = "sigprof",
    feature = "pprof",
    feature = "rpprof",
    feature = "gperftools",
    feature = "framehop"
)))]
pub use bare::Recording;
#[cfg(feature = "framehop")]
pub use framehop_alone::Recording;
#[cfg(feature = "gperftools")]
pub use gperftools::Recording;
#[cfg(any(feature = "pprof", feature = "rpprof"))]
pub use pprof_rs::Recording;
#[cfg(feature = "sigprof")]
pub use sigprof_cpu::Recording;

use crate::Result;
use crate::options::Options;

/// What a recording holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Samples, each counted as often as it says it stands for.
    pub weight: u64,
    /// Of that weight, what lies in a stack rather than in a frame that says why there is none.
    pub in_stacks: u64,
    /// Signals that became a sample.
    pub signals: u64,
    /// Distinct stacks, where the profiler tells.
    pub distinct_stacks: u64,
    /// Frames of the deepest stack, where the profiler tells.
    pub deepest: u64,
}

impl Tally {
    /// For profilers in which a sample is a sample.
    #[allow(dead_code, reason = "not every recorder is that simple")]
    fn of_samples(samples: u64) -> Self {
        Self {
            weight: samples,
            in_stacks: samples,
            signals: samples,
            distinct_stacks: 0,
            deepest: 0,
        }
    }
}

/// What samples are told apart by.
#[derive(Clone, Copy, Debug)]
pub enum By {
    /// The function, wherever it is in the stack; its name ends a path.
    Function,
    /// The name of the thread.
    Thread,
}

/// How a profile's samples fall to names.
#[derive(Clone, Debug)]
pub struct Counts {
    /// All samples, also those of none of the names.
    pub all: u64,
    /// Those of each name.
    pub of_name: Vec<u64>,
}

impl Counts {
    /// Sums up samples, each with how often it counts and with the place of its name, where it has
    /// one of them.
    #[allow(dead_code, reason = "the references tell no samples apart")]
    fn of(names: usize, samples: impl Iterator<Item = (u64, Option<usize>)>) -> Self {
        let mut counts = Self {
            all: 0,
            of_name: vec![0; names],
        };
        for (weight, name) in samples {
            counts.all += weight;
            if let Some(name) = name {
                counts.of_name[name] += weight;
            }
        }
        counts
    }
}

/// Whether a demangled name, with modules before it and maybe a hash after, is that function's.
#[allow(dead_code, reason = "not every recorder names functions")]
fn is_function(demangled: &str, name: &str) -> bool {
    demangled.split("::").any(|part| part == name)
}

/// A profiler that runs from `start` until one of the four ends.
pub trait Recorder: Sized {
    fn start(options: &Options) -> Result<Self>;

    /// Stops and counts.
    fn stop(self) -> Result<Tally>;

    /// Stops and throws the samples away, in the cheapest way the profiler has.
    fn discard(self) -> Result<()> {
        self.stop().map(drop)
    }

    /// Stops and writes the profile to the options' path.
    fn write(self, options: &Options) -> Result<Tally>;

    /// Stops and tells the samples apart, as the profiler's own report does.
    fn count(self, _options: &Options, by: By, _names: &[&str]) -> Result<Counts> {
        Err(format!("this profiler does not tell samples apart: {by:?}").into())
    }
}

/// What has to be done before anything else.
pub fn prepare(options: &Options) -> Result<()> {
    #[cfg(feature = "gperftools")]
    gperftools::prepare(options)?;
    let _ = options;
    Ok(())
}
