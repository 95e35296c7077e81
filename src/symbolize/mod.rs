//! Names for addresses: fills a [`Profile`] with functions, files, lines and inlined frames.
//!
//! [`symbolize`] opens the object behind each mapping, checks that it is the one that was mapped, and looks the
//! addresses up in its debug information and its symbol tables. Nothing outlives the call: no cache, no thread.
//!
//! # What it reads
//!
//! - The file itself: the running executable through `/proc/self/exe`, a file that was deleted or replaced under a
//!   running process through `/proc/self/map_files` (which takes `CAP_CHECKPOINT_RESTORE`), the vDSO from memory.
//! - DWARF 2 to 5 in it or in `/usr/lib/debug/.build-id`, zlib-compressed or not; then `.symtab`, then `.dynsym`.
//!
//! # What it does not
//!
//! Files whose build id is not the mapping's are refused rather than believed. Split DWARF (`.dwo`) gives lines and
//! symbol names but no inlined frames; `.gnu_debugaltlink`, zstd-compressed debug sections, and objects other than
//! 64-bit little-endian ELF are not read. A symbol without a size covers nothing.
#![deny(unsafe_code)]

mod dwarf;
mod file_map;
mod find;
mod image;
mod name;
mod symbols;

use std::fmt;

use hashbrown::HashMap;

use crate::profile::{Function, FunctionId, Line, LocationId, MappingId, StringId};
use crate::sys::allocator;
use crate::{Error, ErrorKind, Profile};
use find::Finder;
use image::Image;

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
/// A location's lines are the inlined frames, innermost first, and then the function itself. Addresses are taken as
/// they stand in the profile, that is with return addresses already moved back into the call. A function's name is
/// demangled, its system name is the symbol; the system name is empty where debug information knows the demangled
/// name alone, because `pprof` would demangle that once more. The `has_…` marks are set on every mapping that gained
/// what they say.
///
/// A module that cannot be read leaves its locations as they are; so do addresses that no symbol covers. Both are in
/// the answer, one entry an object, each fit to be a comment of the profile.
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
    allocator::giving_back(|| symbolize_objects(profile))
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
                    .unwrap_or_else(|| Error::new(ErrorKind::Unsupported, "no symbol covers them")),
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

fn symbolize_object(
    profile: &mut Profile,
    functions: &mut Functions,
    finder: &Finder,
    object: &ObjectLocations,
) -> Result<(), Error> {
    let image = finder.image(profile.mapping(object.mapping))?;
    let elf = image.elf()?;
    let mut queries = Vec::with_capacity(object.locations.len());
    for &id in &object.locations {
        let location = profile.location(id);
        let Some(mapping) = location.mapping else {
            continue;
        };
        let mapping = profile.mapping(mapping);
        let offset = location
            .address
            .checked_sub(mapping.memory_start)
            .map(|into| into.wrapping_add(mapping.file_offset));
        if let Some(address) = offset.and_then(|offset| image::virtual_address(&elf, offset)) {
            queries.push((address, id));
        }
    }
    queries.sort_unstable();
    let addresses: Vec<u64> = queries.iter().map(|&(address, _)| address).collect();

    let separate = match image::has_debug_info(&elf) {
        true => None,
        false => finder.debug_image(&elf),
    };
    let separate_elf = separate.as_ref().and_then(|image| image.elf().ok());
    let symbols = symbols::find(separate_elf.iter().chain([&elf]), &addresses);

    let debug = match (&separate, &separate_elf) {
        (Some(image), Some(elf)) => (image, elf),
        _ => (&image, &elf),
    };
    let mut emit = |query: usize, frames: &[Frame]| {
        functions.set_lines(profile, queries[query].1, frames, symbols[query]);
    };
    let debug = frames_from_debug_info(debug.0, debug.1, &addresses, &mut emit);

    let mut without = 0;
    for (query, &symbol) in symbols.iter().enumerate() {
        let location = queries[query].1;
        if profile.location(location).lines.is_empty() {
            match symbol {
                Some(_) => functions.set_lines(profile, location, &[], symbol),
                None => without += 1,
            }
        }
    }
    match debug {
        Err(reason) if without > 0 => Err(reason),
        _ if without == queries.len() && !image::has_symbols(&elf) => Err(Error::new(
            ErrorKind::Unsupported,
            "the file has neither debug information nor symbols; keep them when stripping \
             (strip --strip-debug), or put them into /usr/lib/debug/.build-id",
        )),
        _ => Ok(()),
    }
}

