//! What an entry's function is called, and where it is declared.

use std::borrow::Cow;

use gimli::{DebugInfoOffset, UnitOffset};
use hashbrown::HashMap;

use super::lines::{self, FileNames};
use super::scopes::small;
use super::{Dwarf, Unit, UnitRef, Value};

/// A chain of references that is longer is taken for a loop.
const LONGEST_CHAIN: usize = 16;

/// How many other units are kept open for references into them.
const OPEN_UNITS: usize = 8;

/// A function as far as debug information describes it.
#[derive(Clone, Debug, Default)]
pub(super) struct DescribedFunction<'d> {
    /// The linkage name; the name in the source where there is none.
    pub(super) symbol: Option<Cow<'d, str>>,
    /// The name in the source, without what encloses it.
    pub(super) source_name: Option<Cow<'d, str>>,
    /// The file that declares it.
    pub(super) file: Option<String>,
    /// The line of the declaration; 0 where unknown.
    pub(super) line: u32,
}

/// Describes functions, following references from inlined calls and definitions to declarations.
pub(super) struct FunctionTable<'s, 'd> {
    dwarf: &'s Dwarf<'d>,
    described: HashMap<UnitOffset, DescribedFunction<'d>>,
    /// Where each unit begins, once a reference into another unit asked for it.
    starts: Option<Vec<usize>>,
    open_units: Vec<(usize, Unit<'d>)>,
}

impl<'s, 'd> FunctionTable<'s, 'd> {
    pub(super) fn new(dwarf: &'s Dwarf<'d>) -> Self {
        Self {
            dwarf,
            described: HashMap::new(),
            starts: None,
            open_units: Vec::new(),
        }
    }

    /// Describes the function behind an entry of `unit`.
    pub(super) fn describe(
        &mut self,
        unit: UnitRef<'_, 'd>,
        files: &mut FileNames<'_, 'd>,
        entry: UnitOffset,
    ) -> gimli::Result<DescribedFunction<'d>> {
        if let Some(function) = self.described.get(&entry) {
            return Ok(function.clone());
        }
        let mut description = Description::default();
        let mut next =
            description.add(unit, entry, |file| Ok(files.get(file)?.map(str::to_owned)))?;
        for _ in 0..LONGEST_CHAIN {
            let Some(reference) = next.filter(|_| !description.is_complete()) else {
                break;
            };
            next = match reference {
                gimli::AttributeValue::UnitRef(entry) => {
                    description.add(unit, entry, |file| Ok(files.get(file)?.map(str::to_owned)))?
                }
                gimli::AttributeValue::DebugInfoRef(offset) => {
                    match offset.to_unit_offset(&unit.header) {
                        Some(entry) => description
                            .add(unit, entry, |file| Ok(files.get(file)?.map(str::to_owned)))?,
                        None => self.add_from_elsewhere(&mut description, offset)?,
                    }
                }
                // Supplementary files and type units are not followed.
                _ => None,
            };
        }
        let function = description.function();
        self.described.insert(entry, function.clone());
        Ok(function)
    }

    /// Forgets what is only true of the unit at hand.
    pub(super) fn forget_unit(&mut self) {
        self.described.clear();
    }

    /// Adds what an entry of another unit says; references from there are made absolute.
    fn add_from_elsewhere(
        &mut self,
        description: &mut Description<'d>,
        offset: DebugInfoOffset,
    ) -> gimli::Result<Option<Value<'d>>> {
        let index = self.open_unit(offset)?;
        let unit = self.open_units[index].1.unit_ref(self.dwarf);
        let Some(entry) = offset.to_unit_offset(&unit.header) else {
            return Ok(None);
        };
        let next = description.add(unit, entry, |file| lines::file_name(unit, file))?;
        Ok(match next {
            Some(gimli::AttributeValue::UnitRef(entry)) => entry
                .to_debug_info_offset(&unit.header)
                .map(gimli::AttributeValue::DebugInfoRef),
            other => other,
        })
    }

    /// The position in `open_units` of the unit that holds an offset.
    fn open_unit(&mut self, offset: DebugInfoOffset) -> gimli::Result<usize> {
        let starts = match &self.starts {
            Some(starts) => starts,
            None => {
                let mut starts = Vec::new();
                let mut headers = self.dwarf.units();
                while let Some(header) = headers.next()? {
                    starts.extend(header.debug_info_offset().map(|offset| offset.0));
                }
                self.starts.insert(starts)
            }
        };
        let after = starts.partition_point(|&start| start <= offset.0);
        let Some(&start) = after.checked_sub(1).and_then(|index| starts.get(index)) else {
            return Err(gimli::Error::NoEntryAtGivenOffset(offset.0 as u64));
        };
        if let Some(index) = self.open_units.iter().position(|unit| unit.0 == start) {
            return Ok(index);
        }
        let header = self
            .dwarf
            .debug_info
            .header_from_offset(DebugInfoOffset(start))?;
        let unit = self.dwarf.unit(header)?;
        if self.open_units.len() == OPEN_UNITS {
            self.open_units.remove(0);
        }
        self.open_units.push((start, unit));
        Ok(self.open_units.len() - 1)
    }
}

/// A function as its entries describe it, the nearest one first.
#[derive(Default)]
struct Description<'d> {
    linkage_name: Option<Cow<'d, str>>,
    source_name: Option<Cow<'d, str>>,
    file: Option<String>,
    line: u32,
}

impl<'d> Description<'d> {
    /// Adds what one entry says that is not known yet; answers the entry it refers to for the rest.
    fn add(
        &mut self,
        unit: UnitRef<'_, 'd>,
        entry: UnitOffset,
        file_name: impl FnOnce(u64) -> gimli::Result<Option<String>>,
    ) -> gimli::Result<Option<Value<'d>>> {
        let mut entries = unit.entries_raw(Some(entry))?;
        let Some(abbreviation) = entries.read_abbreviation()? else {
            return Ok(None);
        };
        let mut next = None;
        let mut file = None;
        let mut line = 0;
        for &specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(specification)?;
            let text = |value| {
                let text = unit.attr_string(value).ok()?;
                Some(gimli::EndianSlice::to_string_lossy(&text))
            };
            match attribute.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name
                    if self.linkage_name.is_none() =>
                {
                    self.linkage_name = text(attribute.value());
                }
                gimli::DW_AT_name if self.source_name.is_none() => {
                    self.source_name = text(attribute.value());
                }
                gimli::DW_AT_decl_file => {
                    if let gimli::AttributeValue::FileIndex(index) = attribute.value() {
                        file = Some(index);
                    }
                }
                gimli::DW_AT_decl_line => line = small(&attribute),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    next = Some(attribute.value())
                }
                _ => {}
            }
        }
        // A definition of a declared member repeats the line and leaves the file to the declaration, or the other
        // way round: what an entry does not say itself stands in the one it refers to.
        if self.line == 0 {
            self.line = line;
        }
        if let Some(file) = file.filter(|_| self.file.is_none()) {
            self.file = file_name(file)?;
        }
        Ok(next)
    }

    fn is_complete(&self) -> bool {
        self.linkage_name.is_some()
            && self.source_name.is_some()
            && self.line != 0
            && self.file.is_some()
    }

    fn function(self) -> DescribedFunction<'d> {
        DescribedFunction {
            symbol: self.linkage_name.or_else(|| self.source_name.clone()),
            source_name: self.source_name,
            file: self.file,
            line: self.line,
        }
    }
}
