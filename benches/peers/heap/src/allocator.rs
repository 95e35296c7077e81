//! The allocator of this program.

#[cfg(not(any(feature = "mimalloc", feature = "jemalloc")))]
mod underneath {
    pub use std::alloc::System as Allocator;

    pub const ALLOCATOR: Allocator = Allocator;
}

#[cfg(feature = "mimalloc")]
mod underneath {
    pub use mimalloc::MiMalloc as Allocator;

    pub const ALLOCATOR: Allocator = Allocator;
}

#[cfg(all(feature = "jemalloc", not(feature = "mimalloc")))]
mod underneath {
    pub use tikv_jemallocator::Jemalloc as Allocator;

    pub const ALLOCATOR: Allocator = Allocator;
}

#[cfg(feature = "sigprof")]
type Profiled = sigprof::heap::Allocator<underneath::Allocator>;
#[cfg(feature = "rpprof")]
type Profiled = rpprof::alloc::AllocProfiler<underneath::Allocator>;
#[cfg(feature = "dial9")]
type Profiled = dial9_perf_self_profile::memory_profiling::Dial9Allocator<underneath::Allocator>;
#[cfg(any(feature = "sigprof", feature = "rpprof", feature = "dial9"))]
const PROFILED: Profiled = Profiled::new(underneath::ALLOCATOR);

#[cfg(not(any(feature = "sigprof", feature = "rpprof", feature = "dial9")))]
type Profiled = underneath::Allocator;
#[cfg(not(any(feature = "sigprof", feature = "rpprof", feature = "dial9")))]
const PROFILED: Profiled = underneath::ALLOCATOR;

#[cfg(not(feature = "counted"))]
#[global_allocator]
static ALLOCATOR: crate::switched::Switched<Profiled, underneath::Allocator> =
    crate::switched::Switched::new(PROFILED, underneath::ALLOCATOR);

#[cfg(feature = "counted")]
#[global_allocator]
static ALLOCATOR: crate::counted::Counted<Profiled> = crate::counted::Counted::new(PROFILED);
