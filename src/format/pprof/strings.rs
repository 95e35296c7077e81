//! The string table of a file.

use crate::Result;
use crate::format::invalid;

/// The strings in the order of the file; those that are not UTF-8 have replacement characters, as
/// paths and symbols may be any bytes.
#[derive(Default)]
pub(super) struct Strings {
    text: String,
    /// End of each string in `text`.
    ends: Vec<usize>,
}

impl Strings {
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<()> {
        if self.ends.is_empty() && !bytes.is_empty() {
            return Err(invalid(
                "the profile's string_table[0] is not the empty string",
            ));
        }
        self.text.push_str(&String::from_utf8_lossy(bytes));
        self.ends.push(self.text.len());
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at an index that `what` refers to.
    pub(super) fn get(&self, what: &str, index: i64) -> Result<&str> {
        let end = usize::try_from(index).ok().and_then(|i| {
            let start = match i {
                0 => 0,
                _ => *self.ends.get(i - 1)?,
            };
            Some(start..*self.ends.get(i)?)
        });
        let range = end.ok_or_else(|| {
            invalid(format!(
                "a {what} of the profile refers to string {index}, but its string_table has {} strings",
                self.ends.len()
            ))
        })?;
        Ok(&self.text[range])
    }
}
