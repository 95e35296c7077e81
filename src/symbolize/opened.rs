//! An object, with all that its addresses are named by.

use std::path::{Path, PathBuf};

use super::debug_file;
use super::debug_info::{self, Frame};
use super::debugdata;
use super::find::Place;
use super::object_file::{Bytes, ObjectFile};
use super::raw_symbols::Table;
use super::symbol_table::{self, Symbol};
use super::wanted::Wanted;
use super::{NO_SYMBOL, STRIPPED};
use crate::{Error, ErrorKind};

/// What stood in the way of names.
#[derive(Debug, Default)]
pub(super) struct Problems {
    /// Sentences, each once.
    sentences: Vec<String>,
    /// Whether the object was stripped of its symbols, and nothing has them instead.
    pub(super) is_stripped: bool,
}

impl Problems {
    /// Keeps what says why something failed.
    pub(super) fn check<T>(&mut self, outcome: Result<T, Error>) -> Option<T> {
        let keep = |error: Error| {
            let sentence = error.to_string();
            if !self.sentences.contains(&sentence) {
                self.sentences.push(sentence);
            }
        };
        outcome.map_err(keep).ok()
    }

    /// Whether nothing was damaged.
    pub(super) fn is_empty(&self) -> bool {
        self.sentences.is_empty()
    }

    /// What was damaged or, where nothing was and some addresses have no name, why that is.
    pub(super) fn reason(&self, is_unnamed: bool) -> Option<Error> {
        if !self.is_empty() {
            let all = self.sentences.join("; ");
            return Some(Error::new(ErrorKind::InvalidData, all));
        }
        let why = match self.is_stripped {
            true => STRIPPED,
            false => NO_SYMBOL,
        };
        is_unnamed.then(|| Error::new(ErrorKind::Unsupported, why))
    }
}

/// The bytes of an object and of the files that belong to it.
#[derive(Debug)]
pub(super) struct Opened {
    /// By which the object was mapped.
    filename: PathBuf,
    object: Bytes,
    debug_file: Option<Bytes>,
    /// The object within the object that has its symbols.
    debugdata: Option<Bytes>,
}

/// An [`Opened`], parsed.
pub(super) struct Sources<'d> {
    filename: &'d Path,
    object: ObjectFile<'d>,
    debug_file: Option<ObjectFile<'d>>,
    debugdata: Option<ObjectFile<'d>>,
}

impl Opened {
    /// Opens the object, which was mapped by this name, and its debug file, where it has one.
    ///
    /// # Errors
    ///
    /// Where the object cannot be read, or is none. What else is damaged is among the problems.
    pub(super) fn open(
        place: &Place,
        filename: &Path,
        problems: &mut Problems,
    ) -> Result<Self, Error> {
        let object = place.bytes()?;
        let parsed = ObjectFile::parse(&object)?;
        let debug_file = debug_file::find(&parsed, filename, problems);
        let debugdata = problems.check(debugdata::read(&parsed)).flatten();
        Ok(Self {
            filename: filename.to_owned(),
            object,
            debug_file,
            debugdata,
        })
    }

    /// All of them, parsed. Those that are none are among the problems.
    pub(super) fn sources<'d>(&'d self, problems: &mut Problems) -> Result<Sources<'d>, Error> {
        let object = ObjectFile::parse(&self.object)?;
        problems.check(object.check_names());
        let mut parse = |bytes: Option<&'d Bytes>| {
            let parsed = problems.check(ObjectFile::parse(bytes?))?;
            problems.check(parsed.check_names());
            Some(parsed)
        };
        Ok(Sources {
            filename: &self.filename,
            object,
            debug_file: parse(self.debug_file.as_ref()),
            debugdata: parse(self.debugdata.as_ref()),
        })
    }
}

impl<'d> Sources<'d> {
    /// The addresses of what lies at these offsets in the object.
    pub(super) fn wanted(&self, offsets: impl IntoIterator<Item = Option<u64>>) -> Wanted {
        let offsets = offsets.into_iter();
        Wanted::new(offsets.map(|offset| self.object.address(offset?)))
    }

    /// The symbols of so many places, from whatever table has one.
    pub(super) fn symbols(
        &self,
        wanted: &Wanted,
        places: usize,
        problems: &mut Problems,
    ) -> Vec<Option<Symbol<'d>>> {
        let mut symbols = vec![None; places];
        let tables = [
            (Some(&self.object), Table::Symtab),
            (self.debug_file.as_ref(), Table::Symtab),
            (self.debugdata.as_ref(), Table::Symtab),
            (Some(&self.object), Table::Dynsym),
        ];
        for (object, table) in tables {
            if let Some(object) = object {
                problems.check(symbol_table::look_up(object, table, wanted, &mut symbols));
            }
        }
        self.object.forget();
        symbols
    }

    /// Calls `found` with the frames of each of so many places that debug information knows.
    pub(super) fn frames(
        &self,
        wanted: &Wanted,
        places: usize,
        problems: &mut Problems,
        found: &mut dyn FnMut(usize, &[Frame]),
    ) {
        let mut is_found = vec![false; places];
        for object in self.debug_file.iter().chain([&self.object]) {
            let missing = wanted.only(|index| !is_found[index]);
            let found = &mut |index: usize, frames: &[Frame]| {
                is_found[index] = true;
                found(index, frames);
            };
            debug_info::look_up(object, self.filename, &missing, problems, found);
        }
    }

    /// Whether the object was stripped of its symbols, and nothing has them instead.
    pub(super) fn is_stripped(&self) -> bool {
        let has_symbols = |object: &ObjectFile| object.has_symbols(Table::Symtab);
        let sources = [&self.debug_file, &self.debugdata].into_iter().flatten();
        !sources.chain([&self.object]).any(has_symbols)
    }
}
