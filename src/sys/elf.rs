//! Sections of an ELF file, by its section headers, and where its segments are loaded. Any bytes
//! will do: what makes no sense is not there.
#![forbid(unsafe_code)]

use std::io::Read as _;

use flate2::read::ZlibDecoder;

use super::arch::ELF_MACHINE;
use super::brief_file::BriefFile;

/// The largest section that is read, as it is stored and as it was before it was compressed.
const MOST_BYTES: u64 = 64 << 20;
/// Notes that are looked through for a build id, in bytes; usual ones have less than 100.
const MOST_NOTES: u64 = 64 << 10;
/// Linked objects have some 40.
const MOST_SECTIONS: u64 = 1 << 16;

/// The longer one of both classes.
const FILE_HEADER: usize = 64;
/// The longer one of both classes.
const SECTION_HEADER: usize = 64;
/// So many section headers are read at a time.
const HEADERS: usize = 64;
/// The longer one of both classes.
const PROGRAM_HEADER: usize = 56;

const PT_LOAD: u32 = 1;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_NOTE: u32 = 7;
const SHT_DYNSYM: u32 = 11;
const SHF_COMPRESSED: u64 = 1 << 11;

/// What an ELF file is read from.
pub(crate) trait Source {
    /// How many bytes there are.
    fn len(&self) -> u64;

    /// Fills `bytes` from a place on; `None` where there are not as many.
    fn read_at(&self, place: u64, bytes: &mut [u8]) -> Option<()>;
}

impl Source for BriefFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, place: u64, bytes: &mut [u8]) -> Option<()> {
        self.read_exact_at(place, bytes).ok()
    }
}

/// How wide addresses are (gABI, `EI_CLASS`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Elf32,
    Elf64,
}

impl Class {
    /// `narrow` in a file of 32 bits, `wide` in one of 64.
    const fn pick(self, narrow: usize, wide: usize) -> usize {
        match self {
            Self::Elf32 => narrow,
            Self::Elf64 => wide,
        }
    }

    const fn file_header(self) -> usize {
        self.pick(52, FILE_HEADER)
    }

    const fn section_header(self) -> usize {
        self.pick(40, SECTION_HEADER)
    }

    const fn program_header(self) -> usize {
        self.pick(32, PROGRAM_HEADER)
    }

    /// An address, an offset or a size: `narrow` is its place in a file of 32 bits, `wide` in one
    /// of 64.
    fn long(self, bytes: &[u8], narrow: usize, wide: usize) -> Option<u64> {
        match self {
            Self::Elf32 => word(bytes, narrow).map(u64::from),
            Self::Elf64 => long(bytes, wide),
        }
    }
}

/// A file of this machine's byte order (gABI, "Object Files").
pub(crate) struct Elf<'s, S> {
    source: &'s S,
    class: Class,
    /// How many bytes the file has.
    len: u64,
    /// Where the program headers lie, and how many there are.
    program_headers: u64,
    program_header_count: u16,
    /// Where the section headers lie, and how many there are.
    headers: u64,
    count: u64,
    /// Where the names of sections lie.
    names: u64,
}

/// A header, as it is in the file.
#[derive(Clone, Copy)]
struct Header {
    name: u32,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: u32,
    align: u64,
}

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// Where it lies in the file.
    pub(crate) offset: u64,
    /// Where the linker had it loaded.
    pub(crate) address: u64,
    /// How many bytes of the file it has.
    pub(crate) size: u64,
}

impl Segment {
    /// The address that the linker gave to what lies at this offset in the file, if that is in this
    /// segment.
    pub(crate) fn link_address(&self, offset: u64) -> Option<u64> {
        let into = offset.checked_sub(self.offset)?;
        let is_there = into < self.size;
        is_there.then(|| self.address.checked_add(into))?
    }
}

/// Where a section lies, and how it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    offset: u64,
    size: usize,
    /// Bytes of it when it is read.
    pub(crate) len: usize,
    is_compressed: bool,
}

impl<'s, S: Source> Elf<'s, S> {
    /// The file that `source` holds: an executable or a library of this machine, with section
    /// headers.
    pub(crate) fn new(source: &'s S) -> Option<Self> {
        let mut machine = [0; 2];
        source.read_at(18, &mut machine)?;
        let elf = Self::of_any_machine(source)?;
        let is_native = elf.class == Class::Elf64 && u16::from_ne_bytes(machine) == ELF_MACHINE;
        is_native.then_some(elf)
    }

