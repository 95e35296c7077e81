//! `libsigprof.so` in programs in C and C++, made by the system's compilers.
#![cfg(feature = "capi")]

#[cfg(feature = "contention")]
#[path = "../support/below.rs"]
mod below;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/work.rs"]
mod work;

mod beside_perf;
mod calls;
mod environment;
mod gprof;
mod inside;
mod late;
mod legacy;
mod library;
mod linked;
mod locks;
mod moments;
mod preloaded;
mod shape;
