//! Every chain of locations once.

use std::fmt;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{LocationId, StackId};

/// Interned stacks: samples that share a chain of locations share its storage.
#[derive(Clone, Default)]
pub struct StackTable {
    locations: Vec<LocationId>,
    /// End of each stack in `locations`; stack `i` begins where `i - 1` ends.
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl StackTable {
    /// The handle of this chain, leaf first; it is added if it is new.
    pub fn intern(&mut self, stack: &[LocationId]) -> StackId {
        let Self {
            locations,
            ends,
            index,
            hasher,
        } = self;
        let entry = index.entry(
            hasher.hash_one(stack),
            |&i| slice(locations, ends, i) == stack,
            |&i| hasher.hash_one(slice(locations, ends, i)),
        );
        match entry {
            hashbrown::hash_table::Entry::Occupied(entry) => StackId(*entry.get()),
            hashbrown::hash_table::Entry::Vacant(entry) => {
                let id = u32::try_from(ends.len()).expect("a profile has under 4 Gi stacks");
                entry.insert(id);
                locations.extend_from_slice(stack);
                ends.push(locations.len());
                StackId(id)
            }
        }
    }

    /// The chain behind a handle of this table, leaf first.
    ///
    /// # Panics
    ///
    /// If the handle is not of this table.
    pub fn get(&self, id: StackId) -> &[LocationId] {
        slice(&self.locations, &self.ends, id.0)
    }

    /// The locations of all stacks, one stack after the other.
    pub(crate) fn locations(&self) -> &[LocationId] {
        &self.locations
    }

    /// How many distinct stacks there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

fn slice<'t>(locations: &'t [LocationId], ends: &[usize], id: u32) -> &'t [LocationId] {
    let start = match id {
        0 => 0,
        id => ends[id as usize - 1],
    };
    &locations[start..ends[id as usize]]
}

impl PartialEq for StackTable {
    fn eq(&self, other: &Self) -> bool {
        self.locations == other.locations && self.ends == other.ends
    }
}

impl fmt::Debug for StackTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries((0..self.ends.len() as u32).map(|i| self.get(StackId(i))))
            .finish()
    }
}
