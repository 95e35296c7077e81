//! sigprof's CPU profiler.

use sigprof::cpu::{Engine, Profiler};

use super::{Recorder, Tally};
use crate::Result;
use crate::options::Options;

pub struct Recording(sigprof::cpu::Recording);

impl Recorder for Recording {
    fn start(options: &Options) -> Result<Self> {
        let engine = match options.engine.as_str() {
            "auto" => Engine::Auto,
            "thread" => Engine::ThreadTimer,
            "process" => Engine::ProcessTimer,
            other => return Err(format!("sigprof has no engine \"{other}\"").into()),
        };
        let recording = Profiler::new()
            .frequency_hz(options.frequency_hz)
            .engine(engine)
            .symbolize(options.symbols)
            .start()?;
        Ok(Self(recording))
    }

    fn stop(self) -> Result<Tally> {
        let signals = self.0.stats().samples;
        let profile = self.0.stop()?;
        Ok(tally(&profile, signals))
    }

    /// Not a mere drop: the profile is what a program stops for, and its memory has to come back too.
    fn discard(self) -> Result<()> {
        drop(self.0.stop()?);
        Ok(())
    }

    fn write(self, options: &Options) -> Result<Tally> {
        let signals = self.0.stats().samples;
        let profile = self.0.stop()?;
        profile.save(&options.path)?;
        Ok(tally(&profile, signals))
    }
}

fn tally(profile: &sigprof::Profile, signals: u64) -> Tally {
    let without_stack: i64 = profile
        .samples()
        .filter(|sample| {
            let Some(&leaf) = sample.stack.first() else {
                return true;
            };
            profile.location(leaf).lines.iter().any(|line| {
                let name = profile.function(line.function).name;
                matches!(profile.string(name), "[lost]" | "[unsampled]")
            })
        })
        .map(|sample| sample.values[0])
        .sum();
    let weight = profile.total(0);
    Tally {
        weight: weight as u64,
        in_stacks: (weight - without_stack) as u64,
        signals,
        distinct_stacks: profile.stacks().len() as u64,
        deepest: profile
            .samples()
            .map(|sample| sample.stack.len() as u64)
            .max()
            .unwrap_or(0),
    }
}
