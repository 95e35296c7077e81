//! Names for addresses: fills a [`Profile`] with functions, files, lines and inlined frames.
//!
//! [`symbolize`] opens the object behind each mapping, checks that it is the one that was mapped,
//! and looks the addresses up in its debug information and its symbol tables, one object after the
//! other. gimli parses the former, object finds sections; which file to read, what lies at an
//! address, and what becomes of the names, is decided here. Nothing outlives the call: no cache, no thread.
//!
//! # What it reads
//!
//! - The file itself: the running executable through `/proc/self/exe`, a file that was deleted or
//!   replaced under a running process through `/proc/self/map_files` (which takes
//!   `CAP_CHECKPOINT_RESTORE`), the vDSO from memory.
//! - DWARF 2 to 5, as it is or compressed by zlib or zstd, in the file or, where the file has
//!   none, in its debug file: by build id under `/usr/lib/debug/.build-id`; by the name in
//!   `.gnu_debuglink`, or else the file's own name and `.debug`, beside the file, in `.debug`
//!   there, or under `/usr/lib/debug` by the path of the file; by build id in the cache of the
//!   clients of debuginfod, for which nothing is fetched.
//! - Debug information that the compiler split off (`-gsplit-dwarf`, Rust's `split-debuginfo`): in
//!   a package (`.dwp`) by the name of the object or of its debug file; in `.dwo` files where the
//!   compiler left them, or beside the object.
//! - What several objects have in common, and `dwz` moved to a supplementary file: by the name that
//!   `.gnu_debugaltlink` or `.debug_sup` has, and by build id where debug files lie.
//! - `.symtab` of the file, of the debug file, and of what is in `.gnu_debugdata`; then `.dynsym`.
//!
//! What is damaged is left out, said in one comment, and takes nothing from the others.
//!
//! # What it does not
//!
//! Files whose build id is not the mapping's are refused rather than believed. Where a function
//! begins (`start_line`) stays open. A bug in what reads files may make it panic: the panic is
//! caught, and what the process's panic hook does about it, it does; a program built with
//! `panic = "abort"` would end.
#![forbid(unsafe_code)]

mod abbreviations;
mod compressed;
mod damage;
mod debug_file;
mod debug_info;
mod debugdata;
mod debuginfod;
mod dwarf;
mod effort;
mod entries;
mod find;
mod functions;
mod lines;
mod name;
mod object_file;
mod opened;
mod ranges;
mod raw_symbols;
mod split;
mod supplementary;
mod symbol_table;
#[cfg(feature = "http")]
mod symbols;
mod units;
mod wanted;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use hashbrown::HashMap;

use crate::profile::{LocationId, MappingId};
use crate::sync::Mutex;
use crate::sys::allocator;
use crate::sys::per_process::PerProcess;
use crate::{Error, ErrorKind, Profile};
use debug_info::Frame;
use find::{Finder, file_offset};
use functions::Functions;
use opened::{Opened, Problems};
use symbol_table::Symbol;
#[cfg(feature = "http")]
pub(crate) use symbols::Symbols;

const NO_SYMBOL: &str = "no symbol covers them";
const STRIPPED: &str = "no symbol covers them, and the file was stripped; keep its symbols \
     (strip --strip-debug), or install its debug information in /usr/lib/debug";

/// What [`symbolize`] could not find of an object, and why.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unsymbolized {
    /// The mapping that holds them: the first one, where an object has several.
    pub mapping: MappingId,
    /// The path of the object, as the mapping gives it.
    pub filename: String,
    /// How many locations have no name. None, where symbols name all of them and debug information
    /// that is damaged cannot say more.
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
        let reason = &self.reason;
        match self.locations {
            0 => write!(f, "{filename}: {reason}"),
            1 => write!(f, "{filename}: 1 address without a name: {reason}"),
            many => write!(f, "{filename}: {many} addresses without a name: {reason}"),
        }
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
    in_turn(|| symbolize_objects(profile))
}

/// Does what reads objects, one after the other: the debug information of one is in memory at a
/// time, however many clients ask for names.
fn in_turn<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    static TURN: PerProcess<Mutex<()>> = PerProcess::new();
    // Without memory for the lock, nobody waits.
    let turn = TURN.get_or_make(Mutex::default).ok();
    let _turn = turn.map(Mutex::lock);
    allocator::giving_back("sigprof-names", work)
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
        let reason = match outcome {
            Err(error) => Some(error),
            Ok(problems) => problems.reason(left > 0),
        };
        unsymbolized.extend(reason.map(|reason| Unsymbolized {
            mapping: object.mapping,
            filename: profile.mapping(object.mapping).filename.clone(),
            locations: left,
            reason,
        }));
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
/// by symbols. What one source of names cannot give takes nothing from another.
fn symbolize_object(
    profile: &mut Profile,
    functions: &mut Functions,
    finder: &Finder,
    object: &ObjectLocations,
) -> Result<Problems, Error> {
    let mapping = profile.mapping(object.mapping);
    let place = finder.place(mapping)?;
    let filename = PathBuf::from(&mapping.filename);
    let locations = &object.locations;
    let look_up = || {
        let mut problems = Problems::default();
        let opened = Opened::open(&place, &filename, &mut problems)?;
        let sources = opened.sources(&mut problems)?;
        let offsets = locations.iter().map(|&id| file_offset(profile, id));
        let wanted = sources.wanted(offsets);
        let symbols = sources.symbols(&wanted, locations.len(), &mut problems);
        sources.frames(
            &wanted,
            locations.len(),
            &mut problems,
            &mut |index, found| {
                let symbol = symbols[index].as_ref();
                let name = symbol.map(Symbol::name);
                let frames = functions::frames(found, name.as_deref());
                let begin = symbol.map_or(0, |symbol| symbol.begin);
                functions.set_lines(profile, locations[index], frames, begin);
            },
        );
        for (&location, symbol) in locations.iter().zip(&symbols) {
            if let Some(symbol) = symbol
                && profile.location(location).lines.is_empty()
            {
                let name = symbol.name();
                let frame = Frame::default();
                functions.set_lines(profile, location, [(&*name, &frame)], symbol.begin);
            }
        }
        problems.is_stripped = sources.is_stripped();
        Ok(problems)
    };
    caught(look_up)
}

/// Calls what reads files. The libraries for it take any bytes, as far as is known; a bug of theirs
/// must not take the host with it.
fn caught<T>(read: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let message = "it is damaged in a way that nobody expected";
        Err(Error::new(ErrorKind::InvalidData, message))
    })
}
