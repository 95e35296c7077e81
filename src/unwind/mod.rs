//! Registers to frames, into a caller's slice.
//!
//! [`Snapshot::unwind`] runs in signal context: it reads an immutable [`Snapshot`] of the loaded
//! modules, which is [`Published`] through an atomic pointer and owns all the data it needs, so
//! that a `dlclose` in the middle of an unwind does no harm.

#[cfg(test)]
mod against_gimli;
#[cfg(any(test, fuzzing))]
pub(crate) mod any;
mod compile;
#[cfg(test)]
mod debug_frame;
mod dwarf;
mod frame;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod interrupted;
mod published;
mod quick;
mod recent;
mod rule;
mod rules;
mod snapshot;
mod table;
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) mod truth;

pub(crate) use dwarf::Cache;
pub(crate) use published::Published;
pub(crate) use rules::Rules;
pub(crate) use snapshot::{Snapshot, Subject};

/// How a stack ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub(crate) enum StopReason {
    /// At its root: the stack is whole.
    Root = 0,
    /// At the depth that was asked for.
    Depth = 1,
    /// In code that no module holds, or that its module has no unwind data for.
    NoUnwindData = 2,
    /// At a word of the stack that could not be read.
    Unreadable = 3,
    /// At a frame that did not lie above the last one.
    NotAdvancing = 4,
}

impl StopReason {
    /// Whether a newer snapshot could do better. *Async-signal-safe.*
    pub(crate) fn may_be_outdated(self) -> bool {
        matches!(
            self,
            Self::NoUnwindData | Self::Unreadable | Self::NotAdvancing
        )
    }

    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] = [
        Self::Root,
        Self::Depth,
        Self::NoUnwindData,
        Self::Unreadable,
        Self::NotAdvancing,
    ];

    /// The reason of this number; one that is not known counts as missing unwind data.
    pub(crate) fn from_u8(number: u8) -> Self {
        match Self::ALL.get(usize::from(number)) {
            Some(&reason) => reason,
            None => Self::NoUnwindData,
        }
    }
}
