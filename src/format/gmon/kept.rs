//! The records of a gmon.out file as a profile, and what of them a profile still has.
//!
//! A bin is a stack of one frame, at its first address; an arc is one of two frames, callee and
//! caller; a basic block is one of one frame, again. Each kind has a sample type of its own. What
//! makes the profile the same records again stands in comments: the dimension, and the ranges of the
//! histograms.

use std::collections::BTreeMap;
use std::ops::Range;

use hashbrown::{HashMap, HashSet};

use super::dimension::{Dimension, NS_PER_S};
use super::executable::{Executable, mappings_of_file};
use super::histogram::{Histogram, overlap};
use super::records::{Arc, Block, Records};
use crate::error::Result;
use crate::format::{charge, invalid};
use crate::profile::{Location, LocationId, Mapping, MappingId, Profile, ValueType};

/// The sample type of arcs.
const CALLS: &str = "calls";
/// The sample type of basic blocks.
const BLOCKS: &str = "blocks";
/// More bins than any program has: those of a gigabyte of code by units of four bytes.
const MOST_BINS: usize = 1 << 28;
/// Bytes of memory that a sample takes, with its stack and a location of its own.
const SAMPLE_MEMORY: usize = 128 + 2 * size_of::<Location>();

/// Records as a profile. Addresses are those that the linker gave to the executable's code; the
/// executable is the file of this path, if there is one.
pub(super) fn profile(
    records: &Records,
    executable: Option<&str>,
    memory: &mut u64,
) -> Result<Profile> {
    let mut mappings = match executable {
        Some(path) => mappings_of_file(path)?,
        None => Vec::new(),
    };
    if mappings.is_empty() {
        // As pprof has it: the addresses are those of the file.
        mappings.push(Mapping {
            memory_limit: u64::MAX,
            ..Mapping::default()
        });
    }
    let mut builder = Builder::new(records, mappings);
    let arcs = records.arcs.len();
    builder.profile.reserve_stacks(arcs, 2 * arcs);
    for histogram in &records.histograms {
        builder.profile.comments.push(comment_of(histogram));
        for (bin, &count) in histogram.bins.iter().enumerate() {
            if count > 0 {
                let stack = [histogram.address_of(bin)];
                builder.push(stack, Column::Histogram, count, memory)?;
            }
        }
    }
    for arc in &records.arcs {
        builder.push([arc.to, arc.from], Column::Calls, arc.count, memory)?;
    }
    for block in records.blocks.iter().flatten() {
        builder.push([block.address], Column::Blocks, block.count, memory)?;
    }
    Ok(builder.profile)
}

#[derive(Clone, Copy, PartialEq)]
enum Column {
    Histogram,
    Calls,
    Blocks,
}

struct Builder {
    profile: Profile,
    locations: HashMap<u64, LocationId>,
    /// Units of time that a count has, in a histogram of time: a second by the rate.
    rate: Option<u32>,
    has_calls: bool,
}

