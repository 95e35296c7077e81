//! An ELF object in memory, read through its program headers: no file is opened, no section header
//! needed.

use std::ffi::CStr;
use std::sync::Arc;

use super::arch;
use super::eh_frame_hdr::{eh_frame_address, is_searchable};
use super::elf::build_id_note;
use super::maps::{Maps, MapsEntry};
use super::memory::PAGE;
use super::modules::{Module, Object, Section, Segment};

/// An object in memory, seen through its program headers while the loader holds it in place.
pub(super) struct Image<'l> {
    bias: u64,
    name: &'l CStr,
    headers: &'l [libc::Elf64_Phdr],
    /// What is to be added to a link-time address for where the object's bytes are: its bias,
    /// unless they were copied.
    to_bytes: u64,
}

impl<'l> Image<'l> {
    /// # Safety
    ///
    /// `info` is what the loader passes to a callback of `dl_iterate_phdr` that is still running.
    /// `None` for an entry without program headers.
    pub(super) unsafe fn new(info: &'l libc::dl_phdr_info) -> Option<Self> {
        if info.dlpi_phdr.is_null() || info.dlpi_phnum == 0 {
            return None;
        }
        // SAFETY: the loader's pointer to as many headers as it says.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let name = if info.dlpi_name.is_null() {
            c""
        } else {
            // SAFETY: the loader's own string.
            unsafe { CStr::from_ptr(info.dlpi_name) }
        };
        Some(Self {
            bias: info.dlpi_addr,
            name,
            headers,
            to_bytes: info.dlpi_addr,
        })
    }

    /// An object whose bytes were copied, from the link-time address `start` on; it has no name of
    /// the loader's.
    ///
    /// # Safety
    ///
    /// The copy reaches from the beginning of its lowest segment to the end of the highest.
    pub(super) unsafe fn of_copy(
        bias: u64,
        headers: &'l [libc::Elf64_Phdr],
        start: u64,
        bytes: &'l [u8],
    ) -> Self {
        Self {
            bias,
            name: c"",
            headers,
            to_bytes: (bytes.as_ptr() as u64).wrapping_sub(start),
        }
    }

    fn segments(&self) -> impl Iterator<Item = &'l libc::Elf64_Phdr> {
        self.headers.iter().filter(|h| h.p_type == libc::PT_LOAD)
    }

    /// The bytes at a link-time address, if they lie in a readable segment as far as its file goes.
    fn bytes(&self, address: u64, len: u64) -> Option<&'l [u8]> {
        let segment = self.segment_of(address)?;
        let end = address.checked_add(len)?;
        (end <= segment.p_vaddr + segment.p_filesz).then_some(())?;
        let start = self.to_bytes.wrapping_add(address) as *const u8;
        // SAFETY: within a readable segment, which was copied, or which the loader keeps mapped
        // while it holds its lock. Unwind sections, notes, and the dynamic section with its tables
        // are not written after the object was put on the loader's list.
        Some(unsafe { std::slice::from_raw_parts(start, len as usize) })
    }

    fn segment_of(&self, address: u64) -> Option<&'l libc::Elf64_Phdr> {
        self.segments().find(|h| {
            h.p_flags & libc::PF_R != 0 && h.p_vaddr <= address && address - h.p_vaddr < h.p_filesz
        })
    }

    /// Its executable segments, in ascending order.
    pub(super) fn code(&self) -> Vec<Segment> {
        let mut code: Vec<Segment> = self
            .segments()
            .filter(|h| h.p_flags & libc::PF_X != 0 && h.p_memsz > 0)
            .map(|h| Segment {
                start: self.bias.wrapping_add(h.p_vaddr) & !(PAGE - 1),
                end: self
                    .bias
                    .wrapping_add(h.p_vaddr + h.p_memsz)
                    .next_multiple_of(PAGE),
                file_offset: h.p_offset & !(PAGE - 1),
            })
            .collect();
        code.sort_unstable_by_key(|s| s.start);
        code
    }

    fn range(&self) -> std::ops::Range<u64> {
        let start = self.segments().map(|h| h.p_vaddr).min().unwrap_or(0) & !(PAGE - 1);
        let end = self
            .segments()
            .map(|h| h.p_vaddr + h.p_memsz)
            .max()
            .unwrap_or(0);
        self.bias.wrapping_add(start)..self.bias.wrapping_add(end)
    }

    /// An address in this process.
    pub(super) fn address(&self, link_time: u64) -> u64 {
        self.bias.wrapping_add(link_time)
    }

    /// The dynamic section.
    pub(super) fn dynamic_section(&self) -> Option<&'l [u8]> {
        let header = self.headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC)?;
        self.bytes(header.p_vaddr, header.p_filesz)
    }

    /// The table that a pointer of the dynamic section leads to, and what follows in its segment's
    /// file. glibc has turned most such pointers into addresses of this process; those of the vDSO,
    /// and of any object whose dynamic section cannot be written, are link-time addresses still.
    pub(super) fn table(&self, pointer: u64) -> Option<&'l [u8]> {
        let relocated = pointer.checked_sub(self.bias);
        let address = relocated.filter(|&a| self.segment_of(a).is_some());
        let address = address.unwrap_or(pointer);
        let segment = self.segment_of(address)?;
        let end = segment.p_vaddr.checked_add(segment.p_filesz)?;
        self.bytes(address, end - address)
    }

    /// The address in this process of a word that the loader fills, if it is a word of a segment
    /// that it can write.
    pub(super) fn slot(&self, link_time: u64) -> Option<usize> {
        let address = usize::try_from(self.address(link_time)).ok()?;
        let is_within = self.is_written_at(link_time, size_of::<usize>() as u64);
        (is_within && address.is_multiple_of(align_of::<usize>())).then_some(address)
    }

    fn is_written_at(&self, link_time: u64, len: u64) -> bool {
        const READ_WRITE: u32 = libc::PF_R | libc::PF_W;
        self.segments().any(|h| {
            let offset = link_time.checked_sub(h.p_vaddr);
            let end = offset.and_then(|offset| offset.checked_add(len));
            h.p_flags & READ_WRITE == READ_WRITE && end.is_some_and(|end| end <= h.p_memsz)
        })
    }

    /// The pages that the loader makes read-only when it has relocated the object, rounded as it
    /// rounds them; `None` where it makes none so. They can be written before that.
    pub(super) fn sealed_pages(&self, page: u64) -> Option<std::ops::Range<u64>> {
        let mut headers = self.headers.iter();
        let header = headers.find(|h| h.p_type == libc::PT_GNU_RELRO)?;
        let start = self.address(header.p_vaddr);
        let end = start.checked_add(header.p_memsz)?;
        let pages = start & !(page - 1)..end & !(page - 1);
        (!pages.is_empty() && self.is_written_at(header.p_vaddr, 1)).then_some(pages)
    }

    /// Whether an address of this process lies in the object's code.
    pub(super) fn has_code_at(&self, address: u64) -> bool {
        let link_time = address.wrapping_sub(self.bias);
        self.segments().any(|h| {
            h.p_flags & libc::PF_X != 0
                && link_time
                    .checked_sub(h.p_vaddr)
                    .is_some_and(|o| o < h.p_memsz)
        })
    }

    /// Whether this could be an address of the object that was not moved to where the object lies.
    pub(super) fn may_be_unmoved(&self, address: u64) -> bool {
        let mut segments = self.segments();
        self.bias != 0
            && segments.any(|h| {
                address
                    .checked_sub(h.p_vaddr)
                    .is_some_and(|o| o < h.p_memsz)
            })
    }

    fn build_id(&self) -> &'l [u8] {
        self.headers
            .iter()
            .filter(|h| h.p_type == libc::PT_NOTE)
            .filter_map(|h| build_id_note(self.bytes(h.p_vaddr, h.p_filesz)?, h.p_align as usize))
            .next()
            .unwrap_or_default()
    }

    fn eh_frame_hdr(&self) -> Option<(u64, &'l [u8])> {
        let header = self
            .headers
            .iter()
            .find(|h| h.p_type == libc::PT_GNU_EH_FRAME)?;
        Some((header.p_vaddr, self.bytes(header.p_vaddr, header.p_filesz)?))
    }

    /// Whether this is the object that `module` was copied from. A build id says so; where there is
    /// none, the search table of the unwind data, which holds the place of every function.
    pub(super) fn is(&self, module: &Module) -> bool {
        self.bias == module.bias
            && self.range() == module.range
            && self.build_id() == module.object.build_id
            && match (&module.eh_frame_hdr, self.eh_frame_hdr()) {
                (Some(known), Some((_, now))) => *known.bytes == *now,
                _ => !module.object.build_id.is_empty(),
            }
    }

    pub(super) fn copy(&self, is_main: bool, maps: &Maps) -> Module {
        let hdr = self.eh_frame_hdr();
        let eh_frame = hdr
            .and_then(|(address, bytes)| eh_frame_address(address, bytes))
            .and_then(|address| Some((address, self.eh_frame(address)?)));
        let section = |(address, bytes): (u64, &[u8])| Section {
            address,
            bytes: bytes.into(),
        };
        let entry = self.entry(maps);
        let object = self.object(is_main, maps);
        Module {
            bias: self.bias,
            range: self.range(),
            eh_frame_hdr: hdr
                .filter(|hdr| eh_frame.is_some_and(|eh_frame| is_searchable(*hdr, eh_frame)))
                .map(section),
            eh_frame: eh_frame.map(section),
            signal_return: self.signal_return(&object.path),
            file: entry.and_then(|entry| entry.file),
            object: Arc::new(object),
        }
    }

    /// What the object is, without its unwind data.
    pub(super) fn object(&self, is_main: bool, maps: &Maps) -> Object {
        let mut path = self.path(self.entry(maps).as_ref());
        if is_main && path.is_empty() {
            // The loader knows no name of the program's; a link can be read where no file can be
            // opened.
            let executable = std::fs::read_link("/proc/self/exe").unwrap_or_default();
            path = executable.to_string_lossy().into_owned();
        }
        Object {
            path,
            build_id: self.build_id().to_vec(),
            is_main,
            code: self.code(),
        }
    }

    /// Where the object is in the maps.
    fn entry<'m>(&self, maps: &'m Maps) -> Option<MapsEntry<'m>> {
        let code = self.code();
        maps.find(
            code.first()
                .map_or(self.range().start, |segment| segment.start),
        )
    }

    fn signal_return(&self, path: &str) -> Option<u64> {
        if path != "[vdso]" {
            return None;
        }
        let mut code = self.segments().filter(|h| h.p_flags & libc::PF_X != 0);
        code.find_map(|h| {
            let offset = arch::signal_return(self.bytes(h.p_vaddr, h.p_filesz)?)?;
            Some(self.address(h.p_vaddr) + offset as u64)
        })
    }

    /// The section has no length of its own in the program headers: it ends with an entry of length
    /// 0, or with its segment.
    fn eh_frame(&self, address: u64) -> Option<&'l [u8]> {
        let segment = self.segment_of(address)?;
        let all = self.bytes(address, segment.p_vaddr + segment.p_filesz - address)?;
        let mut end = 0;
        loop {
            let u32_at = |at: usize| Some(u32::from_ne_bytes(*all.get(at..)?.first_chunk()?));
            let len = match u32_at(end) {
                None => break,
                Some(0) => {
                    end += 4;
                    break;
                }
                Some(u32::MAX) => {
                    let bytes = all.get(end + 4..).and_then(|b| b.first_chunk());
                    bytes.map_or(u64::MAX, |b| u64::from_ne_bytes(*b).saturating_add(12))
                }
                Some(len) => u64::from(len) + 4,
            };
            match usize::try_from(len)
                .ok()
                .and_then(|len| end.checked_add(len))
            {
                Some(next) if next <= all.len() => end = next,
                _ => break,
            }
        }
        all.get(..end)
    }

    /// The kernel's name for the file; the loader's is what the program asked for, a link or a
    /// relative path at times.
    fn path(&self, entry: Option<&MapsEntry<'_>>) -> String {
        let path = entry
            .map(|entry| entry.path)
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .unwrap_or_else(|| self.name.to_string_lossy().into_owned());
        match path.strip_suffix(" (deleted)") {
            Some(path) => path.to_owned(),
            None => path,
        }
    }
}
