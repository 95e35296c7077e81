//! Heap profiles: what was allocated, by which stacks, and what is still in use.
//!
//! [`Allocator`] wraps the program's allocator, whichever that is, and takes samples of what it
//! gives out: on average one for each [`sample_interval`] of bytes, chosen so that each byte is
//! chosen with the same probability. [`profile`] says what they stand for.
//!
//! ```
//! use sigprof::heap;
//!
//! #[global_allocator]
//! static ALLOCATOR: heap::Allocator = heap::Allocator::system();
//!
//! fn main() -> sigprof::Result<()> {
//!     let leaked = vec![1_u8; 64 << 20];
//!     println!("{}", heap::profile()?.top(5));
//!     drop(leaked);
//!     Ok(())
//! }
//! ```
//!
//! # What the values mean
//!
//! A block of `size` bytes is sampled with probability 1 - exp(-size / interval). A sampled one
//! stands for as many as that is the inverse of, so that sums are right on average for blocks of
//! every size: `alloc_objects` and `alloc_space` count all blocks since the program began,
//! `inuse_objects` and `inuse_space` those that are not freed. A block that is reallocated counts
//! as freed, and as allocated with its new size. The label `bytes` says how large the blocks of a
//! sample are.
//!
//! What sigprof allocates for itself, in its threads and where it is asked for a profile, is in none.
//!
//! # Two versions in one program
//!
//! The version whose [`Allocator`] is the `#[global_allocator]` has the profile; functions of the
//! other one return an error that says so. A program wraps its allocator once: an [`Allocator`] over
//! that of another version would wait for a lock for ever, and one over its like counts twice.
//!
//! # A forked child
//!
//! goes on with a copy of its parent's profile. One that was made without the C library's `fork`,
//! or in a signal handler that had interrupted an allocation, has none.

mod allocator;
mod countdown;
mod deferred;
mod delta;
mod dumps;
mod environment;
mod filter;
mod forks;
mod lifetimes;
mod live;
mod peak;
mod plumbing;
mod report;
mod samples;
mod sites;
mod stack;
#[cfg(test)]
mod tests;
mod watch;

pub use allocator::Allocator;
#[cfg(feature = "http")]
pub(crate) use delta::Mark;
pub use delta::delta;
pub use dumps::{Dumper, Dumps};
pub use environment::from_env;

use self::sites::Counted;
use crate::error::{Error, ErrorKind, Result};
use crate::profile::Profile;
use crate::sys::own_threads::as_own;

/// Why there is no profile where no [`Allocator`] has given anything out.
pub(crate) const NOT_INSTALLED: &str = concat!(
    "the program's #[global_allocator] is no sigprof::heap::Allocator of sigprof ",
    env!("CARGO_PKG_VERSION")
);

/// Bytes between two samples, on average: 512 KiB unless it was set. 1 stands for a sample of every
/// block, 0 for none.
pub fn sample_interval() -> u64 {
    countdown::mean()
}

/// Sets the bytes between two samples, on average: 1 for a sample of every block, 0 for none. More
/// than `i64::MAX` is taken for that.
///
/// It holds for the calling thread from its next allocation on, and for every other one once that
/// has allocated 64 KiB more. Blocks that were sampled before keep what they stand for.
pub fn set_sample_interval(bytes: u64) {
    countdown::set_mean(bytes);
}

/// What was allocated since the program began and what of it is in use, by stack and by size: the
/// sample types are `alloc_objects`/`count`, `alloc_space`/`bytes`, `inuse_objects`/`count` and
/// `inuse_space`/`bytes`, the last of which viewers show.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] where no [`Allocator`] has given anything out: it is not the
/// program's `#[global_allocator]`. Also in a forked child that has no profile.
pub fn profile() -> Result<Profile> {
    check()?;
    Ok(as_own(|| report::profile(&Counted::default())))
}

/// What was in use when that was the most bytes since the program began, by stack and by size: the
/// sample types are `inuse_objects`/`count` and `inuse_space`/`bytes`, the last of which viewers
/// show.
///
/// # Errors
///
/// As of [`profile`].
pub fn peak() -> Result<Profile> {
    check()?;
    Ok(as_own(report::peak))
}

/// Which allocations made the bytes in use more than they had ever been, and by how many bytes, by
/// stack and by size: the sample types are `objects`/`count` and `space`/`bytes`, the last of which
/// viewers show. The bytes of all stacks together are those in use at the [`peak`].
///
/// # Errors
///
/// As of [`profile`].
pub fn growth() -> Result<Profile> {
    check()?;
    Ok(as_own(|| report::growth(&Counted::default())))
}

/// How long blocks lived that were freed since the program began, by stack, by size and by
/// lifetime: the sample types are `freed_objects`/`count` and `freed_space`/`bytes`, and, of these,
/// `temporary_objects`/`count` and `temporary_space`/`bytes`, the last of which viewers show.
///
/// The label `lifetime` is the mean lifetime of a sample's blocks in nanoseconds, which differ by
/// less than a factor of 2. A block is temporary that lived for at most 1 ms; or that its own
/// thread freed before the thread had allocated as many bytes again, and so before the thread's
/// next block of that size. Temporary blocks are those that a buffer or the stack may replace.
///
/// # Errors
///
/// As of [`profile`].
pub fn lifetimes() -> Result<Profile> {
    check()?;
    Ok(as_own(report::lifetimes))
}

/// Whether an [`Allocator`] has given anything out in this program.
pub(crate) fn is_installed() -> bool {
    // At least one block, which nobody leaves out.
    drop(std::hint::black_box(Box::new(0_u8)));
    countdown::has_begun()
}

/// Whether there is a profile in this process, which then knows of all that is freed; or why there
/// is none.
fn check() -> Result<()> {
    let why = match (is_installed(), forks::is_whole()) {
        (true, true) => {
            samples::settle();
            return Ok(());
        }
        (false, _) => NOT_INSTALLED,
        (true, false) => {
            "this process was forked in a signal handler that had interrupted an allocation, or \
             without the C library's `fork`"
        }
    };
    let why = format!("there is no heap profile: {why}");
    Err(Error::new(ErrorKind::Unsupported, why))
}
