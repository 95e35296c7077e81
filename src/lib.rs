//! sigprof: a sampling profiler that a Linux program carries inside itself.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "sigprof supports Linux on x86_64 and aarch64; its timers and signals are Linux's own"
);

mod aggregate;
pub mod cpu;
mod env;
pub mod error;
pub mod format;
pub mod profile;
mod ring;
#[cfg(feature = "symbolize")]
pub mod symbolize;
mod sync;
mod sys;
mod unwind;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use cpu::profile_to;
pub use env::from_env;
pub use error::{Error, ErrorKind, Result};
pub use format::Format;
pub use profile::Profile;
