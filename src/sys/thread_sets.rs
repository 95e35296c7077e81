//! Sets of threads that say something of themselves, for whoever may not use anything of the
//! thread's own.
//!
//! The first use of a thread-local value allocates, in a library that was loaded later; and it may
//! be the program's allocator that asks, with a lock held.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use super::thread::thread_pointer;

const GROUPS: usize = 64;

/// What a thread says of itself: a bit that is 0 in pointers of threads, which are aligned.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Set {
    /// It does the profiler's own work.
    OwnWork = 1 << 1,
    /// It waits for a lock of which more is known than of a futex.
    #[cfg(feature = "contention")]
    LockWait = 1 << 2,
}

/// The bits of all sets.
#[cfg(any(feature = "contention", test))]
const SETS: u64 = 0b110;

/// Sets in one table, so that one look tells whether a thread is in any of them. In all there are
/// up to 512 threads, and no more than 8 with the same hash of their pointers.
#[derive(Debug)]
pub(crate) struct ThreadSets([Group; GROUPS]);

/// Pointers of threads, each with the bit of its set, in one cache line.
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

impl Default for ThreadSets {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Group::default()))
    }
}

impl ThreadSets {
    /// Whether the calling thread is in a set. *Async-signal-safe.*
    #[cfg(any(feature = "heap", test))]
    #[inline]
    pub(crate) fn has_caller(&self, set: Set) -> bool {
        let thread = thread_pointer();
        self.group(thread).has(|place| place == thread | set as u64)
    }

    /// Whether the calling thread is in any set. *Async-signal-safe.*
    #[cfg(feature = "contention")]
    #[inline]
    pub(crate) fn has_caller_in_any(&self) -> bool {
        let thread = thread_pointer();
        self.group(thread).has(|place| place & !SETS == thread)
    }

    /// Has the calling thread be in a set; `None` if it is already, or where there is no room.
    /// *Async-signal-safe.*
    pub(crate) fn join(&self, set: Set) -> Option<Member<'_>> {
        let thread = thread_pointer();
        let (group, member) = (self.group(thread), thread | set as u64);
        match group.has(|place| place == member) {
            true => None,
            false => group.take(member).map(Member),
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
    fn has(&self, is_it: impl Fn(u64) -> bool) -> bool {
        (self.0.iter())
            .map(|place| place.load(Ordering::Relaxed))
            .take_while(|&place| place != END)
            .any(is_it)
    }

    /// Takes a place, if there is one.
    fn take(&self, member: u64) -> Option<&AtomicU64> {
        self.0.iter().find(|place| {
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            let take = |free| place.compare_exchange(free, member, success, failure);
            take(END).or_else(|_| take(LEFT)).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_in_a_set_until_it_leaves() {
        let sets = ThreadSets::default();
        let set = Set::OwnWork;
        let has = || sets.has_caller(set);
        assert!(thread_pointer() & SETS == 0 && !has());
        let member = sets.join(set).unwrap();
        assert!(has() && sets.join(set).is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!has() && sets.join(set).is_some()));
        });
        drop(member);
        assert!(!has() && sets.join(set).is_some());
    }

    #[cfg(feature = "contention")]
    #[test]
    fn a_thread_may_be_in_one_set_and_not_in_the_other() {
        let sets = ThreadSets::default();
        let has = || [Set::OwnWork, Set::LockWait].map(|set| sets.has_caller(set));
        assert!(has() == [false, false] && !sets.has_caller_in_any());
        let waits = sets.join(Set::LockWait).unwrap();
        assert!(has() == [false, true] && sets.has_caller_in_any());
        let works = sets.join(Set::OwnWork).unwrap();
        assert_eq!(has(), [true, true]);
        drop(waits);
        assert!(has() == [true, false] && sets.has_caller_in_any());
        drop(works);
        assert!(has() == [false, false] && !sets.has_caller_in_any());
    }

    #[test]
    fn as_many_are_in_a_group_as_there_is_room_for() {
        let group = Group::default();
        let has = |nth| group.has(|place| place == nth);
        let places: Vec<_> = (10..18).map(|nth| group.take(nth).unwrap()).collect();
        assert!(group.take(18).is_none() && !has(18));
        places[3].store(LEFT, Ordering::Relaxed);
        assert!(has(17) && !has(13));
        assert!(group.take(18).is_some() && has(18));
    }
}
