//! What is damaged, as a sentence.

use std::path::Path;

use super::dwarf::Failure;
use super::object_file;
use crate::Error;

/// What says that the debug information in a file cannot be read.
pub(super) fn damaged(path: &Path, failure: Failure) -> Error {
    object_file::damaged(path, Some(failure.what), failure.why)
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

    pub(super) fn outcome(self) -> Result<(), Error> {
        self.0.map_or(Ok(()), Err)
    }
}