    /// As [`new`](Self::new), of any machine that has this one's order of bytes.
    pub(crate) fn of_any_machine(source: &'s S) -> Option<Self> {
        const ET_EXEC: u16 = 2;
        const ET_DYN: u16 = 3;
        let mut bytes = [0; FILE_HEADER];
        source.read_at(0, bytes.first_chunk_mut::<16>()?)?;
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        let class = match bytes.get(..7)? {
            [0x7f, b'E', b'L', b'F', 1, data, 1] if *data == order => Class::Elf32,
            [0x7f, b'E', b'L', b'F', 2, data, 1] if *data == order => Class::Elf64,
            _ => return None,
        };
        source.read_at(0, bytes.get_mut(..class.file_header())?)?;
        let is_linked = matches!(half(&bytes, 16)?, ET_EXEC | ET_DYN);
        // What follows the addresses of the header.
        let half = |narrow, wide| half(&bytes, class.pick(narrow, wide));
        let is_usual = usize::from(half(46, 58)?) == class.section_header()
            && usize::from(half(42, 54)?) == class.program_header();
        if !is_linked || !is_usual {
            return None;
        }
        let mut elf = Self {
            source,
            class,
            len: source.len(),
            program_headers: class.long(&bytes, 28, 32)?,
            program_header_count: half(44, 56)?,
            headers: class.long(&bytes, 32, 40)?,
            count: half(48, 60)?.into(),
            names: 0,
        };
        // Numbers that 16 bits cannot hold stand in the first section's header.
        const IN_FIRST: u16 = 0xffff;
        let names = match half(50, 62)? {
            IN_FIRST => elf.header(0)?.link.into(),
            index => u64::from(index),
        };
        if elf.count == 0 {
            elf.count = elf.header(0)?.size;
        }
        if elf.count > MOST_SECTIONS || names >= elf.count {
            return None;
        }
        elf.names = elf.header(names)?.offset;
        Some(elf)
    }

    fn header(&self, index: u64) -> Option<Header> {
        let mut buffer = [0; SECTION_HEADER];
        let bytes = buffer.get_mut(..self.class.section_header())?;
        let place = index.checked_mul(bytes.len() as u64)?;
        let place = self.headers.checked_add(place)?;
        self.source.read_at(place, bytes)?;
        Header::parse(self.class, bytes)
    }

    /// What `f` says of the first section that it says anything of.
    fn find<T>(&self, mut f: impl FnMut(&Header) -> Option<T>) -> Option<T> {
        let mut buffer = [0; HEADERS * SECTION_HEADER];
        let size = self.class.section_header();
        let mut place = self.headers;
        let mut left = usize::try_from(self.count).ok()? * size;
        while left > 0 {
            let bytes = buffer.get_mut(..left.min(HEADERS * size))?;
            self.source.read_at(place, bytes)?;
            place = place.checked_add(bytes.len() as u64)?;
            left -= bytes.len();
            let mut headers = bytes.chunks_exact(size);
            if let Some(found) = headers.find_map(|bytes| f(&Header::parse(self.class, bytes)?)) {
                return Some(found);
            }
        }
        None
    }

