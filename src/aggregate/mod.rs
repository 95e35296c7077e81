//! Records to counts to a [`Profile`](crate::Profile).
#![forbid(unsafe_code)]

mod build;
mod flusher;
mod layout;
mod places;
mod stack_table;
mod sums;

#[cfg(feature = "heap")]
pub(crate) use build::why_truncated;
pub(crate) use build::{Labels, Recorded, ThreadLabels, Unseen, build};
pub(crate) use flusher::Flusher;
pub(crate) use layout::Layouts;
#[cfg(any(feature = "heap", feature = "http"))]
pub(crate) use places::{NamedFrames, Places};
pub(crate) use stack_table::{Stack, StackTable, State, Tag, Weight};
pub(crate) use sums::Sums;
#[cfg(feature = "http")]
pub(crate) use sums::Thinning;
