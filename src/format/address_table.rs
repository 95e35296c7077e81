//! The addresses of a file that has nothing but addresses, and the locations they become.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::mapped_objects::{MappedObjects, Placeholder};
use super::written_addresses::as_it_was;
use super::{attribution, charge, too_large};
use crate::Result;
use crate::profile::{Function, Line, Location, LocationId, MappingId, Profile};

/// Bytes of memory that an address takes which none was equal to: it becomes a location.
const LOCATION_MEMORY: usize = 2 * size_of::<Location>();

/// Distinct addresses in the order of their first appearance.
#[derive(Default)]
pub(super) struct AddressTable {
    distinct: Vec<u64>,
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl AddressTable {
    /// The location that the address will be, whose position is that of the address here.
    pub(super) fn intern(&mut self, address: u64, memory: &mut u64) -> Result<LocationId> {
        let (distinct, hasher) = (&mut self.distinct, &self.hasher);
        let entry = self.numbers.entry(
            hasher.hash_one(address),
            |&n| distinct[n as usize] == address,
            |&n| hasher.hash_one(distinct[n as usize]),
        );
        match entry {
            Entry::Occupied(entry) => Ok(LocationId(*entry.get())),
            Entry::Vacant(entry) => {
                charge(memory, LOCATION_MEMORY)?;
                let number = u32::try_from(distinct.len()).map_err(|_| too_large())?;
                entry.insert(number);
                distinct.push(address);
                Ok(LocationId(number))
            }
        }
    }

    /// Gives a profile that has neither mappings nor locations those of the file: as they are in
    /// files of ours, and as google/pprof guesses in those of others.
    pub(super) fn locate(self, mut objects: MappedObjects, profile: &mut Profile) {
        let addresses = self.distinct;
        let mapping_of = match objects.is_exact {
            true => attribution::first_holding(&objects.mappings, &addresses),
            false => attribution::as_pprof_guesses(&mut objects.mappings, &addresses),
        };
        for mapping in objects.mappings {
            profile.push_mapping(mapping);
        }
        let placeholders = objects.placeholders.into_iter();
        let names: HashMap<u64, String> = placeholders
            .map(|Placeholder { address, name }| (address, name))
            .collect();
        for (address, mapping) in addresses.into_iter().zip(mapping_of) {
            let location = match names.get(&address) {
                None => Location {
                    mapping: mapping.map(MappingId),
                    address,
                    ..Location::default()
                },
                Some(name) => nameplate(profile, as_it_was(name)),
            };
            profile.push_location(location);
        }
    }
}

/// A location that is a name and no code.
fn nameplate(profile: &mut Profile, name: &str) -> Location {
    let name = profile.intern(name);
    let function = profile.push_function(Function {
        name,
        system_name: name,
        ..Function::default()
    });
    let line = Line {
        function,
        line: 0,
        column: 0,
    };
    Location {
        lines: vec![line],
        ..Location::default()
    }
}
