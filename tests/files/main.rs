//! Profiles that end in a file: what is written when, and what is said where that cannot be done.

mod check;
mod endings;
mod environment;
mod refusals;

#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;
