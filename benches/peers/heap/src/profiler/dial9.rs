//! dial9: writes each sample, and each free of one, as an event of a trace, here into memory. Its
//! interval is that of the start, and it makes no profile.

use std::mem;

use dial9_core::buffer::MemoryBuffer;
use dial9_core::recorder::recorder;
use dial9_perf_self_profile::memory_profiling::{MemoryProfiler, MemoryProfilingConfig};

use crate::Result;

/// Bytes of the trace that are kept.
const TRACE: u64 = 64 << 20;

pub fn start(interval: Option<u64>) -> Result<()> {
    let recorder = recorder(MemoryBuffer::new(TRACE)?).build();
    // Frees are followed, as all others here do.
    let config = MemoryProfilingConfig::builder().track_liveset(true);
    let config = config.maybe_sample_rate_bytes(interval).build();
    let profiler = MemoryProfiler::from_config(config);
    let guard = profiler.install(recorder.handle().clone())?;
    // It records until the process ends.
    mem::forget((recorder, guard));
    Ok(())
}

pub fn set_sample_interval(_bytes: u64) -> Result<()> {
    Err("the interval is that of the start".into())
}

pub fn blocks_in_profile() -> Result<f64> {
    Err("this profiler makes no profile".into())
}
