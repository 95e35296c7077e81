//! An ELF file: whatever of it is whole.

use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader32, FileHeader64, SectionType};
use object::read::elf::{FileHeader, ProgramHeader as _, SectionHeader as _, SectionTable};
use object::{CompressedData, LittleEndian};

use super::compressed::{self, Budget};
use super::raw_symbols::{Class, ENDIAN, RawSymbol, RawSymbols, Table};
use crate::sys::mapped_file::MappedFile;
use crate::{Error, ErrorKind};

/// The bytes of an object, and what to call them in a sentence.
#[derive(Debug)]
pub(super) struct Bytes {
    pub(super) path: PathBuf,
    bytes: Memory,
}

#[derive(Debug)]
enum Memory {
    Mapped(MappedFile),
    Copied(Vec<u8>),
}

impl Bytes {
    /// Maps a file.
    pub(super) fn of_file(path: &Path) -> Result<Self, Error> {
        let mapped = MappedFile::open(path).map_err(|error| {
            let message = format!("{} cannot be read", path.display());
            Error::with_source(ErrorKind::Io, message, error)
        })?;
        Ok(Self {
            path: path.to_owned(),
            bytes: Memory::Mapped(mapped),
        })
    }

    /// Lets go of the memory that reading them took so far, as far as it comes back when they are
    /// read again.
    pub(super) fn forget(&self) {
        if let Memory::Mapped(mapped) = &self.bytes {
            mapped.forget();
        }
    }

    /// Bytes that came from elsewhere.
    pub(super) fn of_copy(path: &Path, bytes: Vec<u8>) -> Self {
        Self {
            path: path.to_owned(),
            bytes: Memory::Copied(bytes),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Memory::Mapped(mapped) => mapped,
            Memory::Copied(bytes) => bytes,
        }
    }
}

/// An ELF file of which any part may be damaged, seen through its headers.
#[derive(Debug)]
pub(super) struct ObjectFile<'d> {
    bytes: &'d Bytes,
    class: Class,
    build_id: object::Result<Option<&'d [u8]>>,
    segments: Vec<Segment>,
    sections: Vec<Section<'d>>,
}

/// A part of the file that is loaded.
#[derive(Debug)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// What a section header says.
#[derive(Debug)]
pub(super) struct Section<'d> {
    name: object::Result<&'d [u8]>,
    kind: SectionType,
    pub(super) is_code: bool,
    /// Where it is loaded.
    pub(super) addresses: Range<u64>,
    /// Of a symbol table: the section of its strings.
    link: usize,
    /// The bytes as they are in the file, and what they were before they were compressed.
    data: Result<CompressedData<'d>, String>,
}

impl<'d> ObjectFile<'d> {
    /// Reads the headers.
    ///
    /// # Errors
    ///
    /// Where they are damaged, or not those of an object for a little-endian machine.
    pub(super) fn parse(bytes: &'d Bytes) -> Result<Self, Error> {
        const CLASS: usize = 4;
        const CLASS_32: u8 = 1;
        let parsed = match bytes.get(CLASS) {
            Some(&CLASS_32) => Self::of_class::<FileHeader32<_>>(bytes, Class::Elf32),
            _ => Self::of_class::<FileHeader64<_>>(bytes, Class::Elf64),
        };
        parsed.map_err(|error| damaged(&bytes.path, None, error))
    }

    fn of_class<Elf: FileHeader<Endian = LittleEndian>>(
        bytes: &'d Bytes,
        class: Class,
    ) -> object::Result<Self> {
        let data = &**bytes;
        let header = Elf::parse(data)?;
        header.endian()?;
        let segments = header.program_headers(ENDIAN, data).unwrap_or_default();
        let sections = header.sections(ENDIAN, data)?;
        Ok(Self {
            bytes,
            class,
            build_id: build_id(data, segments, &sections),
            segments: (segments.iter())
                .filter(|segment| segment.p_type(ENDIAN) == elf::PT_LOAD)
                .map(|segment| Segment {
                    offset: segment.p_offset(ENDIAN).into(),
                    size: segment.p_filesz(ENDIAN).into(),
                    address: segment.p_vaddr(ENDIAN).into(),
                })
                .collect(),
            sections: (sections.iter())
                .map(|section| Section::of(data, &sections, section))
                .collect(),
        })
    }

