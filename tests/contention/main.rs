//! Who waits for locks, of programs that have not been changed for it.
#![cfg(feature = "contention")]

mod locks;
mod moments;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;
