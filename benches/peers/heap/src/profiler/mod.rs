//! The heap profiler of this program, behind one face.

#[cfg(feature = "dial9")]
mod dial9;
#[cfg(not(any(feature = "sigprof", feature = "rpprof", feature = "dial9")))]
mod none;
#[cfg(feature = "rpprof")]
mod rpprof_heap;
#[cfg(feature = "sigprof")]
mod sigprof_heap;

#[cfg(feature = "dial9")]
pub use dial9::*;
#[cfg(not(any(feature = "sigprof", feature = "rpprof", feature = "dial9")))]
pub use none::*;
#[cfg(feature = "rpprof")]
pub use rpprof_heap::*;
#[cfg(feature = "sigprof")]
pub use sigprof_heap::*;
