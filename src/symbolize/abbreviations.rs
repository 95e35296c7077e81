//! Tables of abbreviations (`.debug_abbrev`; DWARF 5, 7.5.3): how entries are made up.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeSpecification, DebugAbbrevOffset, DwAt, DwForm, DwTag, Reader as _,
    Section as _,
};
use hashbrown::HashMap;

use super::dwarf::{Dwarf, Failure, Reader, Result};
use super::effort::Effort;

const SECTION: &str = ".debug_abbrev";
/// What tables that are kept may have, in bytes of theirs; parsed, they take up to 40 times as much.
/// No compiler has that many kinds of entries.
const MOST_BYTES: usize = 1 << 20;

/// How one entry is made up.
#[derive(Debug)]
pub(super) struct Declaration {
    pub(super) tag: DwTag,
    pub(super) attributes: Vec<AttributeSpecification>,
}

/// The tables of some debug information.
#[derive(Debug, Default)]
pub(super) struct Tables {
    parsed: RefCell<Parsed>,
    /// The last declaration that was asked for. Units share it, where they share a table.
    last: RefCell<Option<Last>>,
}

#[derive(Debug)]
struct Last {
    table: DebugAbbrevOffset,
    code: u64,
    declaration: Rc<Declaration>,
}

#[derive(Debug, Default)]
struct Parsed {
    tables: HashMap<DebugAbbrevOffset, Arc<Abbreviations>>,
    bytes: usize,
}

impl Tables {
    /// A whole table.
    ///
    /// # Errors
    ///
    /// Where it is damaged, or far too large.
    pub(super) fn whole(
        &self,
        dwarf: &Dwarf,
        table: DebugAbbrevOffset,
        effort: &Effort,
    ) -> Result<Arc<Abbreviations>> {
        let parsed = &mut *self.parsed.borrow_mut();
        if let Some(abbreviations) = parsed.tables.get(&table) {
            return Ok(Arc::clone(abbreviations));
        }
        let mut rest = at(dwarf, table)?;
        let begin = rest.len();
        while read(&mut rest, effort, |_| false)?.is_some() {}
        let bytes = begin - rest.len();
        if bytes > MOST_BYTES {
            return Err(Failure::new(SECTION, "a table is larger than any real one"));
        }
        let abbreviations = dwarf.debug_abbrev.abbreviations(table);
        let abbreviations = Arc::new(abbreviations.map_err(Failure::of(SECTION))?);
        if parsed.bytes + bytes > MOST_BYTES {
            *parsed = Parsed::default();
        }
        parsed.bytes += bytes;
        parsed.tables.insert(table, Arc::clone(&abbreviations));
        Ok(abbreviations)
    }

    /// One declaration of a table, which takes far less than the whole table.
    ///
    /// # Errors
    ///
    /// Where the table is damaged up to there, or has none of this code.
    pub(super) fn one(
        &self,
        dwarf: &Dwarf,
        table: DebugAbbrevOffset,
        code: u64,
        effort: &Effort,
    ) -> Result<Rc<Declaration>> {
        let last = &mut *self.last.borrow_mut();
        if let Some(last) = last
            && (last.table, last.code) == (table, code)
        {
            return Ok(Rc::clone(&last.declaration));
        }
        let mut rest = at(dwarf, table)?;
        loop {
            let declaration = read(&mut rest, effort, |found| found == code)?;
            let Some((found, declaration)) = declaration else {
                return Err(Failure::new(
                    SECTION,
                    "a table lacks what a unit begins with",
                ));
            };
            if found == code {
                let declaration = Rc::new(declaration);
                let last = last.insert(Last {
                    table,
                    code,
                    declaration,
                });
                return Ok(Rc::clone(&last.declaration));
            }
        }
    }
}

fn at<'d>(dwarf: &Dwarf<'d>, DebugAbbrevOffset(table): DebugAbbrevOffset) -> Result<Reader<'d>> {
    let mut rest = *dwarf.debug_abbrev.reader();
    rest.skip(table).map_err(Failure::of(SECTION))?;
    Ok(rest)
}

/// Reads the next declaration, and its code; `None` at the table's end. Its attributes are kept
/// where its code is one of these.
fn read(
    rest: &mut Reader,
    effort: &Effort,
    is_kept: impl Fn(u64) -> bool,
) -> Result<Option<(u64, Declaration)>> {
    let failed = Failure::of(SECTION);
    let code = rest.read_uleb128().map_err(&failed)?;
    if code == 0 {
        return Ok(None);
    }
    let mut declaration = Declaration {
        tag: DwTag(rest.read_uleb128_u16().map_err(&failed)?),
        attributes: Vec::new(),
    };
    let _has_children = rest.read_u8().map_err(&failed)?;
    while let Some(attribute) = attribute(rest).map_err(&failed)? {
        effort.take(1)?;
        if is_kept(code) {
            declaration.attributes.push(attribute);
        }
    }
    Ok(Some((code, declaration)))
}

/// Reads the next attribute of a declaration; `None` at its end.
fn attribute(rest: &mut Reader) -> gimli::Result<Option<AttributeSpecification>> {
    let (name, form) = (rest.read_uleb128_u16()?, rest.read_uleb128_u16()?);
    let (name, form) = (DwAt(name), DwForm(form));
    let constant = match form {
        gimli::DW_FORM_implicit_const => Some(rest.read_sleb128()?),
        _ => None,
    };
    let is_end = (name, form) == (DwAt(0), DwForm(0));
    Ok((!is_end).then(|| AttributeSpecification::new(name, form, constant)))
}