    /// Says what is damaged although the rest can be read.
    ///
    /// # Errors
    ///
    /// Where a section has no name: it may be any of those that are looked for.
    pub(super) fn check_names(&self) -> Result<(), Error> {
        let mut names = self.sections.iter().map(|section| section.name);
        match names.find_map(Result::err) {
            Some(error) => Err(self.damaged("the name of a section", error)),
            None => Ok(()),
        }
    }

    /// Where the file lies.
    pub(super) fn path(&self) -> &'d Path {
        &self.bytes.path
    }

    /// As [`Bytes::forget`].
    pub(super) fn forget(&self) {
        self.bytes.forget();
    }

    /// What says why a section cannot be read.
    pub(super) fn damaged(&self, section: &str, error: impl std::fmt::Display) -> Error {
        damaged(&self.bytes.path, Some(section), error)
    }

    /// The note of the linker that tells this build from others, in hexadecimal digits; empty where
    /// there is none.
    ///
    /// # Errors
    ///
    /// Where notes are damaged, and no whole one is a build id.
    pub(super) fn build_id(&self) -> Result<String, Error> {
        match self.build_id {
            Ok(id) => Ok(id.map(hex).unwrap_or_default()),
            Err(error) => Err(self.damaged("the build id", error)),
        }
    }

    /// The link-time address of what lies at an offset in the file; `None` where that is loaded
    /// nowhere.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let into = offset.checked_sub(segment.offset)?;
            (into < segment.size).then(|| segment.address.checked_add(into))?
        })
    }

    /// Whether code is loaded at address 0.
    pub(super) fn has_code_at_zero(&self) -> bool {
        let mut code = self.sections.iter().filter(|section| section.is_code);
        code.any(|section| section.addresses.contains(&0))
    }

    /// The sections of a name that have bytes. Several are one, in their order: a compiler gives a
    /// section to each type, for linkers to drop those that they have.
    fn sections(&self, name: &str) -> impl Iterator<Item = &Section<'d>> {
        let is_named = |name: &[u8]| self.sections.iter().any(|section| section.has_name(name));
        let mut name = name.as_bytes().to_owned();
        if !is_named(&name)
            && let Some(rest) = name.strip_prefix(b".debug_")
        {
            // Compressed as it was before there was a flag for it.
            name = [b".zdebug_", rest].concat();
        }
        // A debug file has the headers of sections whose bytes are elsewhere.
        let has_bytes = |section: &&Section| section.kind != elf::SHT_NOBITS;
        let sections = self.sections.iter().filter(has_bytes);
        sections.filter(move |section| section.has_name(&name))
    }

    fn section(&self, name: &str) -> Option<&Section<'d>> {
        self.sections(name).next()
    }

    /// Whether there is a section of this name, with bytes.
    pub(super) fn has_section(&self, name: &str) -> bool {
        self.section(name).is_some()
    }

    /// Whether there is a section of this name, and not an empty one.
    pub(super) fn has_bytes(&self, name: &str) -> bool {
        let is_empty = |section: &Section| {
            let data = section.data.as_ref();
            data.is_ok_and(|data| data.data.is_empty())
        };
        self.sections(name).any(|section| !is_empty(section))
    }

    /// The bytes of a section as they are in the file; `None` where it has none.
    ///
    /// # Errors
    ///
    /// Where the section is not whole.
    pub(super) fn stored(&self, name: &str) -> Result<Option<&'d [u8]>, Error> {
        let Some(section) = self.section(name) else {
            return Ok(None);
        };
        match &section.data {
            Ok(data) => Ok(Some(data.data)),
            Err(error) => Err(self.damaged(name, error)),
        }
    }

    /// The bytes of a section, uncompressed. What they take is charged to `budget`.
    ///
    /// # Errors
    ///
    /// Where the section is not whole, or where it would take too much.
    pub(super) fn uncompressed(
        &self,
        name: &str,
        budget: &mut Budget,
    ) -> Result<Cow<'d, [u8]>, Error> {
        let damaged = |error: String| self.damaged(name, error);
        let mut sections = self.sections(name);
        let mut all = match sections.next() {
            Some(section) => section.uncompressed(budget).map_err(damaged)?,
            None => Cow::default(),
        };
        // What does not overlap is no longer than the file.
        let mut left = self.bytes.len();
        for section in sections {
            let stored = section.data.as_ref().map_or(0, |data| data.data.len());
            let rest = left.checked_sub(stored);
            left = rest.ok_or_else(|| damaged("its parts overlap".to_owned()))?;
            let more = section.uncompressed(budget).map_err(damaged)?;
            budget.copy(more.len()).map_err(damaged)?;
            all.to_mut().extend_from_slice(&more);
        }
        Ok(all)
    }

    /// The symbol table of a kind. Its name, which is the kind's as a rule, says less.
    fn symbol_table(&self, table: Table) -> Option<&Section<'d>> {
        let mut sections = self.sections.iter();
        let by_kind = sections.find(|section| section.kind == table.kind());
        by_kind.or_else(|| self.section(table.name()))
    }

    /// Whether there is a symbol table of a kind, with bytes.
    pub(super) fn has_symbols(&self, table: Table) -> bool {
        self.symbol_table(table).is_some()
    }

    /// A symbol table, empty where there is none.
    ///
    /// # Errors
    ///
    /// Where it is not whole.
    pub(super) fn symbols(&self, table: Table) -> Result<RawSymbols<'d>, Error> {
        let name = table.name();
        let mut symbols = RawSymbols {
            class: self.class,
            bytes: &[],
            strings: &[],
        };
        let Some(section) = self.symbol_table(table) else {
            return Ok(symbols);
        };
        let strings = self.sections.get(section.link).map(|strings| &strings.data);
        match (&section.data, strings) {
            (Ok(data), Some(Ok(strings))) => {
                (symbols.bytes, symbols.strings) = (data.data, strings.data)
            }
            (Err(error), _) | (_, Some(Err(error))) => return Err(self.damaged(name, error)),
            (_, None) => return Err(self.damaged(name, "it has no strings")),
        }
        Ok(symbols)
    }

    /// The section that a symbol is in, if it is in one.
    pub(super) fn section_of(&self, symbol: RawSymbol) -> Option<&Section<'d>> {
        self.sections.get(usize::from(symbol.section.0))
    }
}

