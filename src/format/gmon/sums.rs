//! `Profile` -> [`Records`]: what of a profile lies in the executable.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::arcs::Calls;
use super::dimension::{Dimension, Scale};
use super::executable::Executable;
use super::histogram::{Histogram, histograms};
use super::kept;
use super::records::{Block, Records};
use crate::format::WriteError;
use crate::format::cursor::Layout;
use crate::profile::{FunctionId, Profile, StackId};

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
    let block = match dimension.is_time() {
        true => CODE_OF_HISTOGRAM,
        false => CODE_OF_LARGE_BINS,
    };
    let mut histograms = histograms(sums.counts(scale), block);
    if histograms.is_empty() {
        // gprof takes no file without one for a profile.
        let first = executable.first_address() / block * block;
        histograms.push(Histogram::empty(first..first.saturating_add(block)));
    }
    let remark = sums.remark(executable.name());
    let mut blocks = sums.blocks;
    if has_blocks {
        for (address, count) in sums.samples {
            let sum = blocks.entry(address).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    let has_blocks = has_blocks || !blocks.is_empty();
    let blocks = blocks
        .into_iter()
        .map(|(address, count)| Block { address, count });
    let records = Records {
        dimension,
        layout: Layout::NATIVE,
        histograms,
        blocks: has_blocks.then(|| blocks.collect()),
        arcs: sums.calls,
    };
    Ok((records, remark))
}

/// How much code a histogram is of: gprof compares each with all others, so that there are to be
/// few, and no file is much larger than the code that was met.
const CODE_OF_HISTOGRAM: u64 = 4096;
/// The same where bins are so large that each needs many histograms, as those of memory may be.
const CODE_OF_LARGE_BINS: u64 = 64;

/// What of a profile lies in the executable, by the linker's addresses.
struct Sums {
    /// What was spent at each address itself, by where that is counted.
    values: BTreeMap<u64, i64>,
    /// How many samples were taken there.
    samples: BTreeMap<u64, u64>,
    /// Counts of basic blocks that were read from another file.
    blocks: BTreeMap<u64, u64>,
    /// The calls that samples were taken in, and those that were read.
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
        let mut blocks = BTreeMap::<_, u64>::new();
        let (mut total, mut elsewhere) = (0i64, 0i64);
        for (i, of_stack) in by_stack.iter().enumerate() {
            let OfStack { value, samples, .. } = *of_stack;
            total = total.saturating_add(value);
            let leaf = profile.stacks().get(StackId(i as u32)).first();
            match leaf.filter(|leaf| addresses[leaf.index()].is_some()) {
                Some(leaf) => {
                    let sum = &mut by_leaf[leaf.index()];
                    *sum = (sum.0.saturating_add(value), sum.1.saturating_add(samples));
                    if let (Some(address), 1..) = (addresses[leaf.index()], of_stack.blocks) {
                        let sum = blocks.entry(address).or_default();
                        *sum = sum.saturating_add(of_stack.blocks);
                    }
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
        let by_stack = by_stack.into_iter();
        let by_stack = by_stack
            .map(|of| of.samples.saturating_add(of.calls))
            .collect();
        let entries = entry_of_functions(profile, &addresses);
        Ok(Self {
            values,
            samples,
            blocks,
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

/// What the samples of a stack have.
#[derive(Clone, Copy, Debug, Default)]
struct OfStack {
    /// The sum of their values.
    value: i64,
    /// How many they are.
    samples: u64,
    /// Calls and basic blocks, where they come from a file of that kind.
    calls: u64,
    blocks: u64,
}

/// The sums of each stack's values, those of the histogram being at `index`.
fn of_stacks(profile: &Profile, index: usize) -> Result<Vec<OfStack>, WriteError> {
    let [calls, blocks] = [kept::CALLS, kept::BLOCKS].map(|name| kept::column(profile, name));
    let is_of_a_file = |i: usize| Some(i) == calls || Some(i) == blocks;
    let mut types = profile.sample_types().iter().enumerate();
    let count_index = types
        .find(|(i, t)| t.unit == "count" && !is_of_a_file(*i))
        .map(|(i, _)| i);
    // A file of other values than counts has a sample for each of them, and none for each call.
    let uncounted = |values: &[i64]| i64::from(values[index] != 0 || calls.or(blocks).is_none());
    let mut sums = vec![OfStack::default(); profile.stacks().len()];
    for (stack, values) in profile.stack_values() {
        let at = |index: Option<usize>| index.map_or(0, |index| values[index]);
        let samples = count_index.map_or_else(|| uncounted(values), |index| values[index]);
        let counts = [samples, at(calls), at(blocks)].map(u64::try_from);
        let ([Ok(samples), Ok(calls), Ok(blocks)], 0..) = (counts, values[index]) else {
            return Err(WriteError::unfit(
                "a gmon.out file holds positive values, and this profile has negative ones: write \
                 it as .pb.gz",
            ));
        };
        let sum = &mut sums[stack.index()];
        sum.value = sum.value.saturating_add(values[index]);
        sum.samples = sum.samples.saturating_add(samples);
        sum.calls = sum.calls.saturating_add(calls);
        sum.blocks = sum.blocks.saturating_add(blocks);
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
