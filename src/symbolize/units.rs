//! The units of debug information.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;

use gimli::{
    Abbreviations, DebugAddrBase, DebugInfoOffset, DebugLineOffset, DebugLocListsBase,
    DebugRngListsBase, DebugStrOffsetsBase, DwTag, DwoId, Reader as _, Section as _, UnitOffset,
    UnitType,
};

use super::abbreviations::Tables;
use super::dwarf::{AttributeValue, Dwarf, Failure, Result, Unit, UnitHeader};
use super::effort::{BYTES_PER_STEP, Effort};
use super::ranges::Ranges;
use super::wanted::Wanted;

/// Debug information, of an object or of a file beside it.
pub(super) struct Units<'d> {
    pub(super) dwarf: Arc<Dwarf<'d>>,
    pub(super) effort: Rc<Effort>,
    /// Whether code lies at address 0. If not, what lies there is what the linker left out.
    pub(super) has_code_at_zero: bool,
    tables: Tables,
    /// Where the units begin, in ascending order, and what is damaged behind the last one.
    offsets: OnceCell<(Vec<usize>, Result<()>)>,
    /// The first thing that was damaged.
    failure: Cell<Option<Failure>>,
    /// What other objects have in common with this one.
    supplementary: Option<Box<Units<'d>>>,
}

/// What a unit's header takes: a few steps for each of its bytes.
const STEPS_PER_HEADER: usize = 16;

/// What the first entry of a unit says.
#[derive(Debug)]
pub(super) struct Root<'d> {
    tag: DwTag,
    /// Without abbreviations and lines.
    pub(super) unit: Unit<'d>,
    ranges: Ranges<'d>,
    pub(super) lines: Option<DebugLineOffset>,
    /// Of a skeleton: the name of the file that has all else.
    pub(super) dwo_name: Option<AttributeValue<'d>>,
}

/// Where the code of a unit lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Code {
    /// At a wanted address, perhaps among others.
    Wanted,
    Elsewhere,
    /// The first entry does not say it.
    Unknown,
}

impl<'d> Units<'d> {
    pub(super) fn new(dwarf: Dwarf<'d>, has_code_at_zero: bool, effort: &Rc<Effort>) -> Self {
        Self::of(Arc::new(dwarf), has_code_at_zero, effort)
    }

    fn of(dwarf: Arc<Dwarf<'d>>, has_code_at_zero: bool, effort: &Rc<Effort>) -> Self {
        let of_supplementary = |dwarf| Box::new(Self::of(dwarf, has_code_at_zero, effort));
        Self {
            supplementary: dwarf.sup.clone().map(of_supplementary),
            dwarf,
            effort: Rc::clone(effort),
            has_code_at_zero,
            tables: Tables::default(),
            offsets: OnceCell::new(),
            failure: Cell::new(None),
        }
    }

    /// Keeps what says why something failed.
    pub(super) fn check<T>(&self, outcome: Result<T>) -> Option<T> {
        let keep = |failure| self.failure.set(self.failure.get().or(Some(failure)));
        outcome.map_err(keep).ok()
    }

