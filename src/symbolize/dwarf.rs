//! What all that reads debug information shares.

use gimli::{EndianSlice, LittleEndian, SectionId};

pub(super) type Reader<'d> = EndianSlice<'d, LittleEndian>;
pub(super) type Dwarf<'d> = gimli::Dwarf<Reader<'d>>;
pub(super) type Unit<'d> = gimli::Unit<Reader<'d>>;
pub(super) type UnitHeader<'d> = gimli::UnitHeader<Reader<'d>>;
pub(super) type AttributeValue<'d> = gimli::AttributeValue<Reader<'d>>;

pub(super) fn reader(bytes: &[u8]) -> Reader<'_> {
    EndianSlice::new(bytes, LittleEndian)
}

/// Whether a section says anything of functions and lines. What variables are in and what macros
/// there were does not, and indices have nothing that is not elsewhere.
pub(super) fn is_needed(section: SectionId) -> bool {
    !matches!(
        section,
        SectionId::DebugAranges
            | SectionId::DebugLoc
            | SectionId::DebugLocLists
            | SectionId::DebugMacinfo
            | SectionId::DebugMacro
            | SectionId::DebugNames
            | SectionId::DebugTuIndex
            | SectionId::DebugTypes
    )
}

/// What cannot be read, and why.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Failure {
    /// The section or, where it can be several, the debug information.
    pub(super) what: &'static str,
    pub(super) why: Why,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Why {
    Dwarf(gimli::Error),
    Other(&'static str),
}

pub(super) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(super) fn new(what: &'static str, why: &'static str) -> Self {
        Self {
            what,
            why: Why::Other(why),
        }
    }

    /// What makes an error of gimli's one of this section.
    pub(super) fn of(what: &'static str) -> impl Fn(gimli::Error) -> Self {
        move |error| Self {
            what,
            why: Why::Dwarf(error),
        }
    }
}

impl From<gimli::Error> for Failure {
    fn from(error: gimli::Error) -> Self {
        Self::of("the debug information")(error)
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dwarf(error) => error.fmt(f),
            Self::Other(why) => f.write_str(why),
        }
    }
}
