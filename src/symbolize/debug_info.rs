//! Addresses to functions, files, lines and inlined frames, by debug information.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::convert::Infallible;
use std::fmt::Display;
use std::path::Path;

use addr2line::Context;
use addr2line::gimli::{DwarfSections, EndianSlice, Error as DwarfError, LittleEndian, SectionId};

use super::compressed::Budget;
use super::object_file::{self, ObjectFile};
use super::opened::Problems;
use super::split::{self, Skeletons};
use super::supplementary;
use super::units;
use super::wanted::Wanted;
use crate::Error;

pub(super) type Reader<'d> = EndianSlice<'d, LittleEndian>;

pub(super) fn reader(bytes: &[u8]) -> Reader<'_> {
    EndianSlice::new(bytes, LittleEndian)
}

/// A call that is going on at an address, as debug information has it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Frame<'d> {
    /// The symbol of the function or, failing that, its name in the source; empty if unknown.
    pub(super) name: Cow<'d, str>,
    /// Where in the source; empty if unknown.
    pub(super) file: Cow<'d, str>,
    /// 0 if unknown.
    pub(super) line: u32,
    /// 0 if unknown.
    pub(super) column: u32,
}

/// What says that the debug information in a file cannot be read.
pub(super) fn damaged(path: &Path, error: impl Display) -> Error {
    object_file::damaged(path, Some("the debug information"), error)
}

/// The first thing that was damaged, of several.
#[derive(Default)]
pub(super) struct Damage(Option<Error>);

impl Damage {
    pub(super) fn add(&mut self, error: Error) {
        self.0.get_or_insert(error);
    }

    pub(super) fn check<T>(&mut self, outcome: Result<T, Error>) -> Option<T> {
        outcome.map_err(|error| self.add(error)).ok()
    }

    fn outcome(self) -> Result<(), Error> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Whether a section says anything of functions: what variables are in, and what macros there were,
/// does not.
pub(super) fn is_needed(section: SectionId) -> bool {
    !matches!(
        section,
        SectionId::DebugLoc
            | SectionId::DebugLocLists
            | SectionId::DebugMacinfo
            | SectionId::DebugMacro
            | SectionId::DebugTypes
    )
}

/// The sections that say anything of functions. Those that are damaged are empty.
fn sections<'d>(
    object: &ObjectFile<'d>,
    budget: &mut Budget,
    damage: &mut Damage,
) -> DwarfSections<Cow<'d, [u8]>> {
    let Ok(sections) = DwarfSections::load(|id| {
        let bytes = match is_needed(id) {
            true => damage.check(object.uncompressed(id.name(), budget)),
            false => None,
        };
        Ok::<_, Infallible>(bytes.unwrap_or_default())
    });
    sections
}

/// The units that a context is made of.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Units {
    /// Those that the wanted addresses lie in, and what these need, as a rule.
    Wanted,
    All,
}

