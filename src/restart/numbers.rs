//! Numbers of system calls, and those that have been found.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of a system call that code makes, or has made: what the register has before the
/// instruction at the place. Registers are numbered as in instructions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sought {
    pub(crate) place: u64,
    pub(crate) register: u8,
}

/// What the code of one function says of a number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) enum Number {
    Known(u32),
    /// It lies so many bytes above the stack pointer.
    Stack(u32),
    /// It is what this register had when the function was called.
    Given(u8),
    Unknown,
}

/// The numbers of system calls in code that stays the same. Handlers look up what others have
/// found.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// The place; in the lower bits the register and what was found, [packed](pack).
    entries: [AtomicU64; Numbers::ENTRIES],
}

/// Bits for what was found.
const NUMBER_BITS: u32 = 12;
/// And for the register. Addresses of code have 48 at most.
const REGISTER_BITS: u32 = 4;
const PLACE_SHIFT: u32 = NUMBER_BITS + REGISTER_BITS;
const GIVEN: u64 = 0x800;
const STACK: u64 = 0xc00;
const UNKNOWN: u64 = 0xfff;

impl Numbers {
    const ENTRIES: usize = 64;

    pub(crate) fn new() -> Self {
        Self {
            entries: [const { AtomicU64::new(0) }; Self::ENTRIES],
        }
    }

    /// What `find` came to for a number, or comes to. *Async-signal-safe* if `find` is.
    pub(crate) fn get_or(&self, sought: Sought, find: impl FnOnce() -> Number) -> Number {
        // Fibonacci hashing.
        let hash = sought.place.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        let has_room = sought.place >> (u64::BITS - PLACE_SHIFT) == 0;
        let Some(entry) = self.entries.get(hash as usize).filter(|_| has_room) else {
            return find();
        };
        let key = sought.place << REGISTER_BITS | u64::from(sought.register & 0xf);
        let known = entry.load(Ordering::Relaxed);
        if known != 0 && known >> NUMBER_BITS == key {
            return unpack(known & UNKNOWN);
        }
        let number = find();
        if let Some(packed) = pack(number) {
            entry.store(key << NUMBER_BITS | packed, Ordering::Relaxed);
        }
        number
    }
}

/// A number in [`NUMBER_BITS`]; `None` where it does not fit.
fn pack(number: Number) -> Option<u64> {
    match number {
        Number::Known(number) => Some(u64::from(number)).filter(|&number| number < GIVEN),
        Number::Given(register) => Some(GIVEN | u64::from(register & 0xf)),
        Number::Stack(offset) => (offset % 8 == 0)
            .then_some(STACK | u64::from(offset / 8))
            .filter(|&packed| packed < UNKNOWN),
        Number::Unknown => Some(UNKNOWN),
    }
}

fn unpack(packed: u64) -> Number {
    match packed {
        UNKNOWN => Number::Unknown,
        STACK.. => Number::Stack((packed - STACK) as u32 * 8),
        GIVEN.. => Number::Given((packed - GIVEN) as u8),
        number => Number::Known(number as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_not_looked_for_again() {
        let numbers = Numbers::new();
        let never = || unreachable!();
        for i in 1..500_u32 {
            let number = match i % 4 {
                0 => Number::Known(i),
                1 => Number::Given(i as u8 % 16),
                2 => Number::Stack(i / 4 * 8),
                _ => Number::Unknown,
            };
            let place = u64::from(i) * 4099;
            let register = i as u8 % 16;
            let sought = Sought { place, register };
            assert_eq!(numbers.get_or(sought, || number), number);
            assert_eq!(numbers.get_or(sought, never), number);
            // Of another register it is not known.
            let register = register ^ 1;
            let other = Sought { place, register };
            assert_eq!(numbers.get_or(other, || Number::Known(9)), Number::Known(9));
        }
    }

    #[test]
    fn what_does_not_fit_is_found_each_time() {
        let cases = [
            (1 << 60, Number::Known(1)),
            (4096, Number::Known(0x800)),
            (4096, Number::Stack(12)),
            (4096, Number::Stack(0x3ff * 8)),
        ];
        for (place, number) in cases {
            let numbers = Numbers::new();
            let sought = Sought { place, register: 0 };
            assert_eq!(numbers.get_or(sought, || number), number);
            assert_eq!(numbers.get_or(sought, || Number::Unknown), Number::Unknown);
        }
    }
}
