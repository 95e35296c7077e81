//! The heap profiler of this program, if there is one.

use crate::Result;

/// Has a sample taken each so many bytes.
pub fn set_sample_interval(bytes: u64) -> Result<()> {
    #[cfg(feature = "sigprof")]
    {
        sigprof::heap::set_sample_interval(bytes);
        Ok(())
    }
    #[cfg(not(feature = "sigprof"))]
    Err(format!("nothing here takes a sample each {bytes} bytes").into())
}
