//! A sampling profiler that a Linux program carries inside itself.
//!
//! [`profile_to`] records the process's CPU time until its guard drops, and writes a file that
//! `go tool pprof` or `google-pprof` reads. [`cpu::Profiler`] is the same in full; [`from_env`]
//! lets `CPUPROFILE` decide.
//!
//! ```no_run
//! fn main() -> sigprof::Result<()> {
//!     let _profiling = sigprof::profile_to("cpu.pb.gz")?;
//!     // … the program's work …
//!     Ok(())
//! }
//! ```
//!
//! # How it works
//!
//! A timer on each thread's CPU clock sends `SIGPROF` to it. The handler takes no lock and
//! allocates nothing: it unwinds the interrupted stack straight into a preallocated ring and
//! returns, in under a microsecond as a rule. A thread named `sigprof` empties the ring and counts
//! equal call chains. Where the kernel lets several expiries pass between two of its own ticks, the
//! signal says how many they were, and the sample gets that weight: totals are CPU time at any
//! frequency. What is in no stack is in a frame that says why not.
//!
//! What was lost, and what was cut short, is counted by cause ([`cpu::Stats`]) and stands in the
//! profile's comments.
//!
//! # Limitations
//!
//! - Linux on x86_64; on aarch64 the library's own tests run under emulation.
//! - One recording at a time in a process. `SIGPROF` is sigprof's from the first start on, and with
//!   perf events and elapsed time `SIGURG`; another handler for the former is an error, and is left
//!   alone, as is one for the latter.
//! - What a thread does after its last tick is in no stack; up to the rate of the scheduler's
//!   ticks, and without the right to perf events, that is up to one such tick for each thread, and
//!   stands in the profile as `[unsampled]`.
//! - Newly loaded libraries are noticed within 50 ms, or 10 ms after the first sample in one:
//!   stacks through one end there for as long.
//! - Samples of timers fall on the scheduler's ticks (250 a second, often). A program whose work
//!   keeps step with them is seen at the same place each time, as by any sampling profiler.
//! - Time in a system call is the calling function's. Code without unwind data, such as a JIT
//!   compiler's, is walked by frame pointers, or ends a stack.
//! - `abort` and `_exit` write no file; signals that end the process do where
//!   [`cpu::Guard::write_on`] has asked for it.
//!
//! # Features
//!
//! `symbolize`, on by default, puts names, files, lines and inlined frames to addresses. Without it
//! a profile holds addresses and mappings, which `pprof` names where the binaries are at hand.
//!
//! `capi` adds the functions of gperftools' `profiler.h`, for programs in C and C++.
//! `cargo rustc --release --lib --features capi --crate-type cdylib` makes `libsigprof.so`, which
//! they are linked with; `include/gperftools/profiler.h` declares the functions.
//!
//! `heap` adds heap profiles, over any allocator (`heap::Allocator`).
//!
//! `contention` adds profiles of who waits for locks, with no change to the program's source
//! (`contention::watch_process`).
//!
//! `http` adds the endpoints that `go tool pprof`, `google-pprof` and their like ask a running
//! program for profiles (`http::serve`, `http::router`).

#[cfg(not(target_os = "linux"))]
compile_error!(
    "sigprof supports Linux on x86_64 and aarch64; its timers and signals are Linux's own"
);

// The rooms, in the order in which data walks through them: a room uses only what stands above it.

pub mod error;
#[cfg(test)]
#[path = "../tests/support/process.rs"]
mod process;
mod random;
mod sync;
mod sys;

mod unwind;

mod ring;

pub mod profile;

mod aggregate;

mod capture;

mod slots;

mod restart;

mod ending;

pub mod label;

#[cfg(feature = "symbolize")]
pub mod symbolize;

pub mod format;

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;

pub mod cpu;

mod env;

#[cfg(feature = "heap")]
pub mod heap;

#[cfg(feature = "contention")]
pub mod contention;

#[cfg(feature = "capi")]
pub mod capi;

#[cfg(feature = "http")]
pub mod http;

pub use cpu::profile_to;
pub use env::from_env;
pub use error::{Error, ErrorKind, Result};
pub use format::Format;
pub use label::{Labels, label};
pub use profile::Profile;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
