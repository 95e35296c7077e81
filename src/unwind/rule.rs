//! How to find the registers of a caller's frame: what one row of unwind data comes to.
#![forbid(unsafe_code)]

use crate::sys::arch::{CALLEE_SAVED_COUNT, SP};

/// One way to find a caller's frame. Offsets of registers count in words of 8 bytes from the
/// canonical frame address (CFA; DWARF 5, 6.4), which is the caller's stack pointer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(C)]
pub(super) struct Rule {
    pub(super) kind: Kind,
    /// The register that the CFA counts from, by DWARF's number.
    pub(super) cfa_register: u8,
    /// Registers whose offset counts from the frame pointer and not from the CFA, a bit each in the
    /// order of [`CALLEE_SAVED`](crate::sys::arch::CALLEE_SAVED).
    pub(super) from_frame_pointer: u16,
    /// In bytes.
    pub(super) cfa_offset: i32,
    /// What is added to the word that was loaded, in bytes, where the CFA is one.
    pub(super) loaded_offset: i16,
    pub(super) return_address: Place,
    /// The registers that are not where they were, a bit each in that order.
    pub(super) changed: u16,
    pub(super) saved: [Place; CALLEE_SAVED_COUNT],
}

/// What a rule's CFA is, and which rules say something else altogether.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub(super) enum Kind {
    /// There is no unwind data.
    Nothing,
    /// More than a rule can hold.
    Complex,
    /// What another unwinder has to find, as there is no table yet.
    NoTable,
    /// The frame has no caller.
    Root,
    /// A register and an offset.
    Register,
    /// The word at a register and an offset, and what is added to it: frames that were realigned.
    Loaded,
    /// The stack pointer and an offset, and 8 more in the later part of each 16 bytes of code: an
    /// entry of the procedure linkage table, which pushes on its way. `cfa_register` is the place
    /// in these 16 bytes from which on it has.
    LinkageTable,
    /// The frame that the kernel made for a signal: all registers lie there.
    Signal,
    /// Code that is about to leave its stack for another, as `longjmp` and `setcontext` do.
    Leaving,
}

/// Where a register of the caller is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Place(i16);

impl Place {
    /// Where it was: the callee has not touched it.
    pub(super) const SAME: Self = Self(i16::MIN);
    /// Nowhere.
    pub(super) const UNDEFINED: Self = Self(i16::MIN + 1);
    /// More than a rule can hold.
    pub(super) const COMPLEX: Self = Self(i16::MIN + 2);
    const IN_REGISTER: i16 = i16::MIN + 3;
    const LEAST_OFFSET: i16 = Self::IN_REGISTER + 64;

    /// At an offset in bytes; [`COMPLEX`](Self::COMPLEX) where that is no multiple of a word's, or
    /// too far.
    pub(super) fn at(offset: i64) -> Self {
        let words = i16::try_from(offset / 8).unwrap_or(i16::MIN);
        match offset % 8 == 0 && words >= Self::LEAST_OFFSET {
            true => Self(words),
            false => Self::COMPLEX,
        }
    }

    /// In a register, by DWARF's number.
    pub(super) fn in_register(number: u16) -> Self {
        match i16::try_from(number) {
            Ok(number @ 0..64) => Self(Self::IN_REGISTER + number),
            _ => Self::COMPLEX,
        }
    }

    /// The offset in bytes, for a register that was saved.
    #[inline]
    pub(super) fn offset(self) -> Option<i64> {
        self.is_offset().then_some(i64::from(self.0) * 8)
    }

    /// Whether it is an offset.
    #[inline]
    pub(super) fn is_offset(self) -> bool {
        self.0 >= Self::LEAST_OFFSET
    }

    /// The offset in words; for what is no offset, one that no stack has.
    #[inline]
    pub(super) fn words(self) -> i16 {
        self.0
    }

    /// The register it is in.
    pub(super) fn register(self) -> Option<u8> {
        let number = self.0.wrapping_sub(Self::IN_REGISTER);
        (0..64).contains(&number).then_some(number as u8)
    }
}

impl Rule {
    /// No unwind data.
    pub(super) const NOTHING: Self = Self::of(Kind::Nothing);
    /// What another unwinder has to find.
    pub(super) const COMPLEX: Self = Self::of(Kind::Complex);
    /// There is no table yet.
    pub(super) const NO_TABLE: Self = Self::of(Kind::NoTable);
    /// The frame has no caller.
    pub(super) const ROOT: Self = Self::of(Kind::Root);
    /// The kernel has made the frame for a signal.
    pub(super) const SIGNAL: Self = Self::of(Kind::Signal);

    /// This rule, with what can be read off its places.
    pub(super) fn finished(mut self) -> Self {
        self.changed = 0;
        for (index, &place) in self.saved.iter().enumerate() {
            self.changed |= u16::from(place != Place::SAME) << index;
        }
        self
    }

    /// The caller's frame begins at an offset from the stack pointer, behind the return address.
    pub(super) fn of_leaf(cfa_offset: i32) -> Self {
        Self {
            cfa_register: SP,
            cfa_offset,
            return_address: Place::at(-8),
            ..Self::of(Kind::Register)
        }
    }

    /// A rule of a kind that says all.
    pub(super) const fn of(kind: Kind) -> Self {
        Self {
            kind,
            cfa_register: 0,
            from_frame_pointer: 0,
            cfa_offset: 0,
            loaded_offset: 0,
            return_address: Place::SAME,
            changed: 0,
            saved: [Place::SAME; CALLEE_SAVED_COUNT],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_say_what_they_were_made_from() {
        for offset in [-16, 0, 8, 32767 * 8] {
            assert_eq!(Place::at(offset).offset(), Some(offset));
            assert_eq!(Place::at(offset).register(), None);
        }
        for complex in [4, -7, 32768 * 8, i64::MIN, -32768 * 8] {
            assert_eq!(Place::at(complex), Place::COMPLEX);
        }
        for number in [0, 14, 63] {
            assert_eq!(Place::in_register(number).register(), Some(number as u8));
            assert_eq!(Place::in_register(number).offset(), None);
        }
        assert_eq!(Place::in_register(64), Place::COMPLEX);
        for other in [Place::SAME, Place::UNDEFINED, Place::COMPLEX] {
            assert_eq!((other.offset(), other.register()), (None, None));
        }
    }
}
