//! The functions of a unit, and the calls that were inlined in them, at wanted addresses.

use gimli::{Abbreviation, EntriesRaw, Range};

use super::dwarf::{AttributeValue, Failure, Reader, Result, Unit};
use super::ranges::Ranges;
use super::units::Units;
use super::wanted::Wanted;

/// So many calls that were inlined in each other are read; those further in are left out.
const MOST_INLINED: usize = 256;
/// An entry may have its name in another, and so on: so often.
const MOST_ORIGINS: usize = 16;

/// A function, or a call of one that was inlined.
#[derive(Debug)]
pub(super) struct Call<'d> {
    /// The symbol or, failing that, the name in the source; empty where there is none.
    pub(super) name: Reader<'d>,
    is_inlined: bool,
    pub(super) site: Site,
}

/// Where an inlined call is in the source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Site {
    /// In the unit's table of lines.
    pub(super) file: Option<u64>,
    /// 0 if unknown.
    pub(super) line: u32,
    /// 0 if unknown.
    pub(super) column: u32,
}

/// What a unit has at wanted addresses.
#[derive(Debug, Default)]
pub(super) struct Calls<'d> {
    calls: Vec<Call<'d>>,
    /// An address, by its place among the wanted ones, and a call that is going on there.
    at: Vec<(usize, usize)>,
}

/// An entry whose children are being read.
struct Open {
    depth: isize,
    /// The first of the addresses it has.
    begin: usize,
    /// How many entries are around it in its function.
    inlined: usize,
}

struct Walk<'w, 'd> {
    units: &'w Units<'d>,
    unit: &'w Unit<'d>,
    wanted: &'w Wanted,
    found: Calls<'d>,
    /// From outside to inside.
    open: Vec<Open>,
    /// The places of the addresses that each of them has, in ascending order, one after the other.
    places: Vec<usize>,
    /// Those of the entry that is being read.
    found_places: Vec<usize>,
}

/// What the attributes of an entry say.
#[derive(Default)]
struct Attributes<'d> {
    ranges: Ranges<'d>,
    linkage_name: Option<AttributeValue<'d>>,
    name: Option<AttributeValue<'d>>,
    /// The entry that has what this one lacks.
    origin: Option<AttributeValue<'d>>,
    site: Site,
}

impl<'d> Calls<'d> {
    /// Reads a unit. What is damaged in it ends the reading, or costs a name.
    pub(super) fn of(units: &Units<'d>, unit: &Unit<'d>, wanted: &Wanted) -> Self {
        let mut walk = Walk {
            units,
            unit,
            wanted,
            found: Self::default(),
            open: Vec::new(),
            places: Vec::new(),
            found_places: Vec::new(),
        };
        units.check(walk.all());
        let mut found = walk.found;
        // Calls stay in their order, from outside to inside.
        found.at.sort_by_key(|&(place, _)| place);
        found
    }

    /// The calls at each address, by the address's place, outermost first.
    pub(super) fn by_place(
        &self,
    ) -> impl Iterator<Item = (usize, impl Iterator<Item = &Call<'d>>)> {
        self.at.chunk_by(|a, b| a.0 == b.0).map(|group| {
            let calls = group.iter().map(|&(_, call)| &self.calls[call]);
            // Of two functions that the linker made one, the first.
            let mut functions = 0;
            let of_first = calls.take_while(move |call| {
                functions += usize::from(!call.is_inlined);
                functions == 1
            });
            (group[0].0, of_first)
        })
    }
}

