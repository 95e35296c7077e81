//! Every chain of locations once.

use std::fmt;

use super::slice_table::SliceTable;
use super::{LocationId, StackId};

/// Interned stacks: samples that share a chain of locations share its storage.
#[derive(Clone, Default, PartialEq)]
pub struct StackTable(SliceTable<LocationId>);

impl StackTable {
    /// The handle of this chain, leaf first; it is added if it is new.
    pub fn intern(&mut self, stack: &[LocationId]) -> StackId {
        StackId(self.0.intern(stack))
    }

    /// The chain behind a handle of this table, leaf first.
    ///
    /// # Panics
    ///
    /// If the handle is not of this table.
    pub fn get(&self, id: StackId) -> &[LocationId] {
        self.0.get(id.0)
    }

    pub(super) fn reserve(&mut self, stacks: usize, locations: usize) {
        self.0.reserve(stacks, locations);
    }

    /// The locations of all stacks, one stack after the other.
    pub(crate) fn locations(&self) -> &[LocationId] {
        self.0.items()
    }

    /// How many distinct stacks there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for StackTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}
