//! The units that the wanted addresses lie in.

use std::sync::Arc;

use addr2line::gimli::{
    Abbreviations, DW_AT_high_pc, DW_AT_low_pc, DW_AT_ranges, DebugAbbrev, DebugAbbrevOffset,
    DebugInfoOffset, Dwarf, LittleEndian, Reader as _, Result, Section as _, Unit, UnitHeader,
    UnitOffset, UnitType,
};
use hashbrown::{HashMap, HashSet};

use super::abbreviations::{self, NO_ATTRIBUTE};
use super::debug_info::Reader;
use super::partial_units;
use super::wanted::Wanted;

/// So many declarations are read in search of the one of a unit's first entry. It is the first of
/// its table, except where `dwz` wrote it.
const MOST_DECLARATIONS: usize = 64;

/// Parses the abbreviations of all units, each table once: units share them, as Rust's do.
pub(super) fn take_all(dwarf: &mut Dwarf<Reader>) {
    let mut tables = HashSet::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        tables.insert(header.debug_abbrev_offset());
    }
    for table in tables {
        parse(dwarf, table);
    }
}

/// Parses the abbreviations of the units that may have to do with the wanted addresses, and has
/// addr2line leave out the others, whose abbreviations and line tables take time and memory.
/// Answers whether there are others.
///
/// What is left in may refer to what is left out, rarely; addr2line then has an error.
pub(super) fn take_wanted(dwarf: &mut Dwarf<Reader>, wanted: &Wanted) -> bool {
    let Ok(listed) = listed_units(dwarf, wanted) else {
        take_all(dwarf);
        return false;
    };
    // Units that refer to each other share a table, as all of one object file do.
    let mut tables: HashMap<_, bool> = HashMap::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let is_needed = tables.entry(header.debug_abbrev_offset()).or_default();
        let is_listed = |offset| listed.contains(&offset);
        *is_needed = *is_needed
            || header.debug_info_offset().is_some_and(is_listed)
            || !lies_elsewhere(dwarf, header, wanted).unwrap_or(false);
    }
    // A unit whose first entry has no abbreviation is left out.
    let none = Arc::new(Abbreviations::default());
    let mut is_any_left_out = false;
    for (table, is_needed) in tables {
        if is_needed {
            parse(dwarf, table);
        } else {
            let cache = &mut dwarf.abbreviations_cache;
            cache.set::<Reader>(table, Arc::clone(&none));
            is_any_left_out = true;
        }
    }
    is_any_left_out
}

/// Parses a table of abbreviations. If it is damaged, whoever uses it says so.
fn parse(dwarf: &mut Dwarf<Reader>, table: DebugAbbrevOffset) {
    let section = *dwarf.debug_abbrev.reader();
    if let Ok(abbreviations) = partial_units::without_lines(section, table) {
        let cache = &mut dwarf.abbreviations_cache;
        cache.set::<Reader>(table, Arc::new(abbreviations));
    }
}

/// The units at wanted addresses, as `.debug_aranges` has them.
fn listed_units(dwarf: &Dwarf<Reader>, wanted: &Wanted) -> Result<HashSet<DebugInfoOffset>> {
    let mut units = HashSet::new();
    let mut headers = dwarf.debug_aranges.headers();
    while let Some(header) = headers.next()? {
        let mut entries = header.entries();
        // An entry in error is passed over, as addr2line does; what cannot be passed over ends it.
        while let Some(entry) = entries.next().transpose() {
            let range = entry.map(|entry| entry.range());
            if range.is_ok_and(|range| wanted.is_any_in(range.begin, range.end)) {
                units.insert(header.debug_info_offset());
                break;
            }
        }
    }
    Ok(units)
}

/// Whether a unit says where its code lies, and no wanted address lies there.
fn lies_elsewhere(
    dwarf: &Dwarf<Reader>,
    header: UnitHeader<Reader>,
    wanted: &Wanted,
) -> Result<bool> {
    match header.type_() {
        UnitType::Compilation | UnitType::Skeleton(_) => {}
        UnitType::Type { .. } | UnitType::SplitType { .. } => return Ok(true),
        // What it holds is another unit's.
        UnitType::Partial | UnitType::SplitCompilation(_) => return Ok(false),
    }
    let Some(abbreviations) = first_abbreviation(dwarf, &header)? else {
        return Ok(false);
    };
    let unit = Unit::new_with_abbreviations(dwarf, header, Arc::new(abbreviations))?;
    let mut entries = unit.header.entries(&unit.abbreviations);
    entries.next_dfs()?;
    let Some(first) = entries.current() else {
        return Ok(false);
    };
    if let Some(ranges) = first.attr_value(DW_AT_ranges) {
        let Some(mut ranges) = dwarf.attr_ranges(&unit, ranges)? else {
            return Ok(false);
        };
        let mut is_any = false;
        while let Some(range) = ranges.next()? {
            if wanted.is_any_in(range.begin, range.end) {
                return Ok(false);
            }
            is_any |= range.begin < range.end;
        }
        return Ok(is_any);
    }
    let (Some(low), Some(high)) = (
        first.attr_value(DW_AT_low_pc),
        first.attr_value(DW_AT_high_pc),
    ) else {
        return Ok(false);
    };
    let Some(begin) = dwarf.attr_address(&unit, low)? else {
        return Ok(false);
    };
    let end = match high.udata_value() {
        Some(size) => Some(begin.wrapping_add(size)),
        None => dwarf.attr_address(&unit, high)?,
    };
    Ok(end.is_some_and(|end| begin < end && !wanted.is_any_in(begin, end)))
}

/// The abbreviation of a unit's first entry, without its line table, which takes longer to read
/// than all else.
fn first_abbreviation(
    dwarf: &Dwarf<Reader>,
    header: &UnitHeader<Reader>,
) -> Result<Option<Abbreviations>> {
    let first = UnitOffset(header.header_size());
    let code = header.range_from(first..)?.read_uleb128()?;
    let section = *dwarf.debug_abbrev.reader();
    let mut rest = section;
    rest.skip(header.debug_abbrev_offset().0)?;
    for _ in 0..MOST_DECLARATIONS {
        let start = section.len() - rest.len();
        let Some(declaration) = abbreviations::read(section, &mut rest)? else {
            break;
        };
        if declaration.code == code {
            let end = section.len() - rest.len();
            let mut table = section.slice()[start..end].to_owned();
            if let Some(place) = declaration.line_table {
                table[place - start] = NO_ATTRIBUTE;
            }
            let end_of_table = 0;
            table.push(end_of_table);
            let table = DebugAbbrev::new(&table, LittleEndian);
            return table.abbreviations(DebugAbbrevOffset(0)).map(Some);
        }
    }
    Ok(None)
}
