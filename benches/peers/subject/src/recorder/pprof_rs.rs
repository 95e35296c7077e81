//! pprof-rs, or its fork rpprof: the unwinder is the one that the binary was built with.

use std::fs::File;
use std::io::Write as _;

#[cfg(feature = "pprof")]
use ::pprof;
#[cfg(feature = "rpprof")]
use ::rpprof as pprof;
use pprof::protos::Message as _;
use pprof::{Frames, ProfilerGuard, ProfilerGuardBuilder};

use super::{By, Counts, Recorder, Tally, is_function};
use crate::Result;
use crate::options::Options;

pub struct Recording(ProfilerGuard<'static>);

impl Recorder for Recording {
    fn start(options: &Options) -> Result<Self> {
        let guard = ProfilerGuardBuilder::default()
            .frequency(options.frequency_hz.try_into()?)
            .build()?;
        Ok(Self(guard))
    }

    fn stop(self) -> Result<Tally> {
        let report = self.0.report().build_unresolved()?;
        let deepest = report.data.keys().map(|stack| stack.frames.len()).max();
        Ok(tally(report.data.values(), deepest))
    }

    fn discard(self) -> Result<()> {
        Ok(())
    }

    /// Without symbols pprof-rs has no format to write: then this is the time to collect the
    /// stacks.
    fn write(self, options: &Options) -> Result<Tally> {
        if !options.symbols {
            return self.stop();
        }
        let report = self.0.report().build()?;
        let bytes = report.pprof()?.encode_to_vec();
        let mut file = flate2::write::GzEncoder::new(
            File::create(&options.path)?,
            flate2::Compression::default(),
        );
        file.write_all(&bytes)?;
        file.finish()?;
        let deepest = report.data.keys().map(|stack| stack.frames.len()).max();
        Ok(tally(report.data.values(), deepest))
    }

    fn count(self, _options: &Options, by: By, names: &[&str]) -> Result<Counts> {
        let report = self.0.report().build()?;
        let samples = report.data.iter().map(|(stack, &count)| {
            let name = names.iter().position(|name| match by {
                By::Function => calls(stack, name),
                By::Thread => stack.thread_name == *name,
            });
            (count as u64, name)
        });
        Ok(Counts::of(names.len(), samples))
    }
}

fn calls(stack: &Frames, function: &str) -> bool {
    let mut symbols = stack.frames.iter().flatten();
    symbols.any(|symbol| is_function(&symbol.name(), function))
}

fn tally<'a>(counts: impl ExactSizeIterator<Item = &'a isize>, deepest: Option<usize>) -> Tally {
    let distinct_stacks = counts.len() as u64;
    Tally {
        distinct_stacks,
        deepest: deepest.unwrap_or(0) as u64,
        ..Tally::of_samples(counts.sum::<isize>() as u64)
    }
}
