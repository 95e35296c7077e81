//! What variables can hold.

use std::ffi::{OsStr, OsString};

use crate::error::{Error, ErrorKind, Result};

/// What gperftools takes for a frequency that is missing, or makes no sense.
const DEFAULT_FREQUENCY_HZ: u32 = 100;
/// What gperftools limits the variable to.
const MAX_FREQUENCY_HZ: u32 = 4000;

/// A variable that is neither missing nor empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// What a variable's word stands for, if the variable is set.
pub(super) fn word<T: Copy>(name: &str, words: &[(&str, T)]) -> Result<Option<T>> {
    let Some(value) = variable(name) else {
        return Ok(None);
    };
    if let Some(&(_, meaning)) = words.iter().find(|(word, _)| value == *word) {
        return Ok(Some(meaning));
    }
    let words: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!(
            "{name} is `{}`; it can be {}",
            value.display(),
            words.join(", ")
        ),
    ))
}

/// A signal's number.
#[cfg(feature = "capi")]
pub(super) fn decimal(name: &str, value: &OsStr) -> Result<i32> {
    let number = value.to_str().and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| no_number(name, value))
}

/// A signal's number as C writes numbers.
pub(super) fn c_number(name: &str, value: &OsStr) -> Result<i32> {
    let digits = value.to_str().unwrap_or_default();
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    i32::from_str_radix(digits, radix).map_err(|_| no_number(name, value))
}

fn no_number(name: &str, value: &OsStr) -> Error {
    let value = value.display();
    let message = format!("{name} is `{value}`, which is no signal's number");
    Error::new(ErrorKind::InvalidInput, message)
}

/// A number of bytes, if the variable is set.
#[cfg(feature = "heap")]
pub(crate) fn bytes(name: &str) -> Result<Option<u64>> {
    number_of(name, "bytes")
}

/// A number of nanoseconds, if the variable is set.
#[cfg(feature = "contention")]
pub(crate) fn nanoseconds(name: &str) -> Result<Option<u64>> {
    number_of(name, "nanoseconds")
}

#[cfg(any(feature = "contention", feature = "heap"))]
fn number_of(name: &str, unit: &str) -> Result<Option<u64>> {
    let Some(value) = variable(name) else {
        return Ok(None);
    };
    let number = value.to_str().and_then(|digits| digits.parse().ok());
    number.map(Some).ok_or_else(|| {
        let value = value.display();
        let message = format!("{name} is `{value}`, which is no number of {unit}");
        Error::new(ErrorKind::InvalidInput, message)
    })
}

/// A whole number or nothing: not a number's prefix.
pub(super) fn frequency_hz(value: Option<OsString>) -> u32 {
    match value
        .as_deref()
        .and_then(OsStr::to_str)
        .map(str::parse::<u64>)
    {
        Some(Ok(hz @ 1..)) => hz.min(MAX_FREQUENCY_HZ.into()) as u32,
        _ => DEFAULT_FREQUENCY_HZ,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_that_make_no_sense_are_the_default() {
        let parsed = |text: &str| frequency_hz(Some(text.into()));
        assert_eq!(frequency_hz(None), 100);
        for junk in ["", "0", "-5", "12x", "x", "1e3", "99999999999999999999"] {
            assert_eq!(parsed(junk), 100, "{junk:?}");
        }
        assert_eq!(parsed("1"), 1);
        assert_eq!(parsed("250"), 250);
        assert_eq!(parsed("4000"), 4000);
        assert_eq!(parsed("4001"), 4000);
        assert_eq!(parsed("10000000000"), 4000);
    }

    #[test]
    fn a_signals_number_is_read_as_in_c() {
        let read = |value: &str| c_number("CPUPROFILE_TIMER_SIGNAL", value.as_ref());
        for (value, number) in [
            ("27", 27),
            ("0x1b", 27),
            ("0X1B", 27),
            ("033", 27),
            ("0", 0),
        ] {
            assert_eq!(read(value).unwrap(), number, "{value:?}");
        }
        for junk in ["x", "0x", "09", "12 ", "SIGPROF", "99999999999"] {
            let error = read(junk).unwrap_err().to_string();
            assert!(error.contains("CPUPROFILE_TIMER_SIGNAL"), "{error}");
        }
    }
}
