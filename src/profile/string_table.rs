//! Every text of a profile once.

use std::fmt;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::StringId;

/// Interned strings. Handle 0 is always the empty string, as in profile.proto.
///
/// The text lies in one buffer, and the index holds handles only, so a table of a million short
/// names costs their bytes and a dozen more each.
#[derive(Clone)]
pub struct StringTable {
    text: String,
    /// End of each string in `text`; string `i` begins where `i - 1` ends.
    ends: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl StringTable {
    /// A table that holds the empty string.
    pub fn new() -> Self {
        let mut table = Self {
            text: String::new(),
            ends: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        table.intern("");
        table
    }

    /// The handle of `string`, which is added if it is new.
    ///
    /// # Panics
    ///
    /// If the table's text would pass 4 GiB.
    pub fn intern(&mut self, string: &str) -> StringId {
        let Self {
            text,
            ends,
            index,
            hasher,
        } = self;
        let entry = index.entry(
            hasher.hash_one(string),
            |&i| slice(text, ends, i) == string,
            |&i| hasher.hash_one(slice(text, ends, i)),
        );
        match entry {
            hashbrown::hash_table::Entry::Occupied(entry) => StringId(*entry.get()),
            hashbrown::hash_table::Entry::Vacant(entry) => {
                let id = ends.len() as u32;
                let end = u32::try_from(text.len() + string.len())
                    .expect("a profile's text stays under 4 GiB");
                entry.insert(id);
                text.push_str(string);
                ends.push(end);
                StringId(id)
            }
        }
    }

    /// The handle of `string`, if the table holds it.
    pub fn find(&self, string: &str) -> Option<StringId> {
        let found = self.index.find(self.hasher.hash_one(string), |&i| {
            slice(&self.text, &self.ends, i) == string
        });
        found.map(|&i| StringId(i))
    }

    /// The string behind a handle of this table.
    ///
    /// # Panics
    ///
    /// If the handle is not of this table.
    pub fn get(&self, id: StringId) -> &str {
        slice(&self.text, &self.ends, id.0)
    }

    /// How many strings there are, the empty one included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never: the empty string is always there.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All strings in the order of their handles.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.ends.len() as u32).map(|i| slice(&self.text, &self.ends, i))
    }
}

fn slice<'t>(text: &'t str, ends: &[u32], id: u32) -> &'t str {
    let start = match id {
        0 => 0,
        id => ends[id as usize - 1],
    };
    &text[start as usize..ends[id as usize] as usize]
}

impl Default for StringTable {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for StringTable {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.ends == other.ends
    }
}

impl fmt::Debug for StringTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_a_handle_and_zero_is_empty() {
        let mut table = StringTable::new();
        assert_eq!(table.get(StringId(0)), "");
        let a = table.intern("main");
        let b = table.intern("work");
        assert_eq!(table.intern("main"), a);
        assert_ne!(a, b);
        assert_eq!(table.iter().collect::<Vec<_>>(), ["", "main", "work"]);
    }
}
