//! Loaded ELF objects: path, build id, executable segments, and a copy of their unwind sections.
//!
//! Everything comes from the dynamic loader's own list and the program headers in memory, so stripped, deleted and
//! sectionless files are no special case. The loader holds its lock while it shows the list, so an object cannot be
//! unmapped while it is being copied from.

use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;

use super::maps::Maps;

/// An executable segment, in addresses of this process; bounds are whole pages, as in `/proc/self/maps`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where in the file `start` lies.
    pub(crate) file_offset: u64,
}

impl Segment {
    /// Whether two segments share an address.
    pub(crate) fn overlaps(&self, other: &Segment) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// What a loaded object is, without its unwind data: small enough to be remembered after it is gone.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Object {
    /// The path as the kernel names it, without ` (deleted)`; `[vdso]` for the vDSO.
    pub(crate) path: String,
    /// The note of the linker; empty where there is none.
    pub(crate) build_id: Vec<u8>,
    /// The main executable.
    pub(crate) is_main: bool,
    /// Executable segments in ascending order.
    pub(crate) code: Vec<Segment>,
}

/// A section copied out of an object: its bytes and the link-time address that pointers in it count from.
#[derive(Clone)]
pub(crate) struct Section {
    pub(crate) address: u64,
    pub(crate) bytes: Arc<[u8]>,
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes.len(), self.address)
    }
}

/// A loaded object and what unwinding through it needs.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) object: Arc<Object>,
    /// Address in this process minus link-time address.
    pub(crate) bias: u64,
    /// All its segments, in addresses of this process.
    pub(crate) range: std::ops::Range<u64>,
    /// `.eh_frame_hdr`, where it has a search table.
    pub(crate) eh_frame_hdr: Option<Section>,
    pub(crate) eh_frame: Option<Section>,
}

impl Module {
    /// Bytes of unwind data that this value owns.
    pub(crate) fn size_bytes(&self) -> usize {
        [&self.eh_frame_hdr, &self.eh_frame]
            .into_iter()
            .flatten()
            .map(|section| section.bytes.len())
            .sum()
    }
}

/// How many objects have been loaded and unloaded since the process began: while it stays the same, so does the list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Generation {
    adds: u64,
    subs: u64,
}

impl Generation {
    /// The counters as they are now; cheap.
    pub(crate) fn now() -> Self {
        let mut generation = Self { adds: 0, subs: 0 };
        iterate(&mut |info| {
            generation = Self {
                adds: info.dlpi_adds,
                subs: info.dlpi_subs,
            };
            false
        });
        generation
    }
}

/// All loaded objects in the loader's order, the main executable first. One that is unchanged since `known` was made is
/// taken from there, so that its unwind data is not copied again.
pub(crate) fn loaded(known: &[Arc<Module>], maps: &Maps) -> Vec<Arc<Module>> {
    let mut modules = Vec::new();
    iterate(&mut |info| {
        // SAFETY: the loader passes its own list, and holds its lock until the callback returns.
        if let Some(image) = unsafe { Image::new(info) } {
            let module = known
                .iter()
                .find(|module| image.is(module))
                .cloned()
                .unwrap_or_else(|| Arc::new(image.copy(modules.is_empty(), maps)));
            modules.push(module);
        }
        true
    });
    modules
}

/// Calls `f` for each loaded object until it answers false.
fn iterate(f: &mut dyn FnMut(&libc::dl_phdr_info) -> bool) {
    unsafe extern "C" fn callback(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        data: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `data` is the reference passed below, alive for the whole iteration.
        let f = unsafe { &mut *data.cast::<&mut dyn FnMut(&libc::dl_phdr_info) -> bool>() };
        // SAFETY: the loader passes a valid info.
        (!f(unsafe { &*info })).into()
    }
    let mut f = f;
    // SAFETY: the callback matches its data.
    unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut f).cast()) };
}

const PAGE: u64 = 4096;

/// An object in memory, seen through its program headers while the loader holds it in place.
struct Image<'l> {
    bias: u64,
    name: &'l CStr,
    headers: &'l [libc::Elf64_Phdr],
}

