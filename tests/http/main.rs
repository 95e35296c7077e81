//! The pprof endpoints, asked by the clients that people use.
#![cfg(feature = "http")]

#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/work.rs"]
mod work;

#[allow(dead_code, reason = "its `main` is the example's")]
#[path = "../../examples/http_server.rs"]
mod http_server;

mod abuse;
mod abusers;
mod application;
mod client;
mod clock;
mod endpoints;
mod long_symbol;
mod safe;
mod scrape;
mod served;
mod windows;