impl Builder {
    fn new(records: &Records, mappings: Vec<Mapping>) -> Self {
        let Records {
            dimension,
            arcs,
            blocks,
            ..
        } = records;
        let rate = dimension.is_time().then_some(dimension.rate.max(1));
        let mut types = match rate {
            Some(_) => vec![
                ValueType::new("samples", "count"),
                ValueType::new("cpu", "nanoseconds"),
            ],
            None => {
                let unit = if dimension.is_memory() {
                    &dimension.name
                } else {
                    "count"
                };
                vec![ValueType::new(dimension.name.clone(), unit.to_owned())]
            }
        };
        let default = types.last().map(|t| t.r#type.to_string());
        let has_calls = !arcs.is_empty();
        if has_calls {
            types.push(ValueType::new(CALLS, "count"));
        }
        if blocks.is_some() {
            types.push(ValueType::new(BLOCKS, "count"));
        }
        let mut profile = Profile::new(types);
        profile.default_sample_type = default.unwrap_or_default();
        if let Some(rate) = rate {
            profile.period_type = ValueType::new("cpu", "nanoseconds");
            profile.period = (NS_PER_S + i64::from(rate) / 2) / i64::from(rate);
        }
        profile.comments.push(comment_of_dimension(dimension));
        for mapping in mappings {
            profile.push_mapping(mapping);
        }
        Self {
            profile,
            locations: HashMap::new(),
            rate,
            has_calls,
        }
    }

    fn push<const FRAMES: usize>(
        &mut self,
        stack: [u64; FRAMES],
        column: Column,
        count: u64,
        memory: &mut u64,
    ) -> Result<()> {
        charge(memory, SAMPLE_MEMORY)?;
        let too_large = || {
            invalid(format!(
                "the gmon.out file counts to {count}, which 64 bits with a sign do not hold"
            ))
        };
        let count = i64::try_from(count).map_err(|_| too_large())?;
        let mut values = vec![0; self.profile.sample_types().len()];
        let own = match self.rate {
            Some(_) => 2,
            None => 1,
        };
        let index = match column {
            Column::Histogram => 0,
            Column::Calls => own,
            Column::Blocks => own + usize::from(self.has_calls),
        };
        values[index] = count;
        if let (Column::Histogram, Some(rate)) = (column, self.rate) {
            let time = i128::from(count) * i128::from(NS_PER_S) / i128::from(rate);
            values[1] = i64::try_from(time).map_err(|_| too_large())?;
        }
        let stack = stack.map(|address| self.location(address));
        self.profile.push_sample(&stack, &values, &[]);
        Ok(())
    }

    fn location(&mut self, address: u64) -> LocationId {
        let profile = &mut self.profile;
        *self.locations.entry(address).or_insert_with(|| {
            let holds = |m: &Mapping| m.memory_start <= address && address < m.memory_limit;
            let mapping = profile.mappings().iter().position(holds);
            profile.push_location(Location {
                mapping: mapping.map(|index| MappingId(index as u32)),
                address,
                ..Location::default()
            })
        })
    }
}

/// The records that the profile was read from, if it was read from a gmon.out file and each of its
/// samples has its place in one.
pub(super) fn records(profile: &Profile, executable: &Executable) -> Option<Records> {
    let mut dimensions = profile
        .comments
        .iter()
        .filter_map(|c| dimension_of_comment(c));
    let dimension = dimensions.next()?;
    // Those of several files are equal, or they are no one file's.
    if dimensions.any(|other| other != dimension) {
        return None;
    }
    let position = |name: &str| {
        let mut types = profile.sample_types().iter();
        types.position(|t| t.r#type == name && t.unit == "count")
    };
    let (calls, blocks) = (position(CALLS), position(BLOCKS));
    let mut records = Records {
        dimension,
        histograms: histograms(profile)?,
        arcs: Vec::new(),
        blocks: blocks.map(|_| Vec::new()),
    };
    let by_start: BTreeMap<u64, usize> = (records.histograms.iter().enumerate())
        .filter(|(_, histogram)| !histogram.bins.is_empty())
        .map(|(index, histogram)| (histogram.addresses.start, index))
        .collect();
    let address = |id: &LocationId| {
        let location = profile.location(*id);
        match location.mapping {
            Some(_) => executable.link_address(location),
            None => Some(location.address),
        }
    };
    for sample in profile.samples() {
        let value = |index: usize| u64::try_from(sample.values[index]).ok();
        match sample.stack {
            [leaf] => {
                let address = address(leaf)?;
                let count = value(0)?;
                if count > 0 {
                    let (_, &index) = by_start.range(..=address).next_back()?;
                    let bin = records.histograms[index].bin_at(address)?;
                    *bin = bin.checked_add(count)?;
                }
                if let (Some(list), Some(index)) = (&mut records.blocks, blocks)
                    && (count == 0 || value(index)? > 0)
                {
                    let count = value(index)?;
                    list.push(Block { address, count });
                }
            }
            [callee, caller] => records.arcs.push(Arc {
                from: address(caller)?,
                to: address(callee)?,
                count: value(calls?)?,
            }),
            _ => return None,
        }
    }
    Some(records)
}

/// The histograms of the comments, their bins empty; `None` where some overlap.
fn histograms(profile: &Profile) -> Option<Vec<Histogram>> {
    let mut known = HashSet::new();
    let mut bins = 0usize;
    let mut ranges = Vec::new();
    for comment in &profile.comments {
        let Some(range) = range_of_comment(comment) else {
            continue;
        };
        // Profiles of one program that were merged say the same.
        if known.insert(range.clone()) {
            bins = bins
                .checked_add(range.bins)
                .filter(|bins| *bins <= MOST_BINS)?;
            ranges.push(range);
        }
    }
    let histogram = |range: BinRange| Histogram {
        addresses: range.addresses,
        bins: vec![0; range.bins],
    };
    let histograms: Vec<_> = ranges.into_iter().map(histogram).collect();
    overlap(&histograms).is_none().then_some(histograms)
}

/// What the comments begin with.
const COUNTS: &str = "gmon.out counts: ";
const HISTOGRAM: &str = "gmon.out histogram: ";

/// `100 (0x73) in seconds`: the rate, the abbreviation and the name of the dimension.
fn comment_of_dimension(dimension: &Dimension) -> String {
    let Dimension {
        name,
        abbreviation,
        rate,
    } = dimension;
    format!("{COUNTS}{rate} ({abbreviation:#04x}) in {name}")
}

fn dimension_of_comment(comment: &str) -> Option<Dimension> {
    let (rate, rest) = comment.strip_prefix(COUNTS)?.split_once(" (0x")?;
    let (abbreviation, name) = rest.split_once(") in ")?;
    Some(Dimension {
        name: name.to_owned(),
        abbreviation: u8::from_str_radix(abbreviation, 16).ok()?,
        rate: rate.parse().ok()?,
    })
}

/// `0x401000 to 0x402000 in 1024 bins`.
fn comment_of(histogram: &Histogram) -> String {
    let Range { start, end } = histogram.addresses;
    let bins = histogram.bins.len();
    format!("{HISTOGRAM}{start:#x} to {end:#x} in {bins} bins")
}

/// Where a histogram's bins are.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct BinRange {
    addresses: Range<u64>,
    bins: usize,
}

fn range_of_comment(comment: &str) -> Option<BinRange> {
    let (start, rest) = comment.strip_prefix(HISTOGRAM)?.split_once(" to ")?;
    let (end, bins) = rest.strip_suffix(" bins")?.split_once(" in ")?;
    let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let addresses = address(start)?..address(end)?;
    let bins: u32 = bins.parse().ok()?;
    let code = addresses.end.checked_sub(addresses.start)?;
    (u64::from(bins) <= code).then_some(BinRange {
        addresses,
        bins: bins as usize,
    })
}
