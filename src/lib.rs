//! sigprof: a sampling profiler that a Linux program carries inside itself.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "sigprof supports Linux on x86_64 and aarch64; its timers and signals are Linux's own"
);

pub mod error;
mod sync;
mod sys;
mod unwind;
mod ring;
pub mod profile;
mod aggregate;
#[cfg(feature = "symbolize")]
pub mod symbolize;
pub mod format;
pub mod cpu;
mod env;

pub use cpu::profile_to;
pub use env::from_env;
pub use error::{Error, ErrorKind, Result};
pub use format::Format;
pub use profile::Profile;
