//! Sets of threads that say something of themselves, for whoever may not use anything of the
//! thread's own.
//!
//! The first use of a thread-local value allocates, in a library that was loaded later; and it may
//! be the program's allocator that asks, with a lock held.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use super::thread::thread_pointer;

const GROUPS: usize = 64;

/// Up to 512 threads, and no more than 8 with the same hash of their pointers.
#[derive(Debug)]
pub(crate) struct ThreadSet([Group; GROUPS]);

/// Pointers of threads, in one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Group([AtomicU64; 8]);

/// No thread's, and nothing follows it in its group.
const END: u64 = 0;

/// A place that was left.
const LEFT: u64 = 1;

/// A thread is in a set, until this is dropped by the same thread.
#[derive(Debug)]
pub(crate) struct Member<'s>(&'s AtomicU64);

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.0.store(LEFT, Ordering::Relaxed);
    }
}

impl Default for ThreadSet {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Group::default()))
    }
}

impl ThreadSet {
    /// Whether the calling thread is in it. *Async-signal-safe.*
    #[cfg(any(feature = "contention", feature = "heap"))]
    #[inline]
    pub(crate) fn has_caller(&self) -> bool {
        let thread = thread_pointer();
        self.group(thread).has(thread)
    }

    /// Has the calling thread be in it; `None` if it is already, or where there is no room.
    /// *Async-signal-safe.*
    pub(crate) fn join(&self) -> Option<Member<'_>> {
        let thread = thread_pointer();
        let group = self.group(thread);
        match group.has(thread) {
            true => None,
            false => group.take(thread).map(Member),
        }
    }

    fn group(&self, thread: u64) -> &Group {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
        let hash = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> (64 - GROUPS.ilog2())) as usize]
    }
}

impl Group {
    #[inline]
    fn has(&self, thread: u64) -> bool {
        (self.0.iter())
            .map(|place| place.load(Ordering::Relaxed))
            .take_while(|&place| place != END)
            .any(|place| place == thread)
    }

    /// Takes a place, if there is one.
    fn take(&self, thread: u64) -> Option<&AtomicU64> {
        self.0.iter().find(|place| {
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            let take = |free| place.compare_exchange(free, thread, success, failure);
            take(END).or_else(|_| take(LEFT)).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_in_a_set_until_it_leaves() {
        let set = ThreadSet::default();
        let has = || set.group(thread_pointer()).has(thread_pointer());
        assert!(!has());
        let member = set.join().unwrap();
        assert!(has() && set.join().is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!has() && set.join().is_some()));
        });
        drop(member);
        assert!(!has() && set.join().is_some());
    }

    #[test]
    fn as_many_are_in_a_group_as_there_is_room_for() {
        let group = Group::default();
        let places: Vec<_> = (10..18).map(|nth| group.take(nth).unwrap()).collect();
        assert!(group.take(18).is_none() && !group.has(18));
        places[3].store(LEFT, Ordering::Relaxed);
        assert!(group.has(17) && !group.has(13));
        assert!(group.take(18).is_some() && group.has(18));
    }
}