impl<'l> Image<'l> {
    /// # Safety
    ///
    /// `info` is what the loader passes to a callback of `dl_iterate_phdr` that is still running. `None` for an entry
    /// without program headers.
    unsafe fn new(info: &'l libc::dl_phdr_info) -> Option<Self> {
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
        })
    }

    fn segments(&self) -> impl Iterator<Item = &'l libc::Elf64_Phdr> {
        self.headers.iter().filter(|h| h.p_type == libc::PT_LOAD)
    }

    /// The bytes at a link-time address, if they lie in a readable segment as far as its file goes.
    fn bytes(&self, address: u64, len: u64) -> Option<&'l [u8]> {
        let segment = self.segment_of(address)?;
        let end = address.checked_add(len)?;
        (end <= segment.p_vaddr + segment.p_filesz).then_some(())?;
        let start = self.bias.wrapping_add(address) as *const u8;
        // SAFETY: within a readable segment, which the loader keeps mapped while it holds its lock. Unwind sections and notes
        // are not written after loading.
        Some(unsafe { std::slice::from_raw_parts(start, len as usize) })
    }

    fn segment_of(&self, address: u64) -> Option<&'l libc::Elf64_Phdr> {
        self.segments().find(|h| {
            h.p_flags & libc::PF_R != 0 && h.p_vaddr <= address && address - h.p_vaddr < h.p_filesz
        })
    }

    fn code(&self) -> Vec<Segment> {
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

    /// Whether this is the object that `module` was copied from. A build id says so; where there is none, the search table of
    /// the unwind data, which holds the place of every function.
    fn is(&self, module: &Module) -> bool {
        self.bias == module.bias
            && self.range() == module.range
            && self.build_id() == module.object.build_id
            && match (&module.eh_frame_hdr, self.eh_frame_hdr()) {
                (Some(known), Some((_, now))) => *known.bytes == *now,
                _ => !module.object.build_id.is_empty(),
            }
    }

    fn copy(&self, is_main: bool, maps: &Maps) -> Module {
        let hdr = self.eh_frame_hdr();
        let eh_frame = hdr
            .and_then(|(address, bytes)| eh_frame_address(address, bytes))
            .and_then(|address| Some((address, self.eh_frame(address)?)));
        let section = |(address, bytes): (u64, &[u8])| Section {
            address,
            bytes: bytes.into(),
        };
        let code = self.code();
        Module {
            object: Arc::new(Object {
                path: self.path(&code, maps),
                build_id: self.build_id().to_vec(),
                is_main,
                code,
            }),
            bias: self.bias,
            range: self.range(),
            eh_frame_hdr: hdr
                .filter(|(_, bytes)| eh_frame.is_some() && has_search_table(bytes))
                .map(section),
            eh_frame: eh_frame.map(section),
        }
    }

    /// The section has no length of its own in the program headers: it ends with an entry of length 0, or with its segment.
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

    /// The kernel's name for the file; the loader's is what the program asked for, a link or a relative path at times.
    fn path(&self, code: &[Segment], maps: &Maps) -> String {
        let start = match code.first() {
            Some(segment) => segment.start,
            None => self.range().start,
        };
        let path = maps
            .entries()
            .find(|entry| entry.start <= start && start < entry.end)
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

/// The descriptor of the `NT_GNU_BUILD_ID` note among a segment's notes (elf(5)).
fn build_id_note(mut notes: &[u8], align: usize) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let align = align.clamp(4, 8);
    loop {
        let word = |at: usize| Some(u32::from_ne_bytes(*notes.get(at..)?.first_chunk()?));
        let name_len = word(0)? as usize;
        let desc_len = word(4)? as usize;
        let desc_start = name_len.checked_add(12)?.checked_next_multiple_of(align)?;
        let desc_end = desc_start.checked_add(desc_len)?;
        if word(8)? == NT_GNU_BUILD_ID && notes.get(12..)?.starts_with(b"GNU\0") {
            return notes.get(desc_start..desc_end);
        }
        notes = notes.get(desc_end.checked_next_multiple_of(align)?..)?;
    }
}

/// The link-time address of `.eh_frame` that an `.eh_frame_hdr` at `address` names (Linux Standard Base Core, 10.6.2).
fn eh_frame_address(address: u64, hdr: &[u8]) -> Option<u64> {
    const VERSION: u8 = 1;
    let [VERSION, encoding, _, _, pointer @ ..] = hdr else {
        return None;
    };
    let value = match encoding & 0x0f {
        0x03 => u64::from(u32::from_ne_bytes(*pointer.first_chunk()?)),
        0x0b => i64::from(i32::from_ne_bytes(*pointer.first_chunk()?)) as u64,
        0x00 | 0x04 | 0x0c => u64::from_ne_bytes(*pointer.first_chunk()?),
        _ => return None,
    };
    match encoding & 0x70 {
        0x00 => Some(value),
        // Relative to the pointer's own place.
        0x10 => Some(value.wrapping_add(address + 4)),
        // Relative to the section's beginning.
        0x30 => Some(value.wrapping_add(address)),
        _ => None,
    }
}

/// Whether an `.eh_frame_hdr` has its binary search table: the encodings of its count and its entries are not "omitted".
fn has_search_table(hdr: &[u8]) -> bool {
    const OMITTED: u8 = 0xff;
    matches!(hdr, [_, _, count, table, ..] if *count != OMITTED && *table != OMITTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Vec<Arc<Module>> {
        loaded(&[], &Maps::read().unwrap())
    }

    #[test]
    fn the_main_executable_comes_first_with_its_path_and_this_function() {
        let modules = modules();
        let main = &modules[0];
        let exe = std::env::current_exe().unwrap();
        assert!(main.object.is_main);
        assert_eq!(main.object.path, exe.to_str().unwrap());
        assert!(!main.object.build_id.is_empty());
        let here = self::modules as *const () as u64;
        assert!(
            main.object
                .code
                .iter()
                .any(|s| s.start <= here && here < s.end)
        );
        assert!(main.eh_frame.is_some() && main.eh_frame_hdr.is_some());
        assert!(modules[1..].iter().all(|m| !m.object.is_main));
    }

    #[test]
    fn segments_are_those_of_the_maps() {
        let maps = Maps::read().unwrap();
        for module in loaded(&[], &maps) {
            for segment in &module.object.code {
                let entry = maps.entries().find(|e| e.start == segment.start);
                let entry = entry.unwrap_or_else(|| panic!("{module:?} is in the maps"));
                assert_eq!(entry.end, segment.end, "{module:?}");
                assert!(entry.permissions.contains('x'));
            }
        }
    }

    #[test]
    fn the_vdso_and_libc_are_there() {
        let modules = modules();
        let vdso = modules
            .iter()
            .find(|m| m.object.path == "[vdso]")
            .expect("a vDSO");
        assert!(vdso.eh_frame.is_some());
        assert!(modules.iter().any(|m| m.object.path.contains("libc.so")));
    }

    #[test]
    fn unchanged_objects_are_not_copied_again() {
        let maps = Maps::read().unwrap();
        let first = loaded(&[], &maps);
        let second = loaded(&first, &maps);
        assert_eq!(first.len(), second.len());
        for (a, b) in first.iter().zip(&second) {
            assert!(Arc::ptr_eq(a, b), "{a:?}");
        }
    }

    #[test]
    fn hostile_notes_and_headers_are_refused() {
        assert_eq!(build_id_note(&[0xff; 40], 4), None);
        assert_eq!(build_id_note(&[], 4), None);
        assert_eq!(eh_frame_address(0, &[2, 0x1b, 3, 0x3b]), None);
        assert_eq!(eh_frame_address(0, &[1, 0x1b, 3, 0x3b, 1, 0]), None);
        assert!(!has_search_table(&[1, 0x1b, 0xff, 0x3b]));
    }
}
