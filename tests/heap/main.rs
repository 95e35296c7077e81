//! Heap profiles of a program whose allocator is sigprof's, over the system's.
#![cfg(feature = "heap")]

mod leak;
mod moments;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;

use sigprof::heap::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();
