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
mod interrupted;
mod profiler;
mod recorder;
mod recording;
mod sight;
mod stats;
mod threads;
mod wall;
mod watched;
#[cfg(feature = "http")]
mod windows;

#[cfg(feature = "capi")]
pub(crate) use backtrace::backtrace;
#[cfg(feature = "capi")]
pub(crate) use collector::SAMPLES_GATHERED;
#[cfg(feature = "http")]
pub(crate) use engine::MAX_FREQUENCY_HZ;
pub use engine::{Clock, Engine};
pub use guard::{Guard, profile_to};
pub use profiler::Profiler;
pub use recording::Recording;
pub use stats::{CpuTime, Fallback, Lost, Stats, Truncated, WallTime};
#[cfg(feature = "http")]
pub(crate) use windows::{Waiter, Window};
