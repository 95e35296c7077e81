//! rpprof: its allocator samples once it is started.

use rpprof::alloc;

use crate::Result;

pub fn start(interval: Option<u64>) -> Result<()> {
    interval.map_or(Ok(()), set_sample_interval)?;
    alloc::start();
    Ok(())
}

pub fn set_sample_interval(bytes: u64) -> Result<()> {
    alloc::set_sample_rate(bytes.try_into()?);
    Ok(())
}

pub fn blocks_in_profile() -> Result<f64> {
    let records = alloc::heap_report()?.records;
    let objects: i64 = records.iter().map(|record| record.inuse_objects).sum();
    Ok(objects as f64)
}
