//! A doorbell that a handler can ring.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// One waiter sleeps on it; anybody rings. A ring while nobody sleeps is kept for the next sleep.
#[derive(Debug)]
pub(crate) struct Futex(AtomicU32);

impl Futex {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Rings, unless it has rung since the waiter last looked. *Async-signal-safe.*
    pub(crate) fn wake_once(&self) {
        if self.0.load(Ordering::Relaxed) == 0 && self.0.swap(1, Ordering::Release) == 0 {
            // SAFETY: the address is of a live word; a wake reads nothing.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.0.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    1,
                )
            };
        }
    }

    /// Sleeps until rung or until the time is over, whichever is first. Wakes early at times.
    pub(crate) fn wait(&self, timeout: Duration) {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the address is of a live word, and the timeout is read only.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                0,
                &raw const timeout,
            )
        };
        // Acquire: what was done before the ring is seen after it.
        self.0.swap(0, Ordering::Acquire);
    }
}
