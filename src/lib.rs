//! sigprof: a sampling profiler that a Linux program carries inside itself.

pub mod error;
pub mod profile;

pub mod format;

pub use error::{Error, ErrorKind, Result};
pub use format::Format;
pub use profile::Profile;
