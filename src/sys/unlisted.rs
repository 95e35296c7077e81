//! ELF objects that are mapped and in no list of the loader's: those of other namespaces
//! (`dlmopen`), which `dl_iterate_phdr` does not show, and of loaders of a program's own.
//!
//! Nobody holds them in place while they are looked at, so all that is read of them is copied by
//! the kernel first.

use std::sync::Arc;

use super::image::Image;
use super::maps::{Maps, MapsEntry};
use super::memory::{Pages, copy_from};
use super::modules::{Module, Segment};

/// How many mappings below its code an object may begin.
const MOST_MAPPINGS: usize = 8;
/// Larger objects are left out, as they are where a header is no header.
const MOST_BYTES: u64 = 1 << 30;

/// The objects whose code lies in `maps` and in none of `listed`. One that is unchanged since
/// `known` was made is taken from there.
pub(super) fn unlisted<'k>(
    known: impl Iterator<Item = &'k Arc<Module>> + Clone,
    listed: &[Arc<Module>],
    maps: &Maps,
) -> Vec<Arc<Module>> {
    let mut taken: Vec<Segment> = listed
        .iter()
        .flat_map(|module| module.object.code.iter().copied())
        .collect();
    let mut found = Vec::new();
    // What lies below the code, nearest last.
    let mut below: Vec<MapsEntry<'_>> = Vec::new();
    for entry in maps.entries().filter(|entry| entry.path.starts_with('/')) {
        if below.last().is_some_and(|last| last.path != entry.path) {
            below.clear();
        }
        below.push(entry);
        let Some(code) = below.last().filter(|e| e.permissions.contains('x')) else {
            continue;
        };
        let is_free = |segment: &Segment| {
            let segment = *segment;
            !taken.iter().any(|other| other.overlaps(&segment))
        };
        let range = Segment {
            start: code.start,
            end: code.end,
            file_offset: 0,
        };
        if !is_free(&range) {
            continue;
        }
        let object = below
            .iter()
            .rev()
            .take(MOST_MAPPINGS)
            .find_map(|entry| Copied::new(entry.start));
        let Some(object) = object else { continue };
        let image = object.image();
        let segments = image.code();
        // A file that is mapped whole has its code elsewhere than its headers say.
        let is_in_place = |segment: &Segment| {
            let entry = maps.find(segment.start);
            entry.is_some_and(|e| e.start == segment.start && e.path == code.path)
        };
        if !segments.iter().all(|s| is_free(s) && is_in_place(s))
            || !segments.iter().any(|s| s.overlaps(&range))
        {
            continue;
        }
        let module = known
            .clone()
            .find(|module| image.is(module))
            .cloned()
            .unwrap_or_else(|| Arc::new(image.copy(false, maps)));
        if module.eh_frame.is_none() && object.says_it_has_unwind_data() {
            // The loader is about to map the rest of it; the next list has it.
            continue;
        }
        taken.extend(segments);
        found.push(module);
    }
    found
}

/// What unwinding needs of an object, copied: its program headers, and the segments that are only
/// read.
struct Copied {
    bias: u64,
    headers: Vec<libc::Elf64_Phdr>,
    start: u64,
    bytes: Bytes,
}

/// Zeroed bytes in pages of their own, which take memory only where they are written.
struct Bytes {
    pages: Pages,
    len: usize,
}

impl Bytes {
    fn zeroed(len: usize) -> Option<Self> {
        let pages = Pages::map(len).ok()?;
        Some(Self { pages, len })
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: the pages are as long, zeroed at least, and this value's own.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr(), self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed by the caller alone.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_ptr(), self.len) }
    }
}

