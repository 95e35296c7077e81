//! Declarations of abbreviations (`.debug_abbrev`; DWARF 5, 7.5.3), as bytes that can be changed.

use addr2line::gimli::{
    DW_AT_stmt_list, DW_FORM_implicit_const, DwTag, Error, Reader as _, Result,
};

use super::debug_info::Reader;

/// An attribute that DWARF does not define, and that takes one byte as `DW_AT_stmt_list` does.
pub(super) const NO_ATTRIBUTE: u8 = 0x04;

/// How an entry is made up.
pub(super) struct Declaration {
    pub(super) code: u64,
    pub(super) tag: DwTag,
    /// Where in the section it says that such an entry has a line table, if it does so in one byte.
    pub(super) line_table: Option<usize>,
}

/// Reads the next declaration of a table that lies in this section; `None` at the table's end.
///
/// # Errors
///
/// Where the table is damaged.
pub(super) fn read<'d>(section: Reader<'d>, rest: &mut Reader<'d>) -> Result<Option<Declaration>> {
    let code = rest.read_uleb128()?;
    if code == 0 {
        return Ok(None);
    }
    let tag = rest.read_uleb128()?.try_into().map(DwTag);
    let mut declaration = Declaration {
        code,
        tag: tag.map_err(|_| Error::AbbreviationTagZero)?,
        line_table: None,
    };
    let _has_children = rest.read_u8()?;
    loop {
        let place = section.len() - rest.len();
        let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
        if form == u64::from(DW_FORM_implicit_const.0) {
            rest.read_sleb128()?;
        }
        if (name, form) == (0, 0) {
            return Ok(Some(declaration));
        }
        let line_table = DW_AT_stmt_list.0;
        if name == u64::from(line_table) && section.slice()[place] == line_table as u8 {
            declaration.line_table = Some(place);
        }
    }
}
