//! Units that hold what other units have in common and no code, as `dwz` makes them.

use addr2line::gimli::{
    Abbreviations, DW_TAG_partial_unit, DebugAbbrev, DebugAbbrevOffset, LittleEndian, Reader as _,
    Result,
};

use super::abbreviations::{self, NO_ATTRIBUTE};
use super::debug_info::Reader;

/// The abbreviations of the table at this offset, without the line tables of partial units.
///
/// A partial unit has a line table for the names of files in there; the lines in there are another
/// unit's. addr2line 0.26 takes any unit without ranges, except a partial one of DWARF 5, for the
/// unit of all lines in its table: a partial unit of DWARF 4 would hide the unit that has the
/// functions.
///
/// # Errors
///
/// Where the table is damaged.
pub(super) fn without_lines(
    section: Reader,
    DebugAbbrevOffset(table): DebugAbbrevOffset,
) -> Result<Abbreviations> {
    let mut rest = section;
    rest.skip(table)?;
    let mut places = Vec::new();
    while let Some(declaration) = abbreviations::read(section, &mut rest)? {
        if declaration.tag == DW_TAG_partial_unit {
            places.extend(declaration.line_table);
        }
    }
    if places.is_empty() {
        return DebugAbbrev::from(section).abbreviations(DebugAbbrevOffset(table));
    }
    let end = section.len() - rest.len();
    let mut without_lines = section.slice()[table..end].to_owned();
    for place in places {
        without_lines[place - table] = NO_ATTRIBUTE;
    }
    DebugAbbrev::new(&without_lines, LittleEndian).abbreviations(DebugAbbrevOffset(0))
}
