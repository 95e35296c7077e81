//! Loaded ELF objects: path, build id, executable segments, and a copy of their unwind sections.
//!
//! Everything comes from the dynamic loader's own list (what is not in it: `unlisted.rs`) and the
//! program headers in memory, so stripped, deleted and sectionless files are no special case. The
//! loader holds its lock while it shows the list, so an object cannot be unmapped while it is being
//! copied from.

use std::fmt;
use std::sync::Arc;

use super::brief_file::FileId;
use super::image::Image;
use super::loader::iterate;
use super::maps::Maps;
use super::unlisted::unlisted;

/// An executable segment, in addresses of this process; bounds are whole pages, as in
/// `/proc/self/maps`.
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

/// What a loaded object is, without its unwind data: small enough to be remembered after it is
/// gone.
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

/// A section copied out of an object: its bytes and the link-time address that pointers in it count
/// from.
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
    /// `.eh_frame_hdr`, where it has a search table that can be trusted.
    pub(crate) eh_frame_hdr: Option<Section>,
    pub(crate) eh_frame: Option<Section>,
    /// Where handlers return to, if that is this object's code and known without unwind data.
    pub(crate) signal_return: Option<u64>,
    /// The file that was mapped; none for the vDSO.
    pub(crate) file: Option<FileId>,
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

/// How many objects have been loaded and unloaded since the process began: while it stays the same,
/// so does the list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Generation {
    adds: u64,
    subs: u64,
}

impl Generation {
    /// The counters as they are now; cheap.
    pub(crate) fn now() -> Self {
        let mut generation = Self { adds: 0, subs: 0 };
        iterate(&mut |info| {
            generation = Self::of(info);
            false
        });
        generation
    }

    /// The counters as the loader shows them beside each object.
    pub(super) fn of(info: &libc::dl_phdr_info) -> Self {
        Self {
            adds: info.dlpi_adds,
            subs: info.dlpi_subs,
        }
    }
}

/// Whether an address lies in the code of the program itself, and in none of its libraries.
#[cfg(feature = "capi")]
pub(crate) fn is_in_the_executable(address: usize) -> bool {
    let mut is = false;
    // The loader lists the program first.
    iterate(&mut |info| {
        // SAFETY: the loader passes its own list, and holds its lock until the callback returns.
        let image = unsafe { Image::new(info) };
        is = image.is_some_and(|image| image.has_code_at(address as u64));
        false
    });
    is
}

/// All loaded objects in the loader's order, the main executable first, and behind them those that
/// it does not list. One that is unchanged since `known` was made is taken from there, so that its
/// unwind data is not copied again.
pub(crate) fn loaded<'k>(
    known: impl Iterator<Item = &'k Arc<Module>> + Clone,
    maps: &Maps,
) -> Vec<Arc<Module>> {
    let mut modules = Vec::new();
    iterate(&mut |info| {
        // SAFETY: the loader passes its own list, and holds its lock until the callback returns.
        if let Some(image) = unsafe { Image::new(info) } {
            let module = known
                .clone()
                .find(|module| image.is(module))
                .cloned()
                .unwrap_or_else(|| Arc::new(image.copy(modules.is_empty(), maps)));
            modules.push(module);
        }
        true
    });
    let unlisted = unlisted(known, &modules, maps);
    modules.extend(unlisted);
    modules
}

/// What the loader lists, as [`loaded`] does, without unwind data.
#[cfg(feature = "http")]
pub(crate) fn objects(maps: &Maps) -> Vec<Object> {
    let mut objects = Vec::new();
    iterate(&mut |info| {
        // SAFETY: the loader passes its own list, and holds its lock until the callback returns.
        if let Some(image) = unsafe { Image::new(info) } {
            objects.push(image.object(objects.is_empty(), maps));
        }
        true
    });
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Vec<Arc<Module>> {
        loaded([].iter(), &Maps::read().unwrap())
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
        for module in loaded([].iter(), &maps) {
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
        let first = loaded([].iter(), &maps);
        let second = loaded(first.iter(), &maps);
        assert_eq!(first.len(), second.len());
        for (a, b) in first.iter().zip(&second) {
            assert!(Arc::ptr_eq(a, b), "{a:?}");
        }
    }
}
