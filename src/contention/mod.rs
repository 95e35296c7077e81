//! Who waits for locks, for how long: of a whole program, with no change to its source.
//!
//! ```
//! fn main() -> sigprof::Result<()> {
//!     let watch = sigprof::contention::watch_process()?;
//!     // … the program's work …
//!     let profile = sigprof::contention::profile()?;
//!     println!("{}", profile.top(5));
//!     drop(watch);
//!     Ok(())
//! }
//! ```
//!
//! # What is seen
//!
//! The locks of Rust's standard library, of parking_lot and of tokio wait through the C library's
//! `syscall` function when they cannot be had at once. While the process is watched, the words
//! through which each loaded module calls that function lead to one of sigprof's, which times the
//! waits. A lock that is free costs nothing more: nobody calls `syscall` for it.
//!
//! A wait that its lock's owner has ended before it began is none. A thread that is woken and finds
//! the lock taken again waits twice.
//!
//! # What the values mean
//!
//! `contentions` counts waits, `delay` is how long they took in all. A wait of `t` nanoseconds is
//! sampled with probability `t / interval`, or certainly where `t` is more than the
//! [interval](sample_interval), and counts as so many that sums are right on average, as Go's block
//! profile has it.

mod collector;
mod recorder;
mod report;
mod sampling;
mod stand_in;
mod watch;

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::profile::Profile;

pub use watch::{Watch, watch_process};

/// The wait of which each is sampled, and of which shorter ones are in proportion: 100 µs unless it
/// was set.
pub fn sample_interval() -> Duration {
    Duration::from_nanos(sampling::mean_ns())
}

/// Sets that: 1 ns for each wait, 0 for none.
pub fn set_sample_interval(interval: Duration) {
    sampling::set_mean_ns(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
}

/// Who has waited since the process was first watched, by stack: the sample types are
/// `contentions`/`count` and `delay`/`nanoseconds`, the latter of which viewers show.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] where the process was never [watched](watch_process).
pub fn profile() -> Result<Profile> {
    watch::profile().ok_or_else(|| {
        let message = "there is no contention profile: this process does not watch its locks \
                       (sigprof::contention::watch_process)";
        Error::new(ErrorKind::Unsupported, message)
    })
}
