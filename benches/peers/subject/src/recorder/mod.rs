//! The profiler in this binary, behind one face.

#[cfg(not(any(
    feature = "sigprof",
    feature = "pprof",
    feature = "gperftools",
    feature = "framehop"
)))]
mod bare;
#[cfg(feature = "framehop")]
mod framehop_alone;
#[cfg(feature = "gperftools")]
mod gperftools;
#[cfg(feature = "pprof")]
mod pprof_rs;
#[cfg(feature = "sigprof")]
mod sigprof_cpu;

#[cfg(not(any(
    feature = "sigprof",
    feature = "pprof",
    feature = "gperftools",
    feature = "framehop"
)))]
pub use bare::Recording;
#[cfg(feature = "framehop")]
pub use framehop_alone::Recording;
#[cfg(feature = "gperftools")]
pub use gperftools::Recording;
#[cfg(feature = "pprof")]
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

/// A profiler that runs from `start` until one of the three ends.
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
}

/// What has to be done before anything else.
pub fn prepare(options: &Options) -> Result<()> {
    #[cfg(feature = "gperftools")]
    gperftools::prepare(options)?;
    let _ = options;
    Ok(())
}
