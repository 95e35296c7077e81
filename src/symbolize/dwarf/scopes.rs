//! Which function an address is in, and which calls in that function were inlined there.

use gimli::UnitOffset;

use super::lines::Position;
use super::{Slice, UnitRef, Value};

/// How many bytes are read between two reports of progress.
const PROGRESS_STEP: usize = 1 << 20;

/// A function or an inlined call that covers an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// The entry that says so.
    pub(super) entry: UnitOffset,
    /// For an inlined call, where it stands in the enclosing scope.
    pub(super) called_from: Option<Position>,
}

/// The scopes of each address of a unit, outermost first; none where no function has it.
///
/// `addresses` is sorted. `progress` is told now and then how many more bytes have been read.
pub(super) fn find(
    unit: UnitRef<'_, '_>,
    addresses: &[u64],
    mut progress: impl FnMut(usize),
) -> gimli::Result<Vec<Vec<Scope>>> {
    let mut chains = vec![Vec::<Scope>::new(); addresses.len()];
    // The entries above the current one that cover some address: their depth, and themselves.
    let mut open = Vec::<(isize, UnitOffset)>::new();
    let mut reported = 0;
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let entry = entries.next_offset();
        let depth = entries.next_depth();
        if entry.0 - reported >= PROGRESS_STEP {
            progress(entry.0 - reported);
            reported = entry.0;
        }
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        while open.last().is_some_and(|&(above, _)| above >= depth) {
            open.pop();
        }
        let is_function = abbreviation.tag() == gimli::DW_TAG_subprogram;
        let is_call = abbreviation.tag() == gimli::DW_TAG_inlined_subroutine && !open.is_empty();
        if !is_function && !is_call {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let mut attributes = Attributes::default();
        for &specification in abbreviation.attributes() {
            attributes.take(unit, entries.read_attribute(specification)?)?;
        }
        let scope = Scope {
            entry,
            called_from: match is_call {
                true => attributes.called_from,
                false => None,
            },
        };
        let enclosing = open.last().map(|&(_, entry)| entry);
        let mut covers = false;
        attributes.each_range(unit, |range| {
            let first = addresses.partition_point(|&address| address < range.begin);
            let count = addresses[first..].partition_point(|&address| address < range.end);
            for chain in &mut chains[first..first + count] {
                // Well-formed entries nest. Of two functions with the same code, and of two calls at the same
                // depth, the first is taken.
                let fits = match is_function {
                    true => chain.is_empty(),
                    false => chain.last().map(|scope| scope.entry) == enclosing,
                };
                if fits {
                    chain.push(scope);
                    covers = true;
                }
            }
        })?;
        if covers {
            open.push((depth, entry));
        }
    }
    progress(unit.header.length_including_self() - reported);
    Ok(chains)
}

/// What matters of an entry's attributes.
#[derive(Default)]
struct Attributes<'d> {
    low: Option<u64>,
    high: Option<u64>,
    size: Option<u64>,
    ranges: Option<Value<'d>>,
    called_from: Option<Position>,
}

impl<'d> Attributes<'d> {
    fn take(
        &mut self,
        unit: UnitRef<'_, 'd>,
        attribute: gimli::Attribute<Slice<'d>>,
    ) -> gimli::Result<()> {
        match attribute.name() {
            gimli::DW_AT_low_pc => self.low = unit.attr_address(attribute.value())?,
            gimli::DW_AT_high_pc => match attribute.udata_value() {
                Some(size) => self.size = Some(size),
                None => self.high = unit.attr_address(attribute.value())?,
            },
            gimli::DW_AT_ranges => self.ranges = Some(attribute.value()),
            gimli::DW_AT_call_file => {
                if let gimli::AttributeValue::FileIndex(file) = attribute.value() {
                    self.call().file = file;
                }
            }
            gimli::DW_AT_call_line => self.call().line = small(&attribute),
            gimli::DW_AT_call_column => self.call().column = small(&attribute),
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self) -> &mut Position {
        self.called_from.get_or_insert_default()
    }

    fn each_range(
        &self,
        unit: UnitRef<'_, 'd>,
        mut with: impl FnMut(gimli::Range),
    ) -> gimli::Result<()> {
        // Linkers move the code that they drop to address 0 (or wrap its end around), where no code ever is.
        let mut with = |range: gimli::Range| {
            if range.begin != 0 && range.begin < range.end {
                with(range);
            }
        };
        if let Some(ranges) = &self.ranges {
            if let Some(mut ranges) = unit.attr_ranges(*ranges)? {
                while let Some(range) = ranges.next()? {
                    with(range);
                }
            }
        } else if let Some(begin) = self.low {
            let end = match self.size {
                Some(size) => begin.wrapping_add(size),
                None => self.high.unwrap_or(begin),
            };
            with(gimli::Range { begin, end });
        }
        Ok(())
    }
}

pub(super) fn small(attribute: &gimli::Attribute<Slice<'_>>) -> u32 {
    attribute
        .udata_value()
        .and_then(|value| u32::try_from(value).ok())
        .unwrap_or(0)
}
