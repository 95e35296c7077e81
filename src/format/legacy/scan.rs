//! Words and numbers of a line, one after the other.

use crate::Result;
use crate::format::lines::Text;

/// What is left of a line. What is asked for and not there leaves it as it is.
#[derive(Clone, Copy)]
pub(super) struct Scan<'t> {
    line: Text<'t>,
    rest: &'t [u8],
    /// What errors call the file.
    what: &'static str,
}

impl<'t> Scan<'t> {
    pub(super) fn new(line: Text<'t>, what: &'static str) -> Self {
        let rest = line.bytes;
        Self { line, rest, what }
    }

    /// The error of this line: `reason` goes on after "a line that".
    pub(super) fn refuse(&self, reason: &str) -> crate::Error {
        self.line.refuse(self.what, reason)
    }

    /// Goes on behind the first such text that is left.
    pub(super) fn skip_past(&mut self, text: &str) -> bool {
        let mut windows = self.rest.windows(text.len());
        let found = windows.position(|part| part == text.as_bytes());
        if let Some(position) = found {
            self.rest = &self.rest[position + text.len()..];
        }
        found.is_some()
    }

    /// Spaces, and then this text.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.trim_ascii_start();
        let after = rest.strip_prefix(text.as_bytes());
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// The bytes of a word that are all of a kind, behind spaces; none perhaps.
    pub(super) fn word(&mut self, is_part: impl Fn(u8) -> bool) -> &'t [u8] {
        let rest = self.rest.trim_ascii_start();
        let len = rest.iter().take_while(|byte| is_part(**byte)).count();
        let (word, rest) = rest.split_at(len);
        self.rest = rest;
        word
    }

    /// A decimal number, with a sign perhaps.
    ///
    /// # Errors
    ///
    /// If there is none, or one that 64 bits do not hold.
    pub(super) fn number(&mut self) -> Result<i64> {
        let is_negative = self.take("-");
        let digits = self.word(|byte| byte.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.refuse("lacks a number"));
        }
        let digits = digits.iter().map(|digit| i64::from(digit - b'0'));
        let number = digits.into_iter().try_fold(0i64, |number, digit| {
            let number = number.checked_mul(10)?;
            match is_negative {
                true => number.checked_sub(digit),
                false => number.checked_add(digit),
            }
        });
        number.ok_or_else(|| self.refuse("has a number that 64 bits do not hold"))
    }

    /// Whether nothing but spaces is left.
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.trim_ascii().is_empty()
    }

    /// What is asked for has to be there: says what the line is not, else.
    pub(super) fn expect(&mut self, text: &str, reason: &str) -> Result<()> {
        match self.take(text) {
            true => Ok(()),
            false => Err(self.refuse(reason)),
        }
    }

    /// The next address, `0x` and hexadecimal digits, wherever one begins in what is left.
    pub(super) fn address(&mut self) -> Result<Option<u64>> {
        loop {
            if !self.skip_past("0x") {
                return Ok(None);
            }
            let (mut address, mut digits) = (0u64, 0);
            while let [digit, rest @ ..] = self.rest
                && let Some(value) = (*digit as char).to_digit(16)
            {
                if address >> 60 != 0 {
                    return Err(self.refuse("has an address that 64 bits do not hold"));
                }
                address = address << 4 | u64::from(value);
                digits += 1;
                self.rest = rest;
            }
            if digits > 0 {
                return Ok(Some(address));
            }
        }
    }

    /// Whether nothing is left but addresses between spaces.
    pub(super) fn is_all_addresses(&self) -> bool {
        let mut words = self.rest.split(u8::is_ascii_whitespace);
        words.all(|word| {
            let digits = word.strip_prefix(b"0x").unwrap_or_default();
            word.is_empty() || !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit)
        })
    }
}