impl<'d> Walk<'_, 'd> {
    fn all(&mut self) -> Result<()> {
        let mut entries = self.unit.entries_raw(None)?;
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            while let Some(open) = self.open.pop_if(|open| open.depth >= depth) {
                self.places.truncate(open.begin);
            }
            self.units
                .effort
                .take(1 + abbreviation.attributes().len())?;
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {
                    let entry = Attributes::read(&mut entries, abbreviation, self.unit)?;
                    self.function(depth, &entry)?;
                }
                gimli::DW_TAG_inlined_subroutine if self.is_in_any() => {
                    let entry = Attributes::read(&mut entries, abbreviation, self.unit)?;
                    self.inlined(depth, &entry)?;
                }
                _ => entries.skip_attributes(abbreviation.attributes())?,
            }
        }
        Ok(())
    }

    /// Whether the entry around has any wanted address.
    fn is_in_any(&self) -> bool {
        let around = self.open.last();
        around.is_some_and(|open| open.begin < self.places.len())
    }

    fn function(&mut self, depth: isize, entry: &Attributes<'d>) -> Result<()> {
        self.enter(depth, 0, entry, None)
    }

    fn inlined(&mut self, depth: isize, entry: &Attributes<'d>) -> Result<()> {
        let (begin, inlined) = match self.open.last() {
            Some(around) => (around.begin, around.inlined + 1),
            None => return Ok(()),
        };
        if inlined > MOST_INLINED {
            let why = "calls are inlined in each other more often than is read";
            self.units
                .check::<()>(Err(Failure::new(".debug_info", why)));
            return Ok(());
        }
        self.enter(depth, inlined, entry, Some(begin))
    }

    /// Opens an entry, and keeps it where it has a wanted address: one of those that the entry
    /// around has, where there is one, whose places begin there.
    fn enter(
        &mut self,
        depth: isize,
        inlined: usize,
        entry: &Attributes<'d>,
        around: Option<usize>,
    ) -> Result<()> {
        if self.units.check(self.find_places(entry, around)).is_none() {
            self.found_places.clear();
        }
        let begin = self.places.len();
        let call = self.found.calls.len();
        let at = self.found_places.iter().map(|&place| (place, call));
        self.found.at.extend(at);
        self.places.append(&mut self.found_places);
        self.open.push(Open {
            depth,
            begin,
            inlined,
        });
        if begin == self.places.len() {
            return Ok(());
        }
        let name = name(self.units, self.unit, entry, MOST_ORIGINS);
        let name = self.units.check(name).flatten().unwrap_or_default();
        self.found.calls.push(Call {
            name,
            is_inlined: inlined > 0,
            site: entry.site,
        });
        self.units.effort.take(name.len())
    }

    /// Finds the places of the wanted addresses that an entry has.
    fn find_places(&mut self, entry: &Attributes<'d>, around: Option<usize>) -> Result<()> {
        let (units, found) = (self.units, &mut self.found_places);
        let around = around.map(|begin| &self.places[begin..]);
        let is_around =
            |place: &usize| around.is_none_or(|places| places.binary_search(place).is_ok());
        let mut outcome = Ok(());
        let each = |range: Range| {
            if units.is_kept(range.begin) && outcome.is_ok() {
                let places = self.wanted.places_in(range.begin, range.end);
                outcome = units.effort.take(places.len());
                found.extend(places.filter(is_around));
            }
        };
        let ranges = &entry.ranges;
        ranges.for_each(&units.dwarf, self.unit, &units.effort, each)?;
        // Ranges come in any order, and may overlap.
        if !found.is_sorted_by(|a, b| a < b) {
            found.sort_unstable();
            found.dedup();
        }
        outcome
    }
}

/// The name of an entry, by itself or by the entries it refers to, of which so many are read.
fn name<'d>(
    units: &Units<'d>,
    unit: &Unit<'d>,
    entry: &Attributes<'d>,
    most: usize,
) -> Result<Option<Reader<'d>>> {
    match (entry.linkage_name.or(entry.name), entry.origin) {
        (Some(name), _) => Ok(Some(units.dwarf.attr_string(unit, name)?)),
        (None, Some(origin)) if most > 0 => name_of(units, unit, origin, most - 1),
        _ => Ok(None),
    }
}

/// The name of the entry that an attribute refers to.
fn name_of<'d>(
    units: &Units<'d>,
    unit: &Unit<'d>,
    origin: AttributeValue<'d>,
    most: usize,
) -> Result<Option<Reader<'d>>> {
    let in_other = |units: &Units<'d>, entry| {
        let (unit, offset) = units.unit_with(entry)?;
        name_at(units, &unit, offset, most)
    };
    match origin {
        AttributeValue::UnitRef(offset) => name_at(units, unit, offset, most),
        AttributeValue::DebugInfoRef(entry) => in_other(units, entry),
        AttributeValue::DebugInfoRefSup(entry) => match units.supplementary() {
            // What is damaged there is not damaged here.
            Some(units) => Ok(units.check(in_other(units, entry)).flatten()),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

fn name_at<'d>(
    units: &Units<'d>,
    unit: &Unit<'d>,
    offset: gimli::UnitOffset,
    most: usize,
) -> Result<Option<Reader<'d>>> {
    let mut entries = unit.entries_raw(Some(offset))?;
    let abbreviation = entries.read_abbreviation()?;
    let none = || gimli::Error::NoEntryAtGivenOffset(offset.0 as u64);
    let abbreviation = abbreviation.ok_or_else(none)?;
    units.effort.take(abbreviation.attributes().len())?;
    let entry = Attributes::read(&mut entries, abbreviation, unit)?;
    name(units, unit, &entry, most)
}

impl<'d> Attributes<'d> {
    fn read(
        entries: &mut EntriesRaw<'_, Reader<'d>>,
        abbreviation: &Abbreviation,
        unit: &Unit<'d>,
    ) -> Result<Self> {
        let mut all = Self::default();
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            let (name, value) = (attribute.name(), attribute.value());
            let number = || attribute.udata_value().unwrap_or(0) as u32;
            match name {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                    all.linkage_name = Some(value)
                }
                gimli::DW_AT_name => all.name = Some(value),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    all.origin = Some(value)
                }
                gimli::DW_AT_call_file => {
                    if let AttributeValue::FileIndex(file) = value {
                        // Before DWARF 5, 0 stands for none.
                        let is_any = file > 0 || unit.header.version() >= 5;
                        all.site.file = is_any.then_some(file);
                    }
                }
                gimli::DW_AT_call_line => all.site.line = number(),
                gimli::DW_AT_call_column => all.site.column = number(),
                _ => all.ranges.add(name, value),
            }
        }
        Ok(all)
    }
}
