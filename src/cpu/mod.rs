//! The CPU profiler.
//!
//! [`Profiler`] says how to record, [`Recording`] is a profile being recorded, [`Guard`] one that
//! ends in a file, and [`Stats`] what it did and what it cost. One recording runs at a time in a
//! process, and it samples every thread.

mod arming;
mod audit;
#[cfg(feature = "capi")]
mod backtrace;
mod births;
mod choice;
mod collector;
mod engine;
mod events;
mod guard;
mod handler;
mod profiler;
mod recorder;
mod recording;
mod sight;
mod stats;
mod threads;
mod wall;
mod watched;

#[cfg(feature = "capi")]
pub(crate) use backtrace::backtrace;
#[cfg(feature = "capi")]
pub(crate) use collector::SAMPLES_GATHERED;
pub use engine::{Clock, Engine};
pub use guard::{Guard, profile_to};
pub use profiler::Profiler;
pub use recording::Recording;
pub use stats::{CpuTime, Fallback, Lost, Stats, Truncated, WallTime};