fn frames_from_debug_info(
    image: &Image,
    elf: &image::Elf<'_>,
    addresses: &[u64],
    emit: &mut dyn FnMut(usize, &[Frame]),
) -> Result<(), Error> {
    if !image::has_debug_info(elf) {
        return Ok(());
    }
    let sections = image::DebugSections::read(elf)?;
    dwarf::find_frames(&sections, addresses, || image.give_back_pages(), emit).map_err(|error| {
        Error::new(
            ErrorKind::InvalidData,
            format!("the debug information cannot be read ({error}); its symbols were used"),
        )
    })
}

/// One frame at an address, as debug information describes it.
struct Frame<'d> {
    /// The symbol or, failing that, the name in the source.
    symbol: Option<&'d str>,
    /// The name in the source, without what encloses it.
    source_name: Option<&'d str>,
    file: Option<&'d str>,
    /// From 1; 0 where unknown.
    line: u32,
    /// From 1; 0 where unknown.
    column: u32,
    /// The line where the function is declared in `file`; 0 where unknown or elsewhere.
    start_line: u32,
}

/// The functions of a profile, each once.
struct Functions {
    ids: HashMap<Function, FunctionId>,
    /// Name and system name of every symbol so far.
    names: HashMap<StringId, (StringId, StringId)>,
}

impl Functions {
    fn of(profile: &Profile) -> Self {
        let functions = profile.functions().iter().enumerate();
        Self {
            ids: functions
                .map(|(index, &function)| (function, FunctionId(index as u32)))
                .collect(),
            names: HashMap::new(),
        }
    }

    /// Gives a location its lines; `symbol` names the outermost frame if nothing better does.
    fn set_lines(
        &mut self,
        profile: &mut Profile,
        location: LocationId,
        frames: &[Frame],
        symbol: Option<&str>,
    ) {
        let by_symbol = [Frame {
            symbol,
            source_name: None,
            file: None,
            line: 0,
            column: 0,
            start_line: 0,
        }];
        let frames = match frames {
            [] => &by_symbol,
            frames => frames,
        };
        let mut lines = Vec::with_capacity(frames.len());
        let mut has_filenames = false;
        for (index, frame) in frames.iter().enumerate() {
            let outermost = index + 1 == frames.len();
            let Some(symbol) = frame.symbol.or(symbol.filter(|_| outermost)) else {
                continue;
            };
            has_filenames |= frame.file.is_some();
            lines.push(Line {
                function: self.intern(profile, symbol, frame),
                line: i64::from(frame.line),
                column: i64::from(frame.column),
            });
        }
        if let Some(mapping) = profile.location(location).mapping {
            let mapping = &mut profile.mappings_mut()[mapping.index()];
            mapping.has_functions |= !lines.is_empty();
            mapping.has_filenames |= has_filenames;
            mapping.has_line_numbers |= lines.iter().any(|line| line.line != 0);
            mapping.has_inline_frames |= lines.len() > 1;
        }
        profile.locations_mut()[location.index()].lines = lines;
    }

    fn intern(&mut self, profile: &mut Profile, symbol: &str, frame: &Frame) -> FunctionId {
        let symbol_id = profile.intern(symbol);
        let (name, system_name) = *self.names.entry(symbol_id).or_insert_with(|| {
            let (name, system_name) = name::names(symbol, frame.source_name);
            (profile.intern(&name), profile.intern(system_name))
        });
        let function = Function {
            name,
            system_name,
            filename: profile.intern(frame.file.unwrap_or("")),
            start_line: i64::from(frame.start_line),
        };
        *self
            .ids
            .entry(function)
            .or_insert_with(|| profile.push_function(function))
    }
}
