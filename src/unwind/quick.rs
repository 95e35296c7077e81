//! What most rules come to, in half the space.
#![forbid(unsafe_code)]

use super::rule::{Kind, Place, Rule};
use crate::sys::arch::{CALLEE_SAVED, FP, SP};

/// A rule by which the return address and the caller's frame pointer lie in the frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Quick {
    /// In words, from the register of `base`.
    pub(super) cfa_words: i32,
    /// As in the rule.
    pub(super) changed: u16,
    /// In words, from the CFA.
    pub(super) return_address: i16,
    /// In words, from the CFA; not below it where the frame pointer is what it was.
    pub(super) frame_pointer: i16,
    pub(super) base: Base,
}

/// What the CFA counts from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Base {
    /// There is more to the rule.
    None,
    StackPointer,
    FramePointer,
}

impl Quick {
    pub(super) const NONE: Self = Self {
        cfa_words: 0,
        changed: 0,
        return_address: 0,
        frame_pointer: 0,
        base: Base::None,
    };

    pub(super) fn of(rule: &Rule) -> Self {
        let base = match rule.cfa_register {
            SP => Base::StackPointer,
            FP => Base::FramePointer,
            _ => Base::None,
        };
        let index = CALLEE_SAVED.iter().position(|&number| number == FP);
        let frame_pointer = match index.and_then(|index| rule.saved.get(index)) {
            Some(&Place::SAME) => 0,
            Some(&place) if place.is_offset() && place.words() < 0 => place.words(),
            _ => return Self::NONE,
        };
        let is_quick = rule.kind == Kind::Register
            && rule.from_frame_pointer == 0
            && rule.cfa_offset % 8 == 0
            && rule.return_address.is_offset();
        match is_quick {
            true => Self {
                cfa_words: rule.cfa_offset / 8,
                changed: rule.changed,
                return_address: rule.return_address.words(),
                frame_pointer,
                base,
            },
            false => Self::NONE,
        }
    }
}
