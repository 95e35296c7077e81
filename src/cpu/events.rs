//! Whose clock a perf event is, by the number of its descriptor: all that its signal says.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::handler::Cookie;
use crate::sys::memory::Pages;
use crate::sys::perf_event::DESCRIPTORS;

/// The table, by descriptor: 1 MiB of addresses, of which only what was touched takes memory.
#[derive(Debug)]
pub(super) struct Events(Pages);

// SAFETY: the pages hold atomics alone.
unsafe impl Sync for Events {}

#[derive(Debug)]
struct Event {
    /// The thread, as a timer's signal would carry it; 0 for none.
    cookie: AtomicU64,
    /// The event has not had its first tick, as far as is known, after which it goes on with its
    /// true period.
    is_first: AtomicBool,
}

impl Events {
    pub(super) fn new() -> io::Result<Self> {
        Pages::map(DESCRIPTORS * size_of::<Event>()).map(Self)
    }

    fn at(&self, fd: RawFd) -> Option<&Event> {
        let index = usize::try_from(fd).ok().filter(|&fd| fd < DESCRIPTORS)?;
        // SAFETY: within the pages, which are zeroed or hold what was stored below: valid atomics
        // either way.
        Some(unsafe { &*self.0.as_ptr().cast::<Event>().add(index) })
    }

    /// Says whose event `fd` is, before it sends its first signal. False for a number that the
    /// table has no place for.
    pub(super) fn set(&self, fd: RawFd, cookie: Cookie) -> bool {
        let Some(event) = self.at(fd) else {
            return false;
        };
        event.is_first.store(true, Ordering::Relaxed);
        event.cookie.store(cookie.to_u64(), Ordering::Release);
        true
    }

    /// Forgets an event that is about to be closed; if it was closed before, its number can be
    /// another's by now.
    pub(super) fn clear(&self, fd: RawFd, cookie: Cookie) {
        if let Some(event) = self.at(fd) {
            let ours = cookie.to_u64();
            let _ = event
                .cookie
                .compare_exchange(ours, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// What the event's signal stands for. *Async-signal-safe.*
    pub(super) fn get(&self, fd: RawFd) -> Option<Cookie> {
        let cookie = Cookie::from_u64(self.at(fd)?.cookie.load(Ordering::Acquire));
        (cookie.serial != 0).then_some(cookie)
    }

    /// Says that the event has had its first tick; false if that was known.
    /// *Async-signal-safe.*
    pub(super) fn take_first(&self, fd: RawFd) -> bool {
        self.at(fd)
            .is_some_and(|event| event.is_first.swap(false, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_another_event_has_is_not_taken_from_it() {
        let events = Events::new().unwrap();
        // One thread's id, slot and descriptor, each used again at once.
        let [gone, present] = [1, 2].map(|serial| Cookie::of_thread(serial, 0));
        assert_eq!(events.get(5), None);
        assert!(events.set(5, gone));
        assert!(events.set(5, present));
        events.clear(5, gone);
        assert_eq!(events.get(5), Some(present));
        assert!(events.take_first(5));
        assert!(!events.take_first(5));
        events.clear(5, present);
        assert_eq!(events.get(5), None);
        for fd in [-1, DESCRIPTORS as RawFd] {
            assert!(!events.set(fd, gone));
            assert_eq!(events.get(fd), None);
        }
    }
}
