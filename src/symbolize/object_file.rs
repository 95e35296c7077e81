//! An ELF file: whatever of it is whole.

use std::borrow::Cow;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::read::elf::{
    CompressionHeader as _, FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable,
};
use object::{CompressedData, CompressionFormat, LittleEndian};

use crate::sys::mapped_file::MappedFile;
use crate::{Error, ErrorKind};

/// The class and the byte order of all supported machines.
pub(super) type Elf = FileHeader64<LittleEndian>;
pub(super) const ENDIAN: LittleEndian = LittleEndian;

/// What the sections of one file may be uncompressed to: a file of more is not for a process that
/// has other work to do.
const MOST_BYTES: u64 = 1 << 30;
/// What a section may be uncompressed to, as a multiple of what it takes in the file, beyond
/// [`ALWAYS_BYTES`]. Real sections have up to 20.
pub(super) const MOST_RATIO: u64 = 64;
/// What any section may be uncompressed to.
pub(super) const ALWAYS_BYTES: u64 = 1 << 20;

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
    data: &'d [u8],
    header: &'d Elf,
    sections: SectionTable<'d, Elf>,
}

impl<'d> ObjectFile<'d> {
    /// Reads the headers.
    ///
    /// # Errors
    ///
    /// Where they are damaged, or not those of an object for this kind of machine.
    pub(super) fn parse(bytes: &'d Bytes) -> Result<Self, Error> {
        let data = &**bytes;
        let parse = || {
            let header = Elf::parse(data)?;
            header.endian()?;
            let sections = header.sections(ENDIAN, data)?;
            Ok(Self {
                bytes,
                data,
                header,
                sections,
            })
        };
        parse().map_err(|error: object::Error| damaged(&bytes.path, None, error))
    }

    /// Where the file lies.
    pub(super) fn path(&self) -> &'d Path {
        &self.bytes.path
    }

    /// As [`Bytes::forget`].
    pub(super) fn forget(&self) {
        self.bytes.forget();
    }

    pub(super) fn data(&self) -> &'d [u8] {
        self.data
    }

    pub(super) fn sections(&self) -> &SectionTable<'d, Elf> {
        &self.sections
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
    /// Where notes are damaged and no whole one is a build id.
    pub(super) fn build_id(&self) -> Result<String, Error> {
        let mut damage = None;
        let of_sections = self.sections.iter().map(|s| s.notes(ENDIAN, self.data));
        let segments = self.program_headers().iter();
        let of_segments = segments.map(|s| s.notes(ENDIAN, self.data));
        for notes in of_sections.chain(of_segments) {
            let notes = notes.and_then(|notes| {
                let Some(mut notes) = notes else {
                    return Ok(None);
                };
                while let Some(note) = notes.next()? {
                    if note.name() == elf::ELF_NOTE_GNU
                        && note.n_type(ENDIAN) == elf::NT_GNU_BUILD_ID
                    {
                        return Ok(Some(note.desc()));
                    }
                }
                Ok(None)
            });
            match notes {
                Ok(Some(id)) => return Ok(hex(id)),
                Ok(None) => {}
                Err(error) => damage = Some(error),
            }
        }
        match damage {
            Some(error) => Err(self.damaged("the build id", error)),
            None => Ok(String::new()),
        }
    }

    fn program_headers(&self) -> &'d [ProgramHeader64<LittleEndian>] {
        let headers = self.header.program_headers(ENDIAN, self.data);
        headers.unwrap_or_default()
    }

    /// The link-time address of what lies at an offset in the file; `None` where that is loaded
    /// nowhere.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.program_headers().iter().find_map(|header| {
            let into = offset.checked_sub(header.p_offset(ENDIAN))?;
            let is_there = header.p_type(ENDIAN) == elf::PT_LOAD && into < header.p_filesz(ENDIAN);
            is_there.then(|| header.p_vaddr(ENDIAN).checked_add(into))?
        })
    }

    fn section(&self, name: &str) -> Option<&'d SectionHeader64<LittleEndian>> {
        let by_name = |name: &str| self.sections.section_by_name(ENDIAN, name.as_bytes());
        let section = by_name(name).map(|(_, section)| section).or_else(|| {
            // Compressed as it was before there was a flag for it.
            let name = name.strip_prefix(".debug_")?;
            by_name(&format!(".zdebug_{name}")).map(|(_, section)| section)
        })?;
        // A debug file has the headers of sections whose bytes are elsewhere.
        (section.sh_type(ENDIAN) != elf::SHT_NOBITS).then_some(section)
    }

    /// Whether there is a section of this name, with bytes.
    pub(super) fn has_section(&self, name: &str) -> bool {
        self.section(name).is_some()
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
        let bytes = section.data(ENDIAN, self.data);
        bytes.map(Some).map_err(|error| self.damaged(name, error))
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
        let Some(section) = self.section(name) else {
            return Ok(Cow::Borrowed(&[]));
        };
        let mut uncompress = || {
            let data = self.compressed(section)?;
            if data.format != CompressionFormat::None {
                budget.take(data.uncompressed_size, data.data.len())?;
            }
            data.decompress().map_err(|error| error.to_string())
        };
        uncompress().map_err(|error: String| self.damaged(name, error))
    }

    fn compressed(
        &self,
        section: &SectionHeader64<LittleEndian>,
    ) -> Result<CompressedData<'d>, String> {
        let text = |error: object::Error| error.to_string();
        if let Some((header, offset, size)) =
            section.compression(ENDIAN, self.data).map_err(text)?
        {
            let format = match header.ch_type(ENDIAN) {
                elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
                elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
                other => return Err(format!("it is compressed in an unknown way ({other:?})")),
            };
            let range = offset as usize..(offset.saturating_add(size)) as usize;
            let data = self.data.get(range).ok_or("it is not whole")?;
            return Ok(CompressedData {
                format,
                data,
                uncompressed_size: header.ch_size(ENDIAN),
            });
        }
        let data = section.data(ENDIAN, self.data).map_err(text)?;
        let name = self.sections.section_name(ENDIAN, section).map_err(text)?;
        if !name.starts_with(b".zdebug_") {
            return Ok(CompressedData::none(data));
        }
        let (magic, rest) = data.split_at_checked(4).unwrap_or_default();
        let (size, data) = rest.split_first_chunk().ok_or("it has no header")?;
        if magic != b"ZLIB" {
            return Err("it has no header".to_owned());
        }
        Ok(CompressedData {
            format: CompressionFormat::Zlib,
            data,
            uncompressed_size: u64::from_be_bytes(*size),
        })
    }
}

/// What may still be uncompressed.
#[derive(Debug)]
pub(super) struct Budget(u64);

impl Budget {
    pub(super) fn new() -> Self {
        Self(MOST_BYTES)
    }

    /// Takes what `stored` bytes are said to become.
    fn take(&mut self, bytes: u64, stored: usize) -> Result<(), String> {
        let most = ALWAYS_BYTES.saturating_add(MOST_RATIO.saturating_mul(stored as u64));
        match self.0.checked_sub(bytes) {
            Some(left) if bytes <= most => {
                self.0 = left;
                Ok(())
            }
            _ => Err(format!(
                "{stored} compressed bytes are said to be {bytes}, more than is read"
            )),
        }
    }
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