impl Copied {
    /// Copies the object whose ELF header lies at `start`; `None` where there is none.
    fn new(start: u64) -> Option<Self> {
        let mut header = [0_u8; size_of::<libc::Elf64_Ehdr>()];
        copy_from(start, &mut header)?;
        // SAFETY: integers, of which all bits may be set, and as many bytes.
        let header: libc::Elf64_Ehdr = unsafe { std::mem::transmute(header) };
        let is_elf = header.e_ident.starts_with(b"\x7fELF\x02")
            && matches!(header.e_type, libc::ET_DYN | libc::ET_EXEC)
            && usize::from(header.e_phentsize) == size_of::<libc::Elf64_Phdr>();
        if !is_elf {
            return None;
        }
        let headers = program_headers(start, &header)?;
        let segments = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        let (mut low, mut high) = (u64::MAX, 0);
        for segment in segments() {
            let end = segment.p_vaddr.checked_add(segment.p_memsz)?;
            let is_sane = segment.p_filesz <= segment.p_memsz;
            is_sane.then_some(())?;
            (low, high) = (low.min(segment.p_vaddr), high.max(end));
        }
        let first = segments().find(|h| h.p_offset == 0)?;
        let bias = start.wrapping_sub(first.p_vaddr);
        let len = high.checked_sub(low)?;
        if len > MOST_BYTES {
            return None;
        }
        // Segments that lie over each other are no loader's, and would be copied again and again.
        let copied = || segments().filter(|h| h.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R);
        let sum = copied().try_fold(0_u64, |sum, h| sum.checked_add(h.p_filesz))?;
        if sum > len {
            return None;
        }
        // Not the host's allocator, which ends the process where there is no room.
        let mut bytes = Bytes::zeroed(len as usize)?;
        for segment in copied() {
            let from = (segment.p_vaddr - low) as usize;
            let into = bytes
                .as_mut_slice()
                .get_mut(from..from + segment.p_filesz as usize)?;
            copy_from(bias.wrapping_add(segment.p_vaddr), into)?;
        }
        Some(Self {
            bias,
            start: low,
            headers,
            bytes,
        })
    }

    fn says_it_has_unwind_data(&self) -> bool {
        let mut types = self.headers.iter().map(|header| header.p_type);
        types.any(|p_type| p_type == libc::PT_GNU_EH_FRAME)
    }

    fn image(&self) -> Image<'_> {
        // SAFETY: the copy holds every segment, from the first one's beginning to the last one's
        // end.
        unsafe { Image::of_copy(self.bias, &self.headers, self.start, self.bytes.as_slice()) }
    }
}

fn program_headers(start: u64, header: &libc::Elf64_Ehdr) -> Option<Vec<libc::Elf64_Phdr>> {
    const MOST_HEADERS: u16 = 64;
    let count = usize::from(header.e_phnum.min(MOST_HEADERS));
    let mut bytes = vec![0_u8; count * size_of::<libc::Elf64_Phdr>()];
    copy_from(start.checked_add(header.e_phoff)?, &mut bytes)?;
    let headers = bytes.chunks_exact(size_of::<libc::Elf64_Phdr>());
    // SAFETY: integers, of which all bits may be set, and as many bytes; at any address.
    let read =
        |header: &[u8]| unsafe { header.as_ptr().cast::<libc::Elf64_Phdr>().read_unaligned() };
    Some(headers.map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::super::modules::loaded;
    use super::*;

    #[test]
    #[cfg_attr(target_arch = "aarch64", ignore = "the emulator's maps are of its own")]
    fn what_the_loader_does_not_list_is_as_what_it_lists() {
        let maps = Maps::read().unwrap();
        let listed = loaded([].iter(), &maps);
        assert!(unlisted([].iter(), &listed, &maps).is_empty());
        // As if the loader had listed the program alone.
        let found = unlisted([].iter(), &listed[..1], &maps);
        for module in listed[1..].iter().filter(|m| m.object.path != "[vdso]") {
            let same = found.iter().find(|f| f.object == module.object);
            let same = same.unwrap_or_else(|| panic!("{module:?} is found"));
            assert_eq!((same.bias, &same.range), (module.bias, &module.range));
            let bytes = |m: &Module| m.eh_frame.as_ref().map(|section| section.bytes.to_vec());
            assert!(bytes(same) == bytes(module), "{module:?}");
        }
        let again = unlisted(found.iter(), &listed[..1], &maps);
        assert_eq!(again.len(), found.len());
        assert!(again.iter().zip(&found).all(|(a, b)| Arc::ptr_eq(a, b)));
    }

    #[test]
    fn what_is_no_object_is_none() {
        let bytes = [0x7f_u8; 4096];
        assert!(Copied::new(bytes.as_ptr() as u64).is_none());
        assert!(Copied::new(0).is_none());
        assert!(Copied::new(u64::MAX - 7).is_none());
    }
}
