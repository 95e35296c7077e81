//! From the ids that a file gives its messages to positions in a table.

use std::fmt;

use hashbrown::HashMap;

use crate::format::invalid;
use crate::{Error, Result};

/// The ids of one kind of message, in the order of its table. They should be 1, 2, 3, …; any others
/// are looked up.
pub(super) struct Ids {
    kind: &'static str,
    len: u32,
    /// So many messages have their position plus one as their id.
    sequential: u32,
    others: HashMap<u64, u32>,
}

impl Ids {
    pub(super) fn new(kind: &'static str) -> Self {
        Self {
            kind,
            len: 0,
            sequential: 0,
            others: HashMap::new(),
        }
    }

    /// Adds the id of the next message.
    pub(super) fn add(&mut self, id: u64) -> Result<()> {
        let kind = self.kind;
        if id == 0 {
            return Err(invalid(format!(
                "the profile has a {kind} with the id 0, which is reserved for none"
            )));
        }
        if self.index(id).is_some() {
            return Err(invalid(format!(
                "the profile has two {kind}s with the id {id}"
            )));
        }
        if self.others.is_empty() && id == u64::from(self.len) + 1 {
            self.sequential += 1;
        } else {
            self.others.insert(id, self.len);
        }
        self.len += 1;
        Ok(())
    }

    /// The position of the message with this id.
    pub(super) fn index(&self, id: u64) -> Option<u32> {
        if id == 0 {
            return None;
        }
        if id <= u64::from(self.sequential) {
            return Some((id - 1) as u32);
        }
        self.others.get(&id).copied()
    }

    /// Whether every id is its position plus one; then the number of messages.
    pub(super) fn all_sequential(&self) -> Option<u32> {
        self.others.is_empty().then_some(self.len)
    }

    pub(super) fn unknown(&self, id: u64, referrer: impl fmt::Display) -> Error {
        invalid(format!(
            "{referrer} of the profile refers to the {} {id}, which does not exist",
            self.kind
        ))
    }
}
