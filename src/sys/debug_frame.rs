//! `.debug_frame` of a loaded object: unwind data for debuggers, which lies in the object's file
//! and not in memory.
//!
//! Ordinary code, and none that may be in a hurry: a file is opened, for a moment.
#![forbid(unsafe_code)]

use super::brief_file::{self, BriefFile};
use super::elf::{Elf, Stored};
use super::modules::Module;

/// How many bytes of it there are, of which none are read; 0 where there is none, or the file
/// cannot be had.
pub(crate) fn len(module: &Module) -> usize {
    with_section(module, |_, section| Some(section.len)).unwrap_or(0)
}

/// Its bytes, if there are any.
pub(crate) fn read(module: &Module) -> Option<Vec<u8>> {
    let read = |elf: &Elf<'_, BriefFile>, section| Some((section, elf.read(section)?));
    let (section, bytes) = with_section(module, read)?;
    section.restored(bytes)
}

/// Calls `f` with the section, if the module's file is still where it was, and has one.
fn with_section<T>(
    module: &Module,
    f: impl Fn(&Elf<'_, BriefFile>, Stored) -> Option<T>,
) -> Option<T> {
    // What has no path, the vDSO for instance, has a name in brackets.
    let path = Some(&*module.object.path).filter(|path| path.starts_with('/'))?;
    let section = |file: &BriefFile| {
        let elf = file.is_regular.then(|| Elf::new(file))??;
        let is_mapped = match &*module.object.build_id {
            [] => elf.build_id().is_none() && module.file == Some(file.id),
            build_id => elf.build_id()? == build_id,
        };
        f(&elf, is_mapped.then(|| elf.section(b".debug_frame"))??)
    };
    brief_file::with(path, |file| Ok(section(file))).ok()?
}