    /// The parts of the file that are loaded.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        let headers = (0..u64::from(self.program_header_count)).filter_map(|index| {
            let mut buffer = [0; PROGRAM_HEADER];
            let bytes = buffer.get_mut(..self.class.program_header())?;
            let place = (self.program_headers).checked_add(index * bytes.len() as u64)?;
            self.source.read_at(place, bytes)?;
            let segment = Segment {
                offset: self.class.long(bytes, 4, 8)?,
                address: self.class.long(bytes, 8, 16)?,
                size: self.class.long(bytes, 16, 32)?,
            };
            (word(bytes, 0)? == PT_LOAD).then_some(segment)
        });
        headers.collect()
    }

    /// Where functions begin, by the table of symbols, or by that of the loader where the file has no
    /// other; in no order.
    pub(crate) fn functions(&self) -> Vec<u64> {
        const SHN_UNDEF: u16 = 0;
        const STT_NOTYPE: u8 = 0;
        const STT_FUNC: u8 = 2;
        const STT_GNU_IFUNC: u8 = 10;
        let table = |kind| {
            self.find(|header| {
                let is_it = header.kind == kind;
                is_it.then(|| self.read(self.stored(header)?))?
            })
        };
        let Some(symbols) = table(SHT_SYMTAB).or_else(|| table(SHT_DYNSYM)) else {
            return Vec::new();
        };
        let class = self.class;
        let function = |symbol: &[u8]| {
            let kind = symbol.get(class.pick(12, 4))? & 0xf;
            let is_code = matches!(kind, STT_NOTYPE | STT_FUNC | STT_GNU_IFUNC);
            let is_here = half(symbol, class.pick(14, 6))? != SHN_UNDEF;
            (is_code && is_here).then(|| class.long(symbol, 4, 8))?
        };
        let symbols = symbols.chunks_exact(class.pick(16, 24));
        symbols.filter_map(function).collect()
    }

    /// The linker's note that tells this file from others.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        self.find(|header| {
            if header.kind != SHT_NOTE || header.size > MOST_NOTES {
                return None;
            }
            let mut notes = vec![0; usize::try_from(header.size).ok()?];
            self.source.read_at(header.offset, &mut notes)?;
            let align = usize::try_from(header.align).ok()?;
            Some(build_id_note(&notes, align)?.to_vec())
        })
    }

    /// The section of this name, if it is not too large and not compressed by what nobody here
    /// undoes (zstd, and the older form that gives a section another name).
    pub(crate) fn section(&self, name: &[u8]) -> Option<Stored> {
        self.find(|header| {
            let is_it = header.kind == SHT_PROGBITS && self.has_name(header, name)?;
            is_it.then(|| self.stored(header))?
        })
    }

    fn has_name(&self, header: &Header, name: &[u8]) -> Option<bool> {
        const LONGEST: usize = 32;
        let mut buffer = [0; LONGEST];
        let found = buffer.get_mut(..=name.len())?;
        let place = self.names.checked_add(header.name.into())?;
        // A shorter name can be the last bytes of the file.
        if self.source.read_at(place, found).is_none() {
            return Some(false);
        }
        let [found @ .., 0] = &*found else {
            return Some(false);
        };
        Some(found == name)
    }

    fn stored(&self, header: &Header) -> Option<Stored> {
        /// The longer one of both classes.
        const COMPRESSION_HEADER: usize = 24;
        const ZLIB: u32 = 1;
        let mut stored = Stored {
            offset: header.offset,
            size: usize::try_from(header.size).ok()?,
            len: usize::try_from(header.size).ok()?,
            is_compressed: header.flags & SHF_COMPRESSED != 0,
        };
        if stored.is_compressed {
            let mut buffer = [0; COMPRESSION_HEADER];
            let bytes = buffer.get_mut(..self.class.pick(12, COMPRESSION_HEADER))?;
            self.source.read_at(stored.offset, bytes)?;
            stored.offset = stored.offset.checked_add(bytes.len() as u64)?;
            stored.size = stored.size.checked_sub(bytes.len())?;
            stored.len = usize::try_from(self.class.long(bytes, 4, 8)?).ok()?;
            if word(bytes, 0)? != ZLIB {
                return None;
            }
        }
        let end = stored.offset.checked_add(stored.size as u64)?;
        let is_small = stored.size.max(stored.len) as u64 <= MOST_BYTES;
        (end <= self.len && is_small).then_some(stored)
    }

    /// The bytes of a section as they lie in the file, for [`Stored::restored`].
    pub(crate) fn read(&self, section: Stored) -> Option<Vec<u8>> {
        let mut bytes = vec![0; section.size];
        self.source.read_at(section.offset, &mut bytes)?;
        Some(bytes)
    }
}

impl Header {
    fn parse(class: Class, bytes: &[u8]) -> Option<Self> {
        Some(Self {
            name: word(bytes, 0)?,
            kind: word(bytes, 4)?,
            flags: class.long(bytes, 8, 8)?,
            offset: class.long(bytes, 16, 24)?,
            size: class.long(bytes, 20, 32)?,
            link: word(bytes, class.pick(24, 40))?,
            align: class.long(bytes, 32, 48)?,
        })
    }
}

