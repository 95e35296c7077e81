//! The pprof endpoints, asked by the clients that people use.
#![cfg(feature = "http")]

#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/work.rs"]
mod work;

mod client;
mod endpoints;
mod served;