/// Calls `found` with the frames, innermost first, of each address that debug information knows.
/// The object was mapped by `filename`, or is the debug file of the one that was. What is damaged
/// is among the problems, and what can be read beside it is found.
pub(super) fn look_up(
    object: &ObjectFile,
    filename: &Path,
    wanted: &Wanted,
    problems: &mut Problems,
    found: &mut dyn FnMut(usize, &[Frame]),
) {
    if wanted.is_empty() || !object.has_section(".debug_info") {
        return;
    }
    let mut damage = Damage::default();
    let mut budget = Budget::new();
    let supplementary = damage.check(supplementary::find(object)).flatten();
    let supplementary = supplementary.as_ref().and_then(|bytes| {
        let object = damage.check(ObjectFile::parse(bytes))?;
        damage.check(object.check_names());
        let sections = sections(&object, &mut budget, &mut damage);
        Some((object.path(), sections))
    });
    let sections = sections(object, &mut budget, &mut damage);
    // Made before the context, which borrows from them.
    let (split, split_sections) = (OnceCell::new(), OnceCell::new());
    let context = |supplementary, units| {
        let mut dwarf = sections.borrow_with_sup(supplementary, |bytes| reader(bytes));
        let is_whole = match units {
            Units::Wanted => !units::take_wanted(&mut dwarf, wanted),
            Units::All => {
                units::take_all(&mut dwarf);
                true
            }
        };
        Ok((Context::from_dwarf(dwarf)?, is_whole))
    };
    let mut context = |units| match &supplementary {
        Some((path, sections)) => context(Some(sections), units).or_else(|error: DwarfError| {
            let context = context(None, units)?;
            // It is the supplementary file, then.
            damage.add(damaged(path, error));
            Ok(context)
        }),
        None => context(None, units),
    };
    let found_skeletons = context(Units::Wanted).and_then(|(found, is_whole)| {
        // Where each unit's code lies is known now. Symbols and ranges are not read again, as a
        // rule.
        object.forget();
        let skeletons = Skeletons::of(&found, wanted);
        let is_enough = skeletons.is_empty() && parse(&found, wanted) || is_whole;
        let found = match is_enough {
            true => found,
            false => context(Units::All)?.0,
        };
        let is_parsed = is_enough && skeletons.is_empty();
        Ok((found, skeletons, is_parsed))
    });
    let outcome = found_skeletons.map_err(|error| damaged(object.path(), error));
    let Some((context, skeletons, is_parsed)) = damage.check(outcome) else {
        problems.check(damage.outcome());
        return;
    };
    let mut split_damage = Damage::default();
    if !skeletons.is_empty() {
        let files = split.get_or_init(|| {
            split::Files::open(&skeletons, filename, object.path(), &mut split_damage)
        });
        problems.check(files.check(&skeletons, object.path()));
        let sections =
            split_sections.get_or_init(|| files.sections(&mut budget, &mut split_damage));
        sections.give(&context, &skeletons, files, &mut split_damage);
    }
    // What is parsed on the way goes with the context, and what `found` keeps stays. Parsed first,
    // the two do not share pages, and those of the first can be given back.
    if !is_parsed {
        parse(&context, wanted);
    }
    let mut frames = Vec::new();
    for &(address, index) in wanted.addresses() {
        frames.clear();
        if let Err(error) = frames_at(&context, address, |name, location| {
            frames.push(frame(name, location));
        }) {
            let file = split
                .get()
                .and_then(|files| skeletons.file_of(address, files));
            match file {
                Some(file) => split_damage.add(damaged(file, error)),
                None => damage.add(damaged(object.path(), error)),
            }
            // The line table says where, if not in which function.
            frames.clear();
            let location = context.find_location(address).ok().flatten();
            frames.extend(location.map(|location| frame(Reader::default(), Some(location))));
        }
        if !frames.is_empty() {
            found(index, &frames);
        }
    }
    problems.check(damage.outcome());
    problems.check(split_damage.outcome());
}

/// Has the context parse what it needs for the wanted addresses. Answers whether all is there:
/// nothing is damaged, or refers to what was left out.
fn parse(context: &Context<Reader>, wanted: &Wanted) -> bool {
    let addresses = wanted.addresses().iter();
    let outcomes = addresses.map(|&(address, _)| frames_at(context, address, |_, _| ()));
    outcomes.filter(|outcome| outcome.is_err()).count() == 0
}

/// Calls `each` with the functions and places, innermost first, at an address.
fn frames_at<'c, 'd>(
    context: &'c Context<Reader<'d>>,
    address: u64,
    mut each: impl FnMut(Reader<'d>, Option<addr2line::Location<'c>>),
) -> Result<(), DwarfError> {
    let mut all = context.find_frames(address).skip_all_loads()?;
    while let Some(found) = all.next()? {
        let name = found.function.map(|function| function.name);
        each(name.unwrap_or_default(), found.location);
    }
    Ok(())
}

fn frame<'c>(name: Reader<'c>, location: Option<addr2line::Location<'c>>) -> Frame<'c> {
    let name = name.to_string_lossy();
    let Some(location) = location else {
        return Frame {
            name,
            ..Frame::default()
        };
    };
    Frame {
        name,
        file: location.file.unwrap_or_default().into(),
        line: location.line.unwrap_or(0),
        column: location.column.unwrap_or(0),
    }
}
