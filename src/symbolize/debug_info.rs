//! Addresses to functions, files, lines and inlined frames, by debug information.

use std::borrow::Cow;

use addr2line::Context;
use addr2line::gimli::{
    AbbreviationsCacheStrategy, DwarfSections, EndianSlice, Error as DwarfError, LittleEndian,
    SectionId,
};

use super::object_file::{Budget, ObjectFile};
use super::wanted::Wanted;
use crate::Error;

type Reader<'d> = EndianSlice<'d, LittleEndian>;

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

/// Calls `found` with the frames, innermost first, of each address that debug information knows.
///
/// # Errors
///
/// The first thing that is damaged. What can be read beside it is found.
pub(super) fn look_up(
    object: &ObjectFile,
    wanted: &Wanted,
    found: &mut dyn FnMut(usize, &[Frame]),
) -> Result<(), Error> {
    if wanted.is_empty() || !object.has_section(".debug_info") {
        return Ok(());
    }
    let mut outcome = Ok(());
    let mut budget = Budget::new();
    let sections = DwarfSections::load(|id| {
        // What variables are in, and what macros there were, says nothing of functions.
        let is_needed = !matches!(
            id,
            SectionId::DebugLoc
                | SectionId::DebugLocLists
                | SectionId::DebugMacinfo
                | SectionId::DebugMacro
                | SectionId::DebugTypes
        );
        let bytes = match is_needed {
            true => object.uncompressed(id.name(), &mut budget),
            false => Ok(Cow::Borrowed(&[][..])),
        };
        Ok::<_, DwarfError>(bytes.unwrap_or_else(|error| {
            keep_first(&mut outcome, error);
            Cow::Borrowed(&[])
        }))
    });
    let damaged = |error: DwarfError| object.damaged("the debug information", error);
    let sections = sections.map_err(damaged)?;
    let mut dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    // Units that share abbreviations, as Rust's do, would parse them each.
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let context = Context::from_dwarf(dwarf).map_err(damaged)?;
    // Where each unit's code lies is known now. Symbols and ranges are not read again, as a rule.
    object.forget();
    // What is parsed on the way goes with the context, and what `found` keeps stays. Parsed first,
    // the two do not share pages, and those of the first can be given back.
    for &(address, _) in wanted.addresses() {
        let _ = frames_at(&context, address, &mut |_| ());
    }
    let mut frames = Vec::new();
    for &(address, index) in wanted.addresses() {
        frames.clear();
        if let Err(error) = frames_at(&context, address, &mut |frame| frames.push(frame)) {
            keep_first(&mut outcome, damaged(error));
            // The line table says where, if not in which function.
            frames.clear();
            let location = context.find_location(address).ok().flatten();
            frames.extend(location.map(|location| frame("".into(), Some(location))));
        }
        if !frames.is_empty() {
            found(index, &frames);
        }
    }
    outcome
}

fn keep_first(outcome: &mut Result<(), Error>, error: Error) {
    if outcome.is_ok() {
        *outcome = Err(error);
    }
}

fn frames_at<'c>(
    context: &'c Context<Reader<'c>>,
    address: u64,
    each: &mut dyn FnMut(Frame<'c>),
) -> Result<(), DwarfError> {
    let mut all = context.find_frames(address).skip_all_loads()?;
    while let Some(found) = all.next()? {
        let name = match &found.function {
            // Borrowed from the section, not from the frame.
            Some(function) => function.name.to_string_lossy(),
            None => Cow::Borrowed(""),
        };
        each(frame(name, found.location));
    }
    Ok(())
}

fn frame<'c>(name: Cow<'c, str>, location: Option<addr2line::Location<'c>>) -> Frame<'c> {
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