impl<'d> Section<'d> {
    fn has_name(&self, name: &[u8]) -> bool {
        self.name == Ok(name)
    }

    fn uncompressed(&self, budget: &mut Budget) -> Result<Cow<'d, [u8]>, String> {
        compressed::uncompressed(self.data.as_ref().map_err(String::clone)?, budget)
    }

    fn of<Elf: FileHeader<Endian = LittleEndian>>(
        data: &'d [u8],
        sections: &SectionTable<'d, Elf>,
        section: &'d Elf::SectionHeader,
    ) -> Self {
        let name = sections.section_name(ENDIAN, section);
        let begin: u64 = section.sh_addr(ENDIAN).into();
        let size: u64 = section.sh_size(ENDIAN).into();
        Self {
            name,
            kind: section.sh_type(ENDIAN),
            is_code: section.sh_flags(ENDIAN).contains(elf::SHF_EXECINSTR),
            addresses: begin..begin.saturating_add(size),
            link: section.sh_link(ENDIAN) as usize,
            data: compressed::stored::<Elf>(data, name.unwrap_or_default(), section),
        }
    }
}

/// The build id in the first whole note that is one.
fn build_id<'d, Elf: FileHeader<Endian = LittleEndian>>(
    data: &'d [u8],
    segments: &'d [Elf::ProgramHeader],
    sections: &SectionTable<'d, Elf>,
) -> object::Result<Option<&'d [u8]>> {
    let of_sections = sections.iter().map(|section| section.notes(ENDIAN, data));
    let of_segments = segments.iter().map(|segment| segment.notes(ENDIAN, data));
    let mut damage = None;
    for notes in of_sections.chain(of_segments) {
        let id = notes.and_then(|notes| {
            let Some(mut notes) = notes else {
                return Ok(None);
            };
            while let Some(note) = notes.next()? {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(ENDIAN) == elf::NT_GNU_BUILD_ID {
                    return Ok(Some(note.desc()));
                }
            }
            Ok(None)
        });
        match id {
            Ok(Some(id)) => return Ok(Some(id)),
            Ok(None) => {}
            Err(error) => damage = Some(error),
        }
    }
    damage.map_or(Ok(None), Err)
}

/// What says that a file, or a section of it, cannot be read.
pub(super) fn damaged(path: &Path, section: Option<&str>, error: impl std::fmt::Display) -> Error {
    let path = path.display();
    let message = match section {
        Some(section) => format!("{section} of {path} cannot be read: {error}"),
        None => format!("{path} cannot be read: {error}"),
    };
    Error::new(ErrorKind::InvalidData, message)
}

/// Bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
