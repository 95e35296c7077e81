//! Names for addresses: fills a [`Profile`] with functions, files, lines and inlined frames.
//!
//! [`symbolize`] opens the object behind each mapping, checks that it is the one that was mapped,
//! and looks the addresses up in its debug information and its symbol tables, one object after the
//! other. blazesym does the reading; which file to read, and what becomes of the names, is decided
//! here. Nothing outlives the call: no cache, no thread.
//!
//! # What it reads
//!
//! - The file itself: the running executable through `/proc/self/exe`, a file that was deleted or
//!   replaced under a running process through `/proc/self/map_files` (which takes
//!   `CAP_CHECKPOINT_RESTORE`), the vDSO from memory.
//! - DWARF 2 to 5, zlib-compressed or not, in it or in the debug file that its `.gnu_debuglink`
//!   names: under `/usr/lib/debug`, by build id or path, or beside it; then `.symtab`, then
//!   `.dynsym`.
//!
//! # What it does not
//!
//! Files whose build id is not the mapping's are refused rather than believed. Split DWARF gives
//! inlined frames only from a `.dwp` beside the file. zstd-compressed debug sections are not read,
//! a stripped file without `.gnu_debuglink` has no debug file, and a symbol without a size covers
//! nothing. Where a function begins (`start_line`) stays open. Some kinds of damage to a file make
//! the library panic: the panic is caught, and what the process's panic hook does about it, it
//! does; a program built with `panic = "abort"` would end.
#![forbid(unsafe_code)]

mod find;
mod functions;
mod name;
#[cfg(feature = "http")]
mod symbols;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use blazesym::Pid;
use blazesym::symbolize::source::{Elf, Process, Source};
use blazesym::symbolize::{Input, Reason, Sym, Symbolized, Symbolizer};
use hashbrown::HashMap;

use crate::profile::{LocationId, MappingId};
use crate::sys::allocator;
use crate::{Error, ErrorKind, Profile};
use find::{Finder, Place};
use functions::Functions;
#[cfg(feature = "http")]
pub(crate) use symbols::Symbols;

/// How many addresses are looked up at once: each takes some hundred bytes meanwhile.
const AT_ONCE: usize = 1 << 14;

const NO_SYMBOL: &str = "no symbol covers them";

/// Addresses that [`symbolize`] left without a name, and why.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unsymbolized {
    /// The mapping that holds them: the first one, where an object has several.
    pub mapping: MappingId,
    /// The path of the object, as the mapping gives it.
    pub filename: String,
    /// How many locations there are.
    pub locations: usize,
    /// What stood in the way.
    pub reason: Error,
}

impl fmt::Display for Unsymbolized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filename = match self.filename.as_str() {
            "" => "[anonymous memory]",
            filename => filename,
        };
        let addresses = match self.locations {
            1 => "address",
            _ => "addresses",
        };
        write!(
            f,
            "{filename}: {} {addresses} without a name: {}",
            self.locations, self.reason
        )
    }
}

/// Fills in the lines of every location that has none, and the functions that they refer to.
///
/// A location's lines are the inlined frames, innermost first, and then the function itself.
/// Addresses are taken as they stand in the profile, that is with return addresses already moved
/// back into the call. A function's name is demangled, its system name is the symbol; the system
/// name is empty where debug information knows the demangled name alone, because `pprof` would
/// demangle that once more. The `has_…` marks are set on every mapping that gained what they say.
///
/// A module that cannot be read leaves its locations as they are; so do addresses that no symbol
/// covers. Both are in the answer, one entry an object, each fit to be a comment of the profile.
///
/// # Examples
///
/// ```
/// # let mut profile = sigprof::Profile::default();
/// for left in sigprof::symbolize::symbolize(&mut profile) {
///     profile.comments.push(left.to_string());
/// }
/// ```
pub fn symbolize(profile: &mut Profile) -> Vec<Unsymbolized> {
    allocator::giving_back("sigprof-names", || symbolize_objects(profile))
}

/// As [`symbolize`]; what could not be named is said in the profile's comments.
pub(crate) fn add_names(profile: &mut Profile) {
    let unnamed = symbolize(profile);
    let unnamed = unnamed.iter().map(ToString::to_string);
    profile.comments.extend(unnamed);
}

fn symbolize_objects(profile: &mut Profile) -> Vec<Unsymbolized> {
    let finder = Finder::of_this_process();
    let mut functions = Functions::of(profile);
    let mut unsymbolized = Vec::new();
    for object in objects(profile) {
        let outcome = symbolize_object(profile, &mut functions, &finder, &object);
        let left = object
            .locations
            .iter()
            .filter(|&&id| profile.location(id).lines.is_empty())
            .count();
        if left > 0 {
            unsymbolized.push(Unsymbolized {
                mapping: object.mapping,
                filename: profile.mapping(object.mapping).filename.clone(),
                locations: left,
                reason: outcome
                    .err()
                    .unwrap_or_else(|| Error::new(ErrorKind::Unsupported, NO_SYMBOL)),
            });
        }
    }
    unsymbolized
}

