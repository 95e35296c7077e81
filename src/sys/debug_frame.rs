//! `.debug_frame` of a loaded object: unwind data for debuggers, which lies in the object's file
//! and not in memory.
//!
//! Ordinary code, and none that may be in a hurry: a file is opened, for a moment.
#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;

use super::elf::{Elf, Stored};
use super::fork::holding_off_forks;
use super::modules::Module;

/// How many bytes of it there are, of which none are read; 0 where there is none, or the file
/// cannot be had.
pub(crate) fn len(module: &Module) -> usize {
    with_section(module, |_, section| Some(section.len)).unwrap_or(0)
}

/// Its bytes, if there are any.
pub(crate) fn read(module: &Module) -> Option<Vec<u8>> {
    let read = |elf: &Elf<'_, File>, section| Some((section, elf.read(section)?));
    let (section, bytes) = with_section(module, read)?;
    section.restored(bytes)
}

/// Calls `f` with the section, if the module's file is still where it was, and has one. A fork
/// waits meanwhile, so that no child inherits the open file.
fn with_section<T>(
    module: &Module,
    f: impl FnOnce(&Elf<'_, File>, Stored) -> Option<T>,
) -> Option<T> {
    holding_off_forks(|| {
        let file = open(&module.object.path)?;
        let elf = Elf::new(&file)?;
        let is_mapped = match &*module.object.build_id {
            [] => elf.build_id().is_none() && module.file.is_some_and(|id| id.is_of(&file)),
            build_id => elf.build_id()? == build_id,
        };
        f(&elf, is_mapped.then(|| elf.section(b".debug_frame"))??)
    })
}

/// The file of this name, if it is one: to open a pipe or a terminal must not wait, nor make it
/// this process's own.
fn open(path: &str) -> Option<File> {
    // What has no path, the vDSO for instance, has a name in brackets.
    if !path.starts_with('/') {
        return None;
    }
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC);
    let file = options.open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}
