//! sigprof: its allocator samples from the beginning.

use sigprof::heap;

use crate::Result;

/// Has a sample taken each so many bytes; else as often as the profiler does.
pub fn start(interval: Option<u64>) -> Result<()> {
    interval.map_or(Ok(()), set_sample_interval)
}

pub fn set_sample_interval(bytes: u64) -> Result<()> {
    heap::set_sample_interval(bytes);
    Ok(())
}

/// Takes the profile, names and all: how many blocks in use it stands for.
pub fn blocks_in_profile() -> Result<f64> {
    const INUSE_OBJECTS: usize = 2;
    Ok(heap::profile()?.total(INUSE_OBJECTS) as f64)
}
