//! Numbers of system calls that have been found.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers that system calls have in code that stays the same. Handlers look up what others
/// have found.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// The address of a call's instruction, and in the lower bits one more than its number, or
    /// [`NONE`](Self::NONE).
    entries: [AtomicU64; Numbers::ENTRIES],
}

impl Numbers {
    const ENTRIES: usize = 64;
    /// Bits of a number. Addresses of code have 48 at most.
    const BITS: u32 = 16;
    const MASK: u64 = (1 << Self::BITS) - 1;
    /// No number is certain.
    const NONE: u64 = Self::MASK;

    pub(crate) fn new() -> Self {
        Self {
            entries: [const { AtomicU64::new(0) }; Self::ENTRIES],
        }
    }

    /// What `find` came to for the call at an address, or comes to. *Async-signal-safe* if `find`
    /// is.
    pub(crate) fn get_or(&self, call: u64, find: impl FnOnce() -> Option<u32>) -> Option<u32> {
        // Fibonacci hashing.
        let hash = call.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        let entry = self.entries.get(hash as usize)?;
        let known = entry.load(Ordering::Relaxed);
        if known != 0 && known >> Self::BITS == call {
            return match known & Self::MASK {
                Self::NONE => None,
                number => u32::try_from(number).ok()?.checked_sub(1),
            };
        }
        let number = find();
        let noted = match number {
            None => Some(Self::NONE),
            Some(number) => Some(u64::from(number) + 1).filter(|&noted| noted < Self::NONE),
        };
        if let Some(noted) = noted.filter(|_| call >> (u64::BITS - Self::BITS) == 0) {
            entry.store(call << Self::BITS | noted, Ordering::Relaxed);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_not_looked_for_again() {
        let numbers = Numbers::new();
        let never = || unreachable!();
        let calls = (1..500).map(|i| (i * 4099, (i % 7 != 0).then_some(i as u32 - 1)));
        for (call, number) in calls {
            assert_eq!(numbers.get_or(call, || number), number);
            assert_eq!(numbers.get_or(call, never), number);
        }
        // What does not fit is found each time.
        for (call, number) in [(1 << 60, 1), (4096, 0xffff)] {
            assert_eq!(numbers.get_or(call, || Some(number)), Some(number));
            assert_eq!(numbers.get_or(call, || None), None);
        }
    }
}
