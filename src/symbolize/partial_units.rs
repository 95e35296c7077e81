//! Units that hold what other units have in common and no code, as `dwz` makes them.

use addr2line::gimli::{
    DW_AT_stmt_list, DW_FORM_implicit_const, DW_TAG_partial_unit, Dwarf, Reader as _, Result,
    Section as _,
};

use super::debug_info::Reader;

/// An attribute that DWARF does not define, and that takes one byte as `DW_AT_stmt_list` does.
const NO_ATTRIBUTE: u8 = 0x04;

/// The abbreviations (`.debug_abbrev`) of these units, without the line tables of partial units;
/// `None` if no partial unit has one.
///
/// A partial unit has a line table for the names of files in there; the lines in there are another
/// unit's. addr2line 0.26 takes any unit without ranges, except a partial one of DWARF 5, for the
/// unit of all lines in its table: a partial unit of DWARF 4 would hide the unit that has the
/// functions.
pub(super) fn without_lines(dwarf: &Dwarf<Reader>) -> Option<Vec<u8>> {
    let mut tables = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(unit)) = units.next() {
        tables.push(unit.debug_abbrev_offset().0);
    }
    tables.sort_unstable();
    tables.dedup();
    let section = *dwarf.debug_abbrev.reader();
    let mut places = Vec::new();
    let mut end = 0;
    for table in tables {
        // One that begins in another one has nothing that the other one has not.
        if table >= end {
            end = find_lines(section, table, &mut places);
        }
    }
    if places.is_empty() {
        return None;
    }
    let mut abbreviations = section.slice().to_owned();
    for place in places {
        abbreviations[place] = NO_ATTRIBUTE;
    }
    Some(abbreviations)
}

/// Finds where the table at this offset says that partial units have lines. Answers where the table
/// ends, or where it is damaged, which is for those to say who read it to use it.
fn find_lines<'d>(section: Reader<'d>, table: usize, places: &mut Vec<usize>) -> usize {
    let offset = |rest: &Reader| section.len() - rest.len();
    let mut rest = section;
    let mut abbreviation = |rest: &mut Reader<'d>| -> Result<bool> {
        if rest.read_uleb128()? == 0 {
            return Ok(false);
        }
        let is_partial = rest.read_uleb128()? == u64::from(DW_TAG_partial_unit.0);
        let _has_children = rest.read_u8()?;
        loop {
            let place = offset(rest);
            let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
            if form == u64::from(DW_FORM_implicit_const.0) {
                rest.read_sleb128()?;
            }
            if (name, form) == (0, 0) {
                return Ok(true);
            }
            let is_one_byte = section.slice()[place] == DW_AT_stmt_list.0 as u8;
            if is_partial && name == u64::from(DW_AT_stmt_list.0) && is_one_byte {
                places.push(place);
            }
        }
    };
    let is_there = rest.skip(table).is_ok();
    while is_there && matches!(abbreviation(&mut rest), Ok(true)) {}
    offset(&rest)
}
