//! The bytes of one object, as an ELF file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{CompressionFormat, LittleEndian, Object as _, ObjectSection as _, elf};

use super::file_map::FileMap;
use super::symbols;
use crate::{Error, ErrorKind};

/// A parsed 64-bit little-endian ELF file, which is what all supported machines have.
pub(super) type Elf<'d> = ElfFile64<'d, LittleEndian>;

/// An object's bytes.
#[derive(Debug)]
pub(super) struct Image(FileMap);

impl Image {
    /// Maps a file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        FileMap::of_file(&file).map(Self)
    }

    /// Takes an object from memory, as with [`FileMap::filled`].
    pub(super) fn filled(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        FileMap::filled(len, fill).map(Self)
    }

    /// The bytes as ELF.
    pub(super) fn elf(&self) -> Result<Elf<'_>, Error> {
        Elf::parse(&*self.0).map_err(|error| {
            Error::new(
                ErrorKind::InvalidData,
                format!("the file is no 64-bit little-endian ELF object ({error})"),
            )
        })
    }

    /// Returns what was read so far to the system.
    pub(super) fn give_back_pages(&self) {
        self.0.give_back_pages();
    }
}

/// The build id in lowercase hex; empty where there is none.
pub(super) fn build_id(elf: &Elf<'_>) -> String {
    use std::fmt::Write as _;

    let mut hex = String::new();
    for byte in elf.build_id().ok().flatten().unwrap_or_default() {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The address that the byte at this file offset was linked to.
pub(super) fn virtual_address(elf: &Elf<'_>, offset: u64) -> Option<u64> {
    elf.elf_program_headers()
        .iter()
        .filter(|header| header.p_type(LittleEndian) == elf::PT_LOAD)
        // Two segments may share a page of the file; code is looked for in the executable one.
        .filter(|header| header.p_flags(LittleEndian).0 & elf::PF_X.0 != 0)
        .find_map(|header| {
            let into = offset.checked_sub(header.p_offset(LittleEndian))?;
            (into < header.p_filesz(LittleEndian))
                .then(|| header.p_vaddr(LittleEndian).wrapping_add(into))
        })
}

/// Whether there is DWARF to be read.
pub(super) fn has_debug_info(elf: &Elf<'_>) -> bool {
    elf.section_by_name(".debug_info")
        // objcopy --only-keep-debug keeps the headers of the other sections, without their bytes; other tools do
        // the reverse.
        .is_some_and(|section| section.file_range().is_some_and(|(_, size)| size > 0))
}

/// Whether there is a symbol table.
pub(super) fn has_symbols(elf: &Elf<'_>) -> bool {
    symbols::any(elf)
}

/// The sections that frames are found with: borrowed from the file or, where they are compressed, unpacked.
pub(super) struct DebugSections<'d> {
    sections: Vec<(gimli::SectionId, Bytes<'d>)>,
}

enum Bytes<'d> {
    Mapped(&'d [u8]),
    Unpacked(FileMap),
}

impl<'d> DebugSections<'d> {
    /// Locates the sections, and unpacks them where needed.
    pub(super) fn read(elf: &Elf<'d>) -> Result<Self, Error> {
        use gimli::SectionId::*;

        let mut sections = Vec::new();
        for id in [
            DebugAbbrev,
            DebugAddr,
            DebugAranges,
            DebugInfo,
            DebugLine,
            DebugLineStr,
            DebugRanges,
            DebugRngLists,
            DebugStr,
            DebugStrOffsets,
        ] {
            let Some(section) = elf.section_by_name(id.name()) else {
                continue;
            };
            let unreadable = |what: String| {
                Error::new(
                    ErrorKind::InvalidData,
                    format!("the section {} cannot be read: {what}", id.name()),
                )
            };
            let data = section
                .compressed_data()
                .map_err(|error| unreadable(error.to_string()))?;
            let bytes = match data.format {
                CompressionFormat::None => Bytes::Mapped(data.data),
                CompressionFormat::Zlib => Bytes::Unpacked(
                    unpack(data.data, data.uncompressed_size)
                        .map_err(|error| unreadable(error.to_string()))?,
                ),
                format => {
                    return Err(unreadable(format!(
                        "its compression {format:?} is not supported; \
                         objcopy --decompress-debug-sections undoes it"
                    )));
                }
            };
            sections.push((id, bytes));
        }
        Ok(Self { sections })
    }

    /// A section's bytes; none if it is not there.
    pub(super) fn get(&self, id: gimli::SectionId) -> &[u8] {
        let section = self.sections.iter().find(|(section, _)| *section == id);
        match section {
            Some((_, Bytes::Mapped(bytes))) => bytes,
            Some((_, Bytes::Unpacked(bytes))) => bytes,
            None => &[],
        }
    }
}

fn unpack(data: &[u8], size: u64) -> io::Result<FileMap> {
    let size = usize::try_from(size).map_err(io::Error::other)?;
    FileMap::filled(size, |bytes| {
        flate2::bufread::ZlibDecoder::new(data).read_exact(bytes)
    })
}
