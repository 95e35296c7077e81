//! `Profile` -> [`Records`]: what of a profile lies in the executable.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::arcs::Calls;
use super::dimension::{Dimension, Scale};
use super::executable::Executable;
use super::histogram::{BIN, Histogram, histograms};
use super::records::{Block, Records};
use crate::format::WriteError;
use crate::profile::{FunctionId, Profile, StackId, ValueType};

/// The records of a profile, and a sentence that says how much of the profile they hold.
pub(super) fn records(
    profile: &Profile,
    executable: &Executable,
    has_blocks: bool,
) -> Result<(Records<Calls>, String), WriteError> {
    let index = profile.default_sample_index();
    if index >= profile.sample_types().len() {
        return Err(WriteError::unfit(
            "a gmon.out file has values by address, and this profile has no sample types",
        ));
    }
    let sums = Sums::of(profile, index, executable)?;
    let (dimension, scale) = Dimension::of(profile, index);
    let mut histograms = histograms(sums.counts(scale));
    if histograms.is_empty() {
        // gprof takes no file without one for a profile.
        let first = executable.first_address();
        histograms.push(Histogram {
            addresses: first..first.saturating_add(BIN),
            bins: vec![0],
        });
    }
    let remark = sums.remark(executable.name());
    let blocks = (sums.samples.iter()).map(|(&address, &count)| Block { address, count });
    let records = Records {
        dimension,
        histograms,
        blocks: has_blocks.then(|| blocks.collect()),
        arcs: sums.calls,
    };
    Ok((records, remark))
}

/// What of a profile lies in the executable, by the linker's addresses.
struct Sums {
    /// What was spent at each address itself, by where that is counted.
    values: BTreeMap<u64, i64>,
    /// How many samples were taken there.
    samples: BTreeMap<u64, u64>,
    /// The calls that samples were taken in.
    calls: Calls,
    /// All that was spent, and what of that was spent elsewhere.
    total: i64,
    elsewhere: i64,
}

impl Sums {
    fn of(profile: &Profile, index: usize, executable: &Executable) -> Result<Self, WriteError> {
        let addresses: Vec<Option<u64>> = profile
            .locations()
            .iter()
            .map(|location| executable.link_address(location))
            .collect();
        let by_stack = of_stacks(profile, index)?;
        // By location first, of which there are few beside the stacks.
        let mut by_leaf = vec![(0i64, 0u64); addresses.len()];
        let (mut total, mut elsewhere) = (0i64, 0i64);
        for (i, &(value, samples)) in by_stack.iter().enumerate() {
            total = total.saturating_add(value);
            let leaf = profile.stacks().get(StackId(i as u32)).first();
            match leaf.filter(|leaf| addresses[leaf.index()].is_some()) {
                Some(leaf) => {
                    let sum = &mut by_leaf[leaf.index()];
                    *sum = (sum.0.saturating_add(value), sum.1.saturating_add(samples));
                }
                None => elsewhere = elsewhere.saturating_add(value),
            }
        }
        let mut values = BTreeMap::<_, i64>::new();
        let mut samples = BTreeMap::<_, u64>::new();
        for (address, (value, count)) in addresses.iter().zip(by_leaf) {
            let Some(address) = *address else { continue };
            let sum = values.entry(executable.counted_at(address)).or_default();
            *sum = sum.saturating_add(value);
            let sum = samples.entry(address).or_default();
            *sum = sum.saturating_add(count);
        }
        samples.retain(|_, samples| *samples > 0);
        let by_stack = by_stack.into_iter().map(|(_, samples)| samples).collect();
        let entries = entry_of_functions(profile, &addresses);
        Ok(Self {
            values,
            samples,
            calls: Calls::of(profile, by_stack, &addresses, &entries),
            total,
            elsewhere,
        })
    }

    /// Counts of bins, in the order of their addresses.
    fn counts(&self, scale: Scale) -> impl Iterator<Item = (u64, u64)> {
        let addresses = self.values.keys().copied();
        let counts = scale.counts(self.values.values().copied());
        addresses.zip(counts).filter(|&(_, count)| count > 0)
    }

    fn remark(&self, executable: &str) -> String {
        let share = match self.total {
            0 => 0.0,
            total => 100.0 * self.elsewhere as f64 / total as f64,
        };
        format!(
            "gprof knows `{executable}` alone: {share:.1} % of the profile, which is in other objects \
             or in no code, is left out"
        )
    }
}

/// The sums of each stack's values at `index`, and how many samples it has.
fn of_stacks(profile: &Profile, index: usize) -> Result<Vec<(i64, u64)>, WriteError> {
    let is_count = |t: &ValueType| t.unit == "count";
    let count_index = profile.sample_types().iter().position(is_count);
    let mut sums = vec![(0i64, 0u64); profile.stacks().len()];
    for (stack, values) in profile.stack_values() {
        let count = count_index.map_or(1, |index| values[index]);
        let (Ok(count), 0..) = (u64::try_from(count), values[index]) else {
            return Err(WriteError::unfit(
                "a gmon.out file holds positive values, and this profile has negative ones: write \
                 it as .pb.gz",
            ));
        };
        let (value, samples) = &mut sums[stack.index()];
        *value = value.saturating_add(values[index]);
        *samples = samples.saturating_add(count);
    }
    Ok(sums)
}

/// By location: one address in its function, the same for all locations of a function whose name is
/// known, so that calls of the function from one place are one arc.
fn entry_of_functions(profile: &Profile, addresses: &[Option<u64>]) -> Vec<Option<u64>> {
    let function = |i: usize| {
        profile.locations()[i]
            .lines
            .last()
            .map(|line| line.function)
    };
    let mut entries: HashMap<FunctionId, u64> = HashMap::new();
    for (i, address) in addresses.iter().enumerate() {
        if let (Some(function), Some(address)) = (function(i), *address) {
            let entry = entries.entry(function).or_insert(address);
            *entry = address.min(*entry);
        }
    }
    let entry = |(i, address): (usize, &Option<u64>)| {
        let address = (*address)?;
        let known = function(i).and_then(|function| entries.get(&function).copied());
        Some(known.unwrap_or(address))
    };
    addresses.iter().enumerate().map(entry).collect()
}
