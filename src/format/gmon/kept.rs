//! The records of a gmon.out file as a profile, and what of them a profile still has.
//!
//! A bin is a stack of one frame, at its first address; an arc is one of two frames, callee and
//! caller; a basic block is one of one frame, again. Each kind has a sample type of its own. What
//! makes the profile the same records again stands in comments: the dimension, and the ranges of the
//! histograms.

use std::collections::BTreeMap;
use std::ops::Range;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use super::dimension::{Dimension, NS_PER_S};
use super::executable::{Executable, mappings_of_file};
use super::histogram::{Histogram, overlap};
use super::records::{Arc, Block, Records};
use crate::error::Result;
use crate::format::cursor::Layout;
use crate::format::{charge, invalid};
use crate::profile::{Location, LocationId, Mapping, MappingId, Profile, ValueType};

/// The sample type of arcs.
pub(super) const CALLS: &str = "calls";
/// The sample type of basic blocks.
pub(super) const BLOCKS: &str = "blocks";
/// More bins than any program has: those of a gigabyte of code by units of four bytes.
const MOST_BINS: usize = 1 << 28;
/// Bytes of memory that a sample takes beside its values, with a stack of two frames in tables.
const SAMPLE_MEMORY: usize = 64;
/// The same of a location, in lists that grow by doubling.
const LOCATION_MEMORY: usize = 2 * size_of::<Location>() + 32;

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
    /// What a count is of the dimension's unit, where it is not one: numerator and denominator.
    unit_of_count: Option<(i64, u32)>,
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
        let rate = dimension.rate.max(1);
        let unit_of_count = match dimension.is_time() {
            true => Some((NS_PER_S, rate)),
            false => (rate > 1).then_some((1, rate)),
        };
        let mut types = match dimension.is_time() {
            true => vec![ValueType::new("cpu", "nanoseconds")],
            false => {
                let unit = if dimension.is_memory() {
                    &dimension.name
                } else {
                    "count"
                };
                // No name is to be that of another column.
                let name = match dimension.name.as_str() {
                    name @ ("samples" | CALLS | BLOCKS) => format!("{name} of the histogram"),
                    name => name.to_owned(),
                };
                vec![ValueType::new(name, unit.to_owned())]
            }
        };
        if unit_of_count.is_some() {
            types.insert(0, ValueType::new("samples", "count"));
        }
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
        if dimension.is_time() {
            profile.period_type = ValueType::new("cpu", "nanoseconds");
            profile.period = (NS_PER_S + i64::from(rate) / 2) / i64::from(rate);
        }
        profile.comments.push(comment_of_dimension(dimension));
        profile.comments.extend(comment_of_layout(records.layout));
        for mapping in mappings {
            profile.push_mapping(mapping);
        }
        Self {
            profile,
            locations: HashMap::new(),
            unit_of_count,
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
        let width = self.profile.sample_types().len();
        charge(memory, SAMPLE_MEMORY + 2 * width * size_of::<i64>())?;
        let too_large = || {
            invalid(format!(
                "the gmon.out file counts to {count}, which 64 bits with a sign do not hold"
            ))
        };
        let count = i64::try_from(count).map_err(|_| too_large())?;
        let mut values = vec![0; width];
        let own = 1 + usize::from(self.unit_of_count.is_some());
        let index = match column {
            Column::Histogram => 0,
            Column::Calls => own,
            Column::Blocks => own + usize::from(self.has_calls),
        };
        values[index] = count;
        if let (Column::Histogram, Some((units, counts))) = (column, self.unit_of_count) {
            let value = i128::from(count) * i128::from(units) / i128::from(counts);
            values[1] = i64::try_from(value).map_err(|_| too_large())?;
        }
        let mut locations = [LocationId::default(); FRAMES];
        for (location, address) in locations.iter_mut().zip(stack) {
            *location = self.location(address, memory)?;
        }
        self.profile.push_sample(&locations, &values, &[]);
        Ok(())
    }

    fn location(&mut self, address: u64, memory: &mut u64) -> Result<LocationId> {
        let profile = &mut self.profile;
        let place = match self.locations.entry(address) {
            Entry::Occupied(known) => return Ok(*known.get()),
            Entry::Vacant(place) => place,
        };
        charge(memory, LOCATION_MEMORY)?;
        let holds = |m: &Mapping| m.memory_start <= address && address < m.memory_limit;
        let mapping = profile.mappings().iter().position(holds);
        let location = profile.push_location(Location {
            mapping: mapping.map(|index| MappingId(index as u32)),
            address,
            ..Location::default()
        });
        Ok(*place.insert(location))
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
    let mut layouts = profile.comments.iter().filter_map(|c| layout_of_comment(c));
    let layout = layouts.next().unwrap_or(Layout::NATIVE);
    if layouts.any(|other| other != layout) {
        return None;
    }
    let [calls, blocks] = [CALLS, BLOCKS].map(|name| column(profile, name));
    let mut records = Records {
        layout,
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
    // Words of this size hold its addresses, or it is none of its files'.
    let most = match layout.address_size {
        4 => u64::from(u32::MAX),
        _ => u64::MAX,
    };
    let of_arcs = records.arcs.iter().flat_map(|arc| [arc.from, arc.to]);
    let of_blocks = (records.blocks.iter().flatten()).flat_map(|b| [b.address, b.count]);
    let of_histograms = records.histograms.iter().map(|h| h.addresses.end);
    let mut all = of_arcs.chain(of_blocks).chain(of_histograms);
    all.all(|address| address <= most).then_some(records)
}

/// The column of arcs or of basic blocks in a profile that was read from a file of this kind, or
/// made of such ones.
pub(super) fn column(profile: &Profile, name: &str) -> Option<usize> {
    let is_of_a_file = |comment: &String| dimension_of_comment(comment).is_some();
    profile.comments.iter().find(|c| is_of_a_file(c))?;
    let mut types = profile.sample_types().iter();
    types.position(|t| t.r#type == name && t.unit == "count")
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
const WORDS: &str = "gmon.out words: ";

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

/// `words of 32 bits, big-endian`, where they are not this machine's.
fn comment_of_layout(layout: Layout) -> Option<String> {
    let bits = 8 * layout.address_size;
    let order = match layout.is_big_endian {
        true => "big",
        false => "little",
    };
    (layout != Layout::NATIVE).then(|| format!("{WORDS}{bits} bits, {order}-endian"))
}

fn layout_of_comment(comment: &str) -> Option<Layout> {
    let of = |layout: &Layout| comment_of_layout(*layout).as_deref() == Some(comment);
    Layout::ALL.into_iter().find(of)
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
