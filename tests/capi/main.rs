//! `libsigprof.so` in programs in C and C++, made by the system's compilers.
#![cfg(feature = "capi")]

#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;

mod calls;
mod environment;
mod legacy;
mod library;
mod linked;
mod moments;
mod preloaded;
mod shape;
