//! The words through which modules call a function of another module (their global offset tables),
//! and putting another function into them.
//!
//! All of it happens while the loader shows its list: it holds its lock, so no module that is shown
//! can be unmapped, and a fork waits (see [`iterate`]), so no child inherits a page that is
//! writable for a moment. Nothing is allocated meanwhile.
//!
//! # Which words are replaced
//!
//! The loader shows a module before it has relocated it, and that goes on under another lock. A
//! word that is replaced before its turn would be overwritten, or, worse, have the module's place
//! added to it. So a word is left for a later walk unless it is certain that its module is done:
//!
//! - Most modules have pages that the loader makes read-only as the last step of relocating them
//!   (`PT_GNU_RELRO`). They are read-only in the maps, which were read when the module was on the
//!   list already: the caller took the loader's counters before it read the maps, and they are what
//!   the walk finds.
//! - In a module without such pages the word itself must have been relocated. Each is written once,
//!   and holds before that a zero or a link-time address.
//!
//! And only words are replaced that hold what they must if nobody else had a hand in it: the
//! function itself, or, where functions are looked up at the first call, an address in the module's
//! own code, which is the stub that looks it up. One that leads elsewhere was bound to another
//! definition or has a wrapper already, which would be passed over.
//!
//! A stub that was entered before the walk can look the function up after it, and so undo it for
//! that word. The next walk finds the word again.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::dynamic::{Dynamic, Slot};
use super::image::Image;
use super::loader::iterate;
use super::maps::Maps;
use super::modules::Generation;
use super::originals::Original;
use super::protections::Protections;

/// What a walk came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Outcome {
    /// Modules with a word that leads to the replacement.
    pub(crate) modules: usize,
    /// Some module was not relocated yet.
    pub(crate) is_pending: bool,
    /// The error with which the system refused to have a word changed.
    pub(crate) refused: Option<i32>,
}

/// A function, and the one that stands in for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replacement {
    pub(crate) name: &'static [u8],
    /// Its address, as [`definition`] has it.
    pub(crate) function: usize,
    pub(crate) stand_in: usize,
    /// The version by which another function has that name; empty, where none has.
    pub(crate) other_version: &'static [u8],
}

impl Replacement {
    /// Whether a module has none of its own of a function. One that has is the function's own room.
    fn is_for(&self, module: &Dynamic<'_>) -> bool {
        module.definition(self.name).is_none()
    }
}

/// The address of the function `name` in the first module that defines it, by its default version.
///
/// Not by asking `dlsym`: in an executable at a fixed address that can answer the executable's own
/// stub, which calls through the very word that is about to be replaced.
pub(crate) fn definition(name: &[u8]) -> Option<usize> {
    let mut found = None;
    iterate(&mut |info| {
        // SAFETY: the loader passes its own list, and holds its lock until the callback returns.
        found = unsafe { Image::new(info) }.and_then(|image| {
            let address = image.address(Dynamic::new(&image)?.definition(name)?);
            image.has_code_at(address).then_some(address as usize)
        });
        found.is_none()
    });
    found
}

/// Whether two functions are of the same module.
#[cfg(feature = "contention")]
pub(crate) fn are_of_one_module(a: usize, b: usize) -> bool {
    let mut are = false;
    iterate(&mut |info| {
        // SAFETY: as above.
        if let Some(image) = unsafe { Image::new(info) } {
            are = image.has_code_at(a as u64) && image.has_code_at(b as u64);
        }
        !are
    });
    are
}

/// Numbers the walks; 0 is none.
static WALKS: AtomicUsize = AtomicUsize::new(0);

fn next_walk() -> usize {
    WALKS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
}

