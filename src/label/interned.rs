//! The sets of labels of a recording's samples, each once, under numbers.

use hashbrown::HashMap;

use super::node::{Node, Taken, visible};

/// Sets by number.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    sets: Vec<Vec<(String, String)>>,
    numbers: HashMap<Vec<(String, String)>, u32>,
    /// Numbers by the address of the label on top, as long as that means the same label.
    by_address: HashMap<u64, u32>,
}

impl Interned {
    /// Before the lanes are emptied; what it returns is dropped after that.
    pub(crate) fn begin(&mut self) -> Taken {
        self.by_address.clear();
        Taken::now()
    }

    /// The number of the set that a record refers to; 0 for none.
    ///
    /// # Safety
    ///
    /// The address comes from a record that is drained between [`begin`](Self::begin) and the drop
    /// of what that returned.
    pub(crate) unsafe fn number_of(&mut self, address: u64) -> u32 {
        if address == 0 {
            return 0;
        }
        if let Some(&known) = self.by_address.get(&address) {
            return known;
        }
        // SAFETY: the node was its thread's when the record was committed; since then it still is,
        // or was retired, and not freed before the end of this turn.
        let node = unsafe { &*(address as *const Node) };
        let mut set: Vec<(String, String)> = visible(Some(node))
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        set.sort_unstable();
        let next = self.sets.len() as u32 + 1;
        let number = *self.numbers.entry(set.clone()).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        self.by_address.insert(address, number);
        number
    }

    /// Keys and values of a set.
    pub(crate) fn get(&self, number: u32) -> &[(String, String)] {
        let set = (number as usize).checked_sub(1);
        set.and_then(|index| self.sets.get(index))
            .map_or(&[], Vec::as_slice)
    }
}