    /// The first thing that was damaged.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure.get()
    }

    /// Where the units begin, in ascending order, up to one that is damaged; and whether one is.
    fn offsets(&self) -> &(Vec<usize>, Result<()>) {
        self.offsets.get_or_init(|| {
            let mut offsets = Vec::new();
            let mut headers = self.dwarf.units();
            loop {
                match headers.next() {
                    Ok(Some(header)) => {
                        if let Err(failure) = self.effort.take(STEPS_PER_HEADER) {
                            return (offsets, Err(failure));
                        }
                        offsets.extend(header.debug_info_offset().map(|o| o.0));
                    }
                    Ok(None) => return (offsets, Ok(())),
                    Err(error) => return (offsets, Err(Failure::of(".debug_info")(error))),
                }
            }
        })
    }

    /// The headers of all units.
    ///
    /// # Errors
    ///
    /// In the end, where not all of them can be found.
    pub(super) fn headers(&self) -> impl Iterator<Item = Result<UnitHeader<'d>>> {
        let (offsets, outcome) = self.offsets();
        let header = |&offset| self.header(DebugInfoOffset(offset));
        offsets.iter().map(header).chain(outcome.err().map(Err))
    }

    fn header(&self, offset: DebugInfoOffset) -> Result<UnitHeader<'d>> {
        let header = self.dwarf.unit_header(offset);
        header.map_err(Failure::of(".debug_info"))
    }

    /// Reads the first entry of the unit that begins here.
    ///
    /// # Errors
    ///
    /// Where the unit's header, the entry, or what it refers to, is damaged.
    pub(super) fn root_at(&self, offset: DebugInfoOffset) -> Result<Root<'d>> {
        self.root(self.header(offset)?)
    }

    /// Reads the first entry of a unit.
    ///
    /// # Errors
    ///
    /// Where the entry, or what it refers to, is damaged.
    pub(super) fn root(&self, header: UnitHeader<'d>) -> Result<Root<'d>> {
        let dwarf = &*self.dwarf;
        let first = header.root_offset();
        let mut entry = header.range_from(first..)?;
        let len = entry.len();
        let code = entry.read_uleb128()?;
        let attributes = UnitOffset(first.0 + len - entry.len());
        let table = header.debug_abbrev_offset();
        let declaration = self.tables.one(dwarf, table, code, &self.effort)?;
        self.effort.take(declaration.attributes.len())?;
        let encoding = header.encoding();
        let mut root = Root {
            tag: declaration.tag,
            unit: Unit {
                abbreviations: Arc::default(),
                name: None,
                comp_dir: None,
                low_pc: 0,
                str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(
                    encoding,
                    dwarf.file_type,
                ),
                addr_base: DebugAddrBase(0),
                loclists_base: DebugLocListsBase::default_for_encoding_and_file(
                    encoding,
                    dwarf.file_type,
                ),
                rnglists_base: DebugRngListsBase::default_for_encoding_and_file(
                    encoding,
                    dwarf.file_type,
                ),
                line_program: None,
                dwo_id: match header.type_() {
                    UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => Some(id),
                    _ => None,
                },
                header,
            },
            ranges: Ranges::default(),
            lines: None,
            dwo_name: None,
        };
        let (mut comp_dir, mut low_pc) = (None, None);
        let none = Abbreviations::default();
        let mut entry = header.entries_raw(&none, Some(attributes))?;
        for specification in &declaration.attributes {
            let attribute = entry.read_attribute(*specification)?;
            let (name, value) = (attribute.name(), attribute.value());
            root.ranges.add(name, value);
            let unit = &mut root.unit;
            match (name, value) {
                (gimli::DW_AT_comp_dir, _) => comp_dir = Some(value),
                (gimli::DW_AT_low_pc, _) => low_pc = Some(value),
                (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(lines)) => {
                    root.lines = Some(lines)
                }
                (gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name, _) => {
                    root.dwo_name = Some(value)
                }
                (gimli::DW_AT_GNU_dwo_id, AttributeValue::DwoId(id)) => {
                    unit.dwo_id.get_or_insert(id);
                }
                (gimli::DW_AT_str_offsets_base, AttributeValue::DebugStrOffsetsBase(base)) => {
                    unit.str_offsets_base = base;
                }
                (
                    gimli::DW_AT_addr_base | gimli::DW_AT_GNU_addr_base,
                    AttributeValue::DebugAddrBase(base),
                ) => {
                    unit.addr_base = base;
                }
                (
                    gimli::DW_AT_rnglists_base | gimli::DW_AT_GNU_ranges_base,
                    AttributeValue::DebugRngListsBase(base),
                ) => unit.rnglists_base = base,
                _ => {}
            }
        }
        if let Some(value) = comp_dir {
            root.unit.comp_dir = dwarf.attr_string(&root.unit, value).ok();
            let len = root.unit.comp_dir.map_or(0, |directory| directory.len());
            self.effort.take(len / BYTES_PER_STEP)?;
        }
        if let Some(value) = low_pc
            && let Some(address) = dwarf.attr_address(&root.unit, value)?
        {
            root.unit.low_pc = address;
        }
        Ok(root)
    }

    /// The whole unit, but for its lines.
    ///
    /// # Errors
    ///
    /// Where its table of abbreviations, or that of the strings it refers to, is damaged.
    pub(super) fn unit(&self, root: &Root<'d>) -> Result<Unit<'d>> {
        let unit = &root.unit;
        self.check_str_offsets(unit)?;
        let table = unit.header.debug_abbrev_offset();
        let abbreviations = self.tables.whole(&self.dwarf, table, &self.effort)?;
        Ok(Unit {
            abbreviations,
            line_program: None,
            ..*unit
        })
    }

    /// Whether what says where the strings are is a table of such (DWARF 5, 7.26). If it is not,
    /// all strings would be found, and be the wrong ones.
    fn check_str_offsets(&self, unit: &Unit<'d>) -> Result<()> {
        const HEADER_BYTES: usize = 8;
        let mut section = *self.dwarf.debug_str_offsets.reader();
        let begin = unit.str_offsets_base.0.checked_sub(HEADER_BYTES);
        let Some(begin) = begin.filter(|_| unit.header.version() >= 5 && !section.is_empty())
        else {
            return Ok(());
        };
        let mut header = || {
            section.skip(begin)?;
            let _length = section.read_u32()?;
            Ok((section.read_u16()?, section.read_u16()?))
        };
        match header().map_err(Failure::of(".debug_str_offsets"))? {
            (5, 0) => Ok(()),
            _ => Err(Failure::new(".debug_str_offsets", "it is none of DWARF 5")),
        }
    }

    /// Where the code of a unit lies.
    ///
    /// # Errors
    ///
    /// Where what says so is damaged.
    pub(super) fn code(&self, root: &Root<'d>, wanted: &Wanted) -> Result<Code> {
        match root.unit.header.type_() {
            UnitType::Type { .. } | UnitType::SplitType { .. } => return Ok(Code::Elsewhere),
            _ if root.tag != gimli::DW_TAG_compile_unit
                && root.tag != gimli::DW_TAG_skeleton_unit =>
            {
                // What it holds is another unit's.
                return Ok(Code::Elsewhere);
            }
            _ => {}
        }
        let mut code = Code::Unknown;
        let ranges = &root.ranges;
        ranges.for_each(&self.dwarf, &root.unit, &self.effort, |range| {
            if self.is_kept(range.begin) && wanted.is_any_in(range.begin, range.end) {
                code = Code::Wanted;
            } else if code == Code::Unknown {
                code = Code::Elsewhere;
            }
        })?;
        Ok(code)
    }

    /// Whether the linker kept the code that begins here. What it left out begins at 0.
    pub(super) fn is_kept(&self, begin: u64) -> bool {
        begin > 0 || self.has_code_at_zero
    }

    /// What has the entry at this offset, and where the entry is in there.
    ///
    /// # Errors
    ///
    /// Where the unit is damaged, or there is none.
    pub(super) fn unit_with(&self, entry: DebugInfoOffset) -> Result<(Unit<'d>, UnitOffset)> {
        let (offsets, _) = self.offsets();
        let index = offsets.partition_point(|&offset| offset <= entry.0);
        let none = || Failure::from(gimli::Error::NoEntryAtGivenOffset(entry.0 as u64));
        let begin = index.checked_sub(1).map(|index| offsets[index]);
        let header = self.header(DebugInfoOffset(begin.ok_or_else(none)?))?;
        let offset = entry.to_unit_offset(&header).ok_or_else(none)?;
        Ok((self.unit(&self.root(header)?)?, offset))
    }

    pub(super) fn supplementary(&self) -> Option<&Units<'d>> {
        self.supplementary.as_deref()
    }

    /// The unit that was split off by this id.
    ///
    /// # Errors
    ///
    /// Where one that may be it is damaged.
    pub(super) fn split_unit(&self, id: DwoId) -> Result<Option<Root<'d>>> {
        for header in self.headers() {
            let header = header?;
            let may_be = match header.type_() {
                UnitType::SplitCompilation(found) => found == id,
                // Before DWARF 5, the id is an attribute.
                UnitType::Compilation => true,
                _ => false,
            };
            if may_be {
                let root = self.root(header)?;
                if root.unit.dwo_id == Some(id) {
                    return Ok(Some(root));
                }
            }
        }
        Ok(None)
    }
}
