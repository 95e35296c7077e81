//! Every slice once: what interned stacks are made of.

use std::hash::{BuildHasher, Hash};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

/// Interned slices, one after the other in one buffer, numbered from 0 in the order of their first
/// appearance.
#[derive(Clone, Debug)]
pub(crate) struct SliceTable<T> {
    items: Vec<T>,
    /// End of each slice in `items`; slice `i` begins where `i - 1` ends.
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// There is no memory for what is to be added.
#[cfg(feature = "heap")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoMemory;

impl<T> Default for SliceTable<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            ends: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<T: Copy + Eq + Hash> SliceTable<T> {
    /// The number of this slice, which is added if it is new.
    pub(crate) fn intern(&mut self, slice: &[T]) -> u32 {
        let Self {
            items,
            ends,
            index,
            hasher,
        } = self;
        let entry = index.entry(
            hasher.hash_one(slice),
            |&i| at(items, ends, i) == slice,
            |&i| hasher.hash_one(at(items, ends, i)),
        );
        match entry {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let id = u32::try_from(ends.len()).expect("a profile has under 4 Gi stacks");
                entry.insert(id);
                items.extend_from_slice(slice);
                ends.push(items.len());
                id
            }
        }
    }
}

impl<T> SliceTable<T> {
    /// Makes room for this many more items in the buffer, and for so many more slices.
    pub(crate) fn reserve(&mut self, slices: usize, items: usize)
    where
        T: Copy + Eq + Hash,
    {
        let Self {
            items: known,
            ends,
            index,
            hasher,
        } = self;
        index.reserve(slices, |&i| hasher.hash_one(at(known, ends, i)));
        ends.reserve(slices);
        known.reserve(items);
    }

    /// Makes room for as many, where there is memory for it.
    #[cfg(feature = "heap")]
    pub(crate) fn try_reserve(&mut self, slices: usize, items: usize) -> Result<(), NoMemory>
    where
        T: Copy + Eq + Hash,
    {
        let Self {
            items: known,
            ends,
            index,
            hasher,
        } = self;
        let hash = |&i: &u32| hasher.hash_one(at(known, ends, i));
        index.try_reserve(slices, hash).map_err(|_| NoMemory)?;
        ends.try_reserve(slices).map_err(|_| NoMemory)?;
        known.try_reserve(items).map_err(|_| NoMemory)
    }

    /// The slice of a number that `intern` gave out.
    pub(crate) fn get(&self, id: u32) -> &[T] {
        at(&self.items, &self.ends, id)
    }

    /// All slices, one after the other.
    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[T]> {
        (0..self.ends.len() as u32).map(|id| self.get(id))
    }

    /// Bytes that the table takes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>()
            + self.ends.capacity() * size_of::<usize>()
            + self.index.allocation_size()
    }
}

fn at<'t, T>(items: &'t [T], ends: &[usize], id: u32) -> &'t [T] {
    let start = match id {
        0 => 0,
        id => ends[id as usize - 1],
    };
    &items[start..ends[id as usize]]
}

impl<T: PartialEq> PartialEq for SliceTable<T> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items && self.ends == other.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_slices_share_a_number() {
        let mut table = SliceTable::default();
        assert_eq!(table.intern(&[1, 2]), 0);
        assert_eq!(table.intern(&[]), 1);
        assert_eq!(table.intern(&[1, 2]), 0);
        assert_eq!(table.intern(&[1]), 2);
        assert_eq!(table.iter().collect::<Vec<_>>(), [&[1, 2][..], &[], &[1]]);
    }
}
