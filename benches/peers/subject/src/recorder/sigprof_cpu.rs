//! sigprof's CPU profiler.

use sigprof::cpu::{Engine, Profiler};
use sigprof::profile::{LabelValue, Sample};

use super::{By, Counts, Recorder, Tally, is_function};
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

    /// Not a mere drop: the profile is what a program stops for, and its memory has to come back
    /// too.
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

    fn count(self, _options: &Options, by: By, names: &[&str]) -> Result<Counts> {
        let profile = self.0.stop()?;
        let samples = profile.samples().map(|sample| {
            let name = names.iter().position(|name| match by {
                By::Function => calls(&profile, sample, name),
                By::Thread => thread(&profile, sample) == Some(name),
            });
            (sample.values[0] as u64, name)
        });
        Ok(Counts::of(names.len(), samples))
    }
}

fn calls(profile: &sigprof::Profile, sample: Sample<'_>, function: &str) -> bool {
    sample.stack.iter().any(|&location| {
        profile.location(location).lines.iter().any(|line| {
            let name = profile.function(line.function).name;
            is_function(profile.string(name), function)
        })
    })
}

fn thread<'p>(profile: &'p sigprof::Profile, sample: Sample<'p>) -> Option<&'p str> {
    sample
        .labels
        .iter()
        .find_map(|label| match (profile.string(label.key), label.value) {
            ("thread", LabelValue::Str(name)) => Some(profile.string(name)),
            _ => None,
        })
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