/// Replaces functions in all modules that are relocated. `generation` was taken before `maps` were
/// read; `None` if the list has changed since.
pub(crate) fn replace(all: &[Replacement], generation: Generation, maps: &Maps) -> Option<Outcome> {
    let protections = Protections::new(maps);
    let page = page_bytes();
    let walk = next_walk();
    let mut outcome = Outcome::default();
    let mut is_whole = true;
    iterate(&mut |info| {
        if Generation::of(info) != generation {
            // What the maps say may be of modules that are gone.
            is_whole = false;
            return false;
        }
        // SAFETY: as above.
        if let Some(image) = unsafe { Image::new(info) }
            && let Some(dynamic) = Dynamic::new(&image)
        {
            let mut is_replaced = false;
            for (what, slot) in slots(&image, &dynamic, all) {
                match replace_in(&image, slot, what, &protections, page) {
                    Slotted::Replaced(original) => {
                        original.was_seen(walk);
                        is_replaced = true;
                    }
                    Slotted::Covered(original) => original.was_seen(walk),
                    Slotted::Pending => outcome.is_pending = true,
                    Slotted::Refused(error) => outcome.refused = error.raw_os_error(),
                    Slotted::Left => {}
                }
            }
            outcome.modules += usize::from(is_replaced);
        }
        true
    });
    is_whole.then(|| {
        forget_unseen(walk, all);
        outcome
    })
}

