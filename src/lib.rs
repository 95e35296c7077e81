//! sigprof: a sampling profiler that a Linux program carries inside itself.

pub mod error;
pub mod profile;
#[cfg(feature = "symbolize")]
pub mod symbolize;

pub use error::{Error, ErrorKind, Result};
pub use profile::Profile;
