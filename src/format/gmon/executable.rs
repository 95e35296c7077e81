//! The main executable, by the addresses that its linker gave out.

use std::collections::HashSet;

use super::histogram::BIN;
use crate::error::{Error, ErrorKind, Result};
use crate::profile::{Location, Mapping, Profile};
use crate::sys::brief_file::{self, BriefFile};
use crate::sys::elf::{Elf, Segment};

/// No program is linked to addresses above this one, and none that may lie anywhere is put below.
const FIRST_RANDOM_ADDRESS: u64 = 1 << 32;

/// The first mapping's object.
pub(super) struct Executable<'p> {
    profile: &'p Profile,
    main: Option<&'p Mapping>,
    /// What its file says, where the file is there and the one that was mapped.
    file: Option<File>,
}

/// What is known of the executable's file.
struct File {
    segments: Vec<Segment>,
    /// Where functions begin.
    functions: HashSet<u64>,
}

impl<'p> Executable<'p> {
    pub(super) fn of(profile: &'p Profile) -> Self {
        let main = profile.mappings().first();
        Self {
            profile,
            main,
            file: main.and_then(file),
        }
    }

    /// The last part of its path.
    pub(super) fn name(&self) -> &'p str {
        let path = self.main.map_or("", |main| main.filename.as_str());
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Where its first mapping begins, by the linker.
    pub(super) fn first_address(&self) -> u64 {
        let first = |main: &Mapping| self.link_address_in(main, main.memory_start);
        self.main.and_then(first).unwrap_or(0)
    }

    /// The address that the linker gave to the code of a location; `None` where that lies in
    /// another object, or in none.
    pub(super) fn link_address(&self, location: &Location) -> Option<u64> {
        let mapping = self.profile.mapping(location.mapping?);
        let main = self.main?;
        let is_main = mapping.filename == main.filename && mapping.build_id == main.build_id;
        is_main.then(|| self.link_address_in(mapping, location.address))?
    }

    /// Where to count what was spent at an address, for gprof to find the function: gprof knows
    /// addresses by units of [`BIN`] bytes, and gives a unit in whose midst a function begins to
    /// that function, although its first byte may be the last of the function before.
    pub(super) fn counted_at(&self, address: u64) -> u64 {
        let begins_at = |address| {
            let file = self.file.as_ref();
            file.is_some_and(|file| file.functions.contains(&address))
        };
        let is_before_another = address.is_multiple_of(BIN) && begins_at(address + 1);
        if is_before_another && !begins_at(address) {
            address.saturating_sub(BIN)
        } else {
            address
        }
    }

    fn link_address_in(&self, mapping: &Mapping, address: u64) -> Option<u64> {
        let into = address.checked_sub(mapping.memory_start)?;
        let offset = into.checked_add(mapping.file_offset)?;
        match &self.file {
            Some(file) => (file.segments.iter()).find_map(|s| s.link_address(offset)),
            // Linkers of the GNU kind put code where it lies in the file.
            None if mapping.memory_start >= FIRST_RANDOM_ADDRESS => Some(offset),
            None => Some(address),
        }
    }
}

/// The parts of an executable that are loaded, at the addresses that its linker gave to them.
///
/// # Errors
///
/// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::InvalidData`] if it is no executable
/// whose order of bytes is this machine's.
pub(super) fn mappings_of_file(path: &str) -> Result<Vec<Mapping>> {
    let mappings = brief_file::with(path, |file| {
        let elf = file.is_regular.then(|| Elf::of_any_machine(file)).flatten();
        Ok(elf.map(|elf| {
            let build_id = build_id(&elf);
            let of_segment = |segment: Segment| Mapping {
                memory_start: segment.address,
                memory_limit: segment.address.saturating_add(segment.size),
                file_offset: segment.offset,
                filename: path.to_owned(),
                build_id: build_id.clone(),
                ..Mapping::default()
            };
            elf.segments()
                .into_iter()
                .map(of_segment)
                .collect::<Vec<_>>()
        }))
    });
    let mappings = mappings.map_err(|e| {
        let message = format!("cannot read the executable `{path}`");
        Error::with_source(ErrorKind::Io, message, e)
    })?;
    mappings
        .filter(|mappings| !mappings.is_empty())
        .ok_or_else(|| {
            let message =
                format!("`{path}` is no executable whose order of bytes is this machine's");
            Error::new(ErrorKind::InvalidData, message)
        })
}

fn build_id(elf: &Elf<'_, BriefFile>) -> String {
    let build_id = elf.build_id().unwrap_or_default();
    build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file(mapping: &Mapping) -> Option<File> {
    let file = brief_file::with(&mapping.filename, |file| {
        let elf = file.is_regular.then(|| Elf::of_any_machine(file)).flatten();
        let is_it = |elf: &Elf<'_, BriefFile>| {
            mapping.build_id.is_empty() || mapping.build_id == build_id(elf)
        };
        Ok(elf.filter(is_it).map(|elf| File {
            segments: elf.segments(),
            functions: elf.functions().into_iter().collect(),
        }))
    });
    file.ok().flatten()
}