impl Stored {
    /// The section's bytes as they were before they were compressed.
    pub(crate) fn restored(self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if !self.is_compressed {
            return Some(bytes);
        }
        // It grows as there is something to fill it with: the length is what the file says.
        let mut restored = Vec::new();
        let decoder = ZlibDecoder::new(&*bytes);
        let mut limited = decoder.take(self.len as u64 + 1);
        limited.read_to_end(&mut restored).ok()?;
        (restored.len() == self.len).then_some(restored)
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The descriptor of the `NT_GNU_BUILD_ID` note among others (elf(5)).
pub(super) fn build_id_note(mut notes: &[u8], align: usize) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let align = align.clamp(4, 8);
    loop {
        let name_len = word(notes, 0)? as usize;
        let desc_len = word(notes, 4)? as usize;
        let desc_start = name_len.checked_add(12)?.checked_next_multiple_of(align)?;
        let desc_end = desc_start.checked_add(desc_len)?;
        if word(notes, 8)? == NT_GNU_BUILD_ID && notes.get(12..)?.starts_with(b"GNU\0") {
            return notes.get(desc_start..desc_end);
        }
        notes = notes.get(desc_end.checked_next_multiple_of(align)?..)?;
    }
}

#[cfg(any(test, fuzzing))]
impl Source for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, place: u64, bytes: &mut [u8]) -> Option<()> {
        let from = self.get(usize::try_from(place).ok()?..)?;
        bytes.copy_from_slice(from.get(..bytes.len())?);
        Some(())
    }
}

/// Looks for all there is in a file of any bytes; the length of its `.debug_frame`.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_any(bytes: &[u8]) -> Option<usize> {
    let elf = Elf::of_any_machine(&bytes)?;
    let _ = elf.build_id();
    let _ = elf.segments();
    let _ = elf.functions();
    let section = elf.section(b".debug_frame")?;
    let restored = section.restored(elf.read(section)?)?;
    assert_eq!(restored.len(), section.len);
    Some(restored.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_notes_are_refused() {
        assert_eq!(build_id_note(&[0xff; 40], 4), None);
        assert_eq!(build_id_note(&[], 4), None);
    }

    /// This program, whose section headers no loader has ever seen.
    #[test]
    fn sections_are_found_by_name() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let program = &*program;
        let elf = Elf::new(&program).unwrap();
        assert!(elf.build_id().is_some_and(|id| id.len() >= 8));
        let section = elf.section(b".comment").unwrap();
        let bytes = section.restored(elf.read(section).unwrap()).unwrap();
        assert_eq!(bytes.len(), section.len);
        assert!(bytes.ends_with(&[0]));
        assert!(elf.section(b".commen").is_none());
        assert!(elf.section(&[b'n'; 100]).is_none());
    }

    /// The kernel tells of this program where its program headers and its entry point are.
    #[test]
    fn link_addresses_are_as_far_apart_as_what_is_loaded() {
        const AT_PHDR: u64 = 3;
        const AT_ENTRY: u64 = 9;
        let auxv = std::fs::read("/proc/self/auxv").unwrap();
        let value = |kind| {
            let mut pairs = auxv.chunks_exact(16);
            let pair = pairs.find(|pair| long(pair, 0) == Some(kind)).unwrap();
            long(pair, 8).unwrap()
        };
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = &*program;
        let elf = Elf::new(&elf).unwrap();
        let segments = elf.segments();
        let link_address = |offset| segments.iter().find_map(|s| s.link_address(offset));
        let headers = link_address(elf.program_headers).unwrap();
        let entry = long(&program, 24).unwrap();
        assert_eq!(
            entry.wrapping_sub(headers),
            value(AT_ENTRY).wrapping_sub(value(AT_PHDR))
        );
        assert_eq!(link_address(u64::MAX), None);
    }

    #[test]
    fn functions_begin_where_the_table_of_symbols_says() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let program = &*program;
        let functions = Elf::new(&program).unwrap().functions();
        let entry = long(program, 24).unwrap();
        // `_start`, and enough others.
        assert!(functions.contains(&entry));
        assert!(functions.len() > 1000);
    }

    #[test]
    fn what_is_compressed_has_the_length_that_it_says() {
        use std::io::Write as _;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
        encoder.write_all(&[7; 10_000]).unwrap();
        let bytes = encoder.finish().unwrap();
        let restored = |len| {
            let stored = Stored {
                offset: 0,
                size: bytes.len(),
                len,
                is_compressed: true,
            };
            stored.restored(bytes.clone())
        };
        assert_eq!(restored(10_000), Some(vec![7; 10_000]));
        assert_eq!([9_999, 10_001, 0].map(restored), [None, None, None]);
    }
}
