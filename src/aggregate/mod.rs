//! Records to counts to a [`Profile`](crate::Profile).
#![forbid(unsafe_code)]

mod build;
mod flusher;
mod layout;
mod stack_table;

pub(crate) use build::{Labels, Recorded, ThreadLabels, Unseen, build};
pub(crate) use flusher::Flusher;
pub(crate) use layout::Layouts;
pub(crate) use stack_table::{Stack, StackTable, State, Tag, Weight};