/// The locations to be named in one object, which may lie in several mappings of it.
struct ObjectLocations {
    mapping: MappingId,
    locations: Vec<LocationId>,
}

/// The locations without lines, by object, in the order of the mappings.
fn objects(profile: &Profile) -> Vec<ObjectLocations> {
    let mut first_mappings = HashMap::new();
    let mut objects = HashMap::<MappingId, Vec<LocationId>>::new();
    for (index, mapping) in profile.mappings().iter().enumerate() {
        first_mappings
            .entry((&mapping.filename, &mapping.build_id))
            .or_insert(MappingId(index as u32));
    }
    for (index, location) in profile.locations().iter().enumerate() {
        let Some(mapping) = location.mapping.filter(|_| location.lines.is_empty()) else {
            continue;
        };
        let mapping = profile.mapping(mapping);
        let object = first_mappings[&(&mapping.filename, &mapping.build_id)];
        objects
            .entry(object)
            .or_default()
            .push(LocationId(index as u32));
    }
    let mut objects: Vec<_> = objects
        .into_iter()
        .map(|(mapping, locations)| ObjectLocations { mapping, locations })
        .collect();
    objects.sort_unstable_by_key(|object| object.mapping);
    objects
}

/// Names one object's locations: by debug information and, where that is missing, damaged or poor,
/// by symbols.
fn symbolize_object(
    profile: &mut Profile,
    functions: &mut Functions,
    finder: &Finder,
    object: &ObjectLocations,
) -> Result<(), Error> {
    let place = finder.place(profile.mapping(object.mapping))?;
    let locations = &object.locations;
    let positions: Vec<u64> = locations
        .iter()
        .map(|&id| place.position(profile, id))
        .collect();

    let mut symbols = vec![None; locations.len()];
    let by_symbols = look_up(&place, &positions, false, &mut |index, found| {
        symbols[index] = Some((found.name.clone().into_owned(), found.addr));
    });
    let by_debug_info = look_up(&place, &positions, true, &mut |index, found| {
        let symbol = symbols[index].as_ref();
        let frames = functions::frames(found, symbol.map(|(name, _)| name.as_str()));
        functions.set_lines(profile, locations[index], frames, found.addr);
    });
    for (&location, symbol) in locations.iter().zip(&symbols) {
        if let Some((symbol, begin)) = symbol
            && profile.location(location).lines.is_empty()
        {
            functions.set_lines(profile, location, [(symbol.as_str(), None)], *begin);
        }
    }
    by_debug_info.and(by_symbols)
}

/// Looks positions in one object up, and says why some were not found.
///
/// Nothing that was read outlives the call: the peak is that of the largest object.
fn look_up(
    place: &Place,
    positions: &[u64],
    debug_syms: bool,
    found: &mut dyn FnMut(usize, &Sym),
) -> Result<(), Error> {
    let look_up = || {
        let symbolizer = Symbolizer::builder().enable_demangling(false).build();
        let source = match place {
            Place::File(path) => {
                let mut elf = Elf::new(path);
                elf.debug_syms = debug_syms;
                Source::Elf(elf)
            }
            Place::Vdso => {
                let mut process = Process::new(Pid::Slf);
                process.perf_map = false;
                process.map_files = false;
                Source::Process(process)
            }
        };
        let mut outcome = Ok(());
        for (nth, positions) in positions.chunks(AT_ONCE).enumerate() {
            let input = match place {
                Place::File(_) => Input::FileOffset(positions),
                Place::Vdso => Input::AbsAddr(positions),
            };
            let answers = symbolizer.symbolize(&source, input).map_err(|error| {
                let message = format!("the object cannot be read: {error:#}");
                Error::new(ErrorKind::InvalidData, message)
            })?;
            for (index, answer) in answers.iter().enumerate() {
                match answer {
                    // Such a symbol would cover all up to the next one: a PLT, say.
                    Symbolized::Sym(symbol) if symbol.size.is_none() => {}
                    Symbolized::Sym(symbol) => found(nth * AT_ONCE + index, symbol),
                    Symbolized::Unknown(reason) => outcome = Err(*reason),
                }
            }
        }
        outcome.map_err(explained)
    };
    // The library panics at some kinds of damage, which must not take the host with it.
    catch_unwind(AssertUnwindSafe(look_up)).unwrap_or_else(|_| Err(explained(Reason::IgnoredError)))
}

/// Why an address has no name, and what to do about it.
fn explained(reason: Reason) -> Error {
    match reason {
        Reason::MissingSyms => Error::new(
            ErrorKind::Unsupported,
            "no symbol covers them, and the file was stripped; keep its symbols (strip --strip-debug), or install its \
             debug information in /usr/lib/debug",
        ),
        Reason::IgnoredError => Error::new(
            ErrorKind::InvalidData,
            "the debug information or the symbols are damaged",
        ),
        _ => Error::new(ErrorKind::Unsupported, NO_SYMBOL),
    }
}
