//! Records to counts to a [`Profile`](crate::Profile).
#![forbid(unsafe_code)]

mod build;
mod flusher;
mod layout;
mod places;
mod stack_table;
mod sums;

pub(crate) use build::{Labels, Recorded, ThreadLabels, Unseen, build};
pub(crate) use flusher::Flusher;
pub(crate) use layout::Layouts;
#[cfg(any(feature = "contention", feature = "http"))]
pub(crate) use places::NamedFrames;
#[cfg(feature = "http")]
pub(crate) use places::Places;
#[cfg(any(feature = "contention", feature = "heap"))]
pub(crate) use places::locate_callers;
pub(crate) use stack_table::{Stack, StackTable, State, Tag, Weight};
pub(crate) use sums::Sums;
#[cfg(feature = "http")]
pub(crate) use sums::Thinning;
