//! The pprof endpoints: a running process answers `go tool pprof`, `google-pprof` and their like.
//!
//! [`serve`] listens on a thread of its own:
//!
//! ```no_run
//! # fn main() -> sigprof::Result<()> {
//! let _server = sigprof::http::serve("127.0.0.1:6060")?;
//! // … the program's work …
//! # Ok(())
//! # }
//! ```
//!
//! # Endpoints
//!
//! | path | answer |
//! |---|---|
//! | `/pprof/profile?seconds=30` | the CPU time of the next seconds, from 1 to 300, as gperftools' CPU profile |
//! | `/pprof/symbol` | `GET`: whether symbols can be had. `POST` of `0x1000+0x1fff+…`: a line `0x1000`, tab, symbol for each address that has one |
//! | `/pprof/cmdline` | the program and its arguments, a line each |
//!
//! Nothing is recorded, and no time taken, while nobody asks.
#![forbid(unsafe_code)]

mod cmdline;
mod profile;
mod query;
mod reply;
mod routes;
mod server;
mod symbol;
mod worker;

pub use server::{Server, serve};