/// What became of a word.
enum Slotted {
    Replaced(&'static Original),
    /// Another function was put over the stand-in since; who did that may put the stand-in back.
    Covered(&'static Original),
    /// Its module may not be relocated yet.
    Pending,
    /// The system does not let its page be written, and says this error.
    Refused(io::Error),
    /// It is not ours to replace, or cannot be.
    Left,
}

/// Forgets the words of modules that a whole walk did not come by: they are gone.
fn forget_unseen(walk: usize, all: &[Replacement]) {
    Original::forget_unseen(walk, |stand_in| {
        all.iter().any(|what| what.stand_in == stand_in)
    });
}

/// A module's words of these functions, those left out that it defines itself.
fn slots<'r>(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    all: &'r [Replacement],
) -> impl Iterator<Item = (&'r Replacement, (usize, bool))> {
    let find = |name: &[u8]| {
        let what = all.iter().find(|what| what.name == name)?;
        what.is_for(dynamic).then_some(what)
    };
    let placed = |(what, slot): (&'r Replacement, Slot<'_>)| {
        let is_other = slot.version == Some(what.other_version);
        let address = image.slot(slot.address)?;
        (!is_other).then_some((what, (address, slot.may_be_lazy)))
    };
    dynamic.slots(find).filter_map(placed)
}

fn replace_in(
    image: &Image<'_>,
    (slot, may_be_lazy): (usize, bool),
    what: &Replacement,
    protections: &Protections,
    page: u64,
) -> Slotted {
    let is_sealed = match image.sealed_pages(page) {
        Some(pages) if protections.are_sealed(&pages) => true,
        Some(_) => return Slotted::Pending,
        None => false,
    };
    let Some(protection) = protections.of(slot as u64) else {
        // The maps are not read in one step: a mapping that changes meanwhile can be missing.
        return Slotted::Pending;
    };
    if protection & libc::PROT_READ == 0 {
        return Slotted::Left;
    }
    // SAFETY: an aligned word of a loaded module, which the maps say can be read.
    let value = unsafe { word(slot) }.load(Ordering::Relaxed);
    if value == what.stand_in {
        return Original::of(slot).map_or(Slotted::Left, Slotted::Replaced);
    }
    let is_stub = may_be_lazy
        && image.has_code_at(value as u64)
        && (is_sealed || !image.may_be_unmoved(value as u64));
    if value != what.function && !is_stub {
        return match (is_sealed, Original::of(slot)) {
            (true, Some(original)) => Slotted::Covered(original),
            (true, None) => Slotted::Left,
            (false, _) => Slotted::Pending,
        };
    }
    // Before the word changes: whoever finds the stand-in there finds the original as well.
    let Some(original) = Original::keep(slot, value, what.stand_in, protection) else {
        return Slotted::Left;
    };
    // SAFETY: as above, and its page has this protection.
    let slotted = match unsafe { exchange(slot, value, what.stand_in, protection, page) } {
        Ok(true) => return Slotted::Replaced(original),
        Ok(false) => Slotted::Left,
        Err(error) => Slotted::Refused(error),
    };
    original.forget();
    slotted
}

/// Puts back what was replaced, in the modules that are still there. A word that leads to something
/// else by now is left: another tool's function was put over the stand-in, or the function was
/// looked up meanwhile. What stood there is kept in the first case: the tool puts the stand-in back
/// when it ends, and the next walk that restores ends that.
pub(crate) fn restore(all: &[Replacement]) {
    // Without the maps, by what they were when the word was replaced. A word that holds the
    // stand-in is of a module that was there before they were read, so they are true of it.
    let protections = Maps::read().ok().map(|maps| Protections::new(&maps));
    let page = page_bytes();
    let walk = next_walk();
    iterate(&mut |info| {
        // SAFETY: as above.
        if let Some(image) = unsafe { Image::new(info) }
            && let Some(dynamic) = Dynamic::new(&image)
        {
            for (what, (slot, _)) in slots(&image, &dynamic, all) {
                if let Some(original) = Original::of(slot)
                    && !restore_in(slot, original, what, protections.as_ref(), page)
                {
                    // It goes on passing calls through, and the next hook's end tries again.
                    original.was_seen(walk);
                }
            }
        }
        true
    });
    forget_unseen(walk, all);
}

/// Whether nothing leads to the stand-in by this word any more.
fn restore_in(
    slot: usize,
    original: &Original,
    what: &Replacement,
    protections: Option<&Protections>,
    page: u64,
) -> bool {
    let known = protections.map_or(Some(original.protection()), |all| all.of(slot as u64));
    let Some(protection) = known.filter(|p| p & libc::PROT_READ != 0) else {
        return false;
    };
    let before = original.value();
    // SAFETY: an aligned word of a loaded module that can be read.
    let value = unsafe { word(slot) }.load(Ordering::Relaxed);
    if value != what.stand_in {
        return value == before || value == what.function;
    }
    // SAFETY: as above, and its page has this protection.
    unsafe { exchange(slot, value, before, protection, page) }.unwrap_or(false)
}

/// A word of a module, which its threads read at any moment.
///
/// # Safety
///
/// It is aligned and can be read, and stays while the reference is used.
unsafe fn word<'a>(slot: usize) -> &'a AtomicUsize {
    // SAFETY: the caller's contract; what other threads do with it is a load or a store of the
    // whole word.
    unsafe { AtomicUsize::from_ptr(slot as *mut usize) }
}

/// Changes a word in one step, if it is what is expected, and says whether. A page that cannot be
/// written can be for that moment, and is then again what it was.
///
/// # Errors
///
/// That with which the system refuses to have the page written.
///
/// # Safety
///
/// An aligned word of a loaded module, on a page of this protection.
unsafe fn exchange(
    slot: usize,
    expected: usize,
    new: usize,
    protection: libc::c_int,
    page: u64,
) -> io::Result<bool> {
    let start = (slot & !(page as usize - 1)) as *mut libc::c_void;
    let is_writable = protection & libc::PROT_WRITE != 0;
    if !is_writable {
        let writable = protection | libc::PROT_WRITE;
        // SAFETY: a page of a module that the loader keeps in place; nobody relies on a write to it
        // being refused.
        if unsafe { libc::mprotect(start, page as usize, writable) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the caller's contract; its page can be written now.
    let exchanged =
        unsafe { word(slot) }.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed);
    if !is_writable {
        // If it fails the page stays writable, which nothing depends on.
        // SAFETY: the page's own protection.
        unsafe { libc::mprotect(start, page as usize, protection) };
    }
    Ok(exchanged.is_ok())
}

/// The unit in which the loader and the kernel protect memory.
fn page_bytes() -> u64 {
    // SAFETY: asks for a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes)
        .ok()
        .filter(|b| b.is_power_of_two())
        .unwrap_or(super::memory::PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_those_that_the_loader_finds() {
        // The last one has two versions on x86_64.
        for name in [
            c"pthread_create",
            c"dl_iterate_phdr",
            c"getppid",
            c"pthread_cond_wait",
        ] {
            // SAFETY: looks up a name that is there.
            let told = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            // This executable is at no fixed address, so `dlsym` answers right.
            assert_eq!(definition(name.to_bytes()), Some(told as usize), "{name:?}");
        }
        assert_eq!(definition(b"a_function_that_nobody_has"), None);
    }

    #[test]
    fn a_list_that_changed_is_left_for_the_next_walk() {
        let what = Replacement {
            name: b"a_function_that_nobody_has",
            function: 1,
            stand_in: 2,
            other_version: b"",
        };
        let outcome = replace(&[what], Generation::default(), &Maps::default());
        assert_eq!(outcome, None);
    }
}
