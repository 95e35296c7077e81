//! Who waits for locks, of programs that have not been changed for it.
#![cfg(all(feature = "contention", feature = "symbolize"))]

#[cfg(feature = "http")]
mod application;
#[path = "../support/below.rs"]
mod below;
#[cfg(feature = "http")]
#[allow(dead_code, reason = "others send more")]
#[path = "../http/client.rs"]
mod client;
#[path = "../support/compile.rs"]
mod compile;
#[cfg(feature = "http")]
mod endpoints;
mod guards;
mod kinds;
mod locks;
mod modules;
mod moments;
#[path = "../support/process.rs"]
mod process;
mod pthread;
#[path = "../support/sandbox.rs"]
mod sandbox;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "heap")]
mod together;
mod wrapped;

#[cfg(feature = "heap")]
#[global_allocator]
static ALLOCATOR: sigprof::heap::Allocator = sigprof::heap::Allocator::system();
