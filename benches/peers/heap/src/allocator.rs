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

#[cfg(not(feature = "sigprof"))]
#[global_allocator]
static ALLOCATOR: underneath::Allocator = underneath::ALLOCATOR;

#[cfg(feature = "sigprof")]
type Sampled = sigprof::heap::Allocator<underneath::Allocator>;

#[cfg(all(feature = "sigprof", not(feature = "counted")))]
#[global_allocator]
static ALLOCATOR: Sampled = Sampled::new(underneath::ALLOCATOR);

#[cfg(feature = "counted")]
#[global_allocator]
static ALLOCATOR: crate::counted::Counted<Sampled> =
    crate::counted::Counted::new(Sampled::new(underneath::ALLOCATOR));
