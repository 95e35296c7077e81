//! Heap profiles of a program whose allocator is sigprof's, over the system's.
#![cfg(feature = "heap")]

#[cfg(feature = "http")]
#[allow(dead_code, reason = "others send more")]
#[path = "../http/client.rs"]
mod client;
mod dumps;
#[cfg(feature = "http")]
mod endpoints;
mod leak;
mod lifetimes;
mod moments;
#[path = "../support/process.rs"]
mod process;
mod storm;
#[path = "../support/mod.rs"]
mod support;

use sigprof::heap::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// Before anything is allocated, so that no sample was taken with another interval: a file of the
/// legacy text has one.
extern "C" fn set_sample_interval() {
    sigprof::heap::set_sample_interval(leak::INTERVAL);
    dumps::ask_before_main();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = set_sample_interval;
