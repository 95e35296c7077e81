//! Whether a thread that lets go of a lock, or ends waits in another way, has to look who waits.
//!
//! That is asked at every unlock, so the answer is a word that seldom changes. It says nothing of
//! the moment: a word that each waiter writes would be in no cache of the holder's, who would let
//! go a tenth of a microsecond later, just where somebody waits.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crossbeam_utils::CachePadded;

/// Locks are told apart by this many hashes of their addresses.
pub(super) const GROUPS: usize = 2048;

/// The group of a lock.
#[inline(always)]
pub(super) fn group(lock: u64) -> usize {
    // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
    let hash = lock.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - GROUPS.ilog2())) as usize
}

/// Whether any of [`LOOKS`] says more than [`Look::Never`].
static IS_ANY: CachePadded<AtomicBool> = CachePadded::new(AtomicBool::new(false));

/// By group: a [`Look`].
static LOOKS: [AtomicU8; GROUPS] = [const { AtomicU8::new(0) }; GROUPS];

/// By group: threads that wait. A forked child inherits how many of its parent's did.
static WAITING: [AtomicU32; GROUPS] = [const { AtomicU32::new(0) }; GROUPS];

/// When to look who waits for a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Look {
    /// Nobody has waited of late.
    Never,
    /// Before letting go: who waits is still there.
    Before,
    /// After that: there are more waits than can be timed, and to look takes longer where somebody
    /// has just begun to wait, who would sleep then, and not have slept otherwise.
    After,
}

/// *Async-signal-safe.*
#[inline(always)]
pub(super) fn look(lock: usize) -> Look {
    match IS_ANY.load(Ordering::Relaxed) {
        false => Look::Never,
        true => look_of(group(lock as u64)),
    }
}

fn look_of(group: usize) -> Look {
    match LOOKS[group].load(Ordering::Relaxed) {
        0 => Look::Never,
        1 => Look::Before,
        _ => Look::After,
    }
}

/// Whether any thread may wait for a lock that was let go. *Async-signal-safe.*
#[inline(always)]
pub(super) fn may_any_wait(lock: usize) -> bool {
    WAITING[group(lock as u64)].load(Ordering::Relaxed) > 0
}

/// A thread waits for a lock of a group, until this is dropped.
#[derive(Debug)]
pub(super) struct Counted(&'static AtomicU32);

impl Counted {
    /// *Async-signal-safe.*
    pub(super) fn new(lock: usize) -> Self {
        let group = group(lock as u64);
        let counted = Self(&WAITING[group]);
        // Before the words are read, which are changed before this is.
        counted.0.fetch_add(1, Ordering::SeqCst);
        if LOOKS[group].load(Ordering::SeqCst) == Look::Never as u8 {
            LOOKS[group].store(Look::Before as u8, Ordering::SeqCst);
        }
        if !IS_ANY.load(Ordering::SeqCst) {
            IS_ANY.store(true, Ordering::SeqCst);
        }
        counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sets when to look, by group. Where somebody waits, it is not [`Look::Never`].
pub(super) fn set(looks: impl IntoIterator<Item = Look>) {
    let mut is_any = false;
    for (group, look) in looks.into_iter().enumerate() {
        if look_of(group) != look {
            LOOKS[group].store(look as u8, Ordering::SeqCst);
        }
        is_any |= look != Look::Never || look_where_any_waits(group);
    }
    if IS_ANY.load(Ordering::Relaxed) != is_any {
        IS_ANY.store(is_any, Ordering::SeqCst);
        if !is_any && (0..GROUPS).any(look_where_any_waits) {
            IS_ANY.store(true, Ordering::SeqCst);
        }
    }
}

/// Nobody has to look any more, but for those who still wait.
pub(super) fn clear() {
    set((0..GROUPS).map(|_| Look::Never));
}

/// Whether there is anybody to look for, who came before the word was changed.
fn look_where_any_waits(group: usize) -> bool {
    let does_any_wait = WAITING[group].load(Ordering::SeqCst) > 0;
    if does_any_wait && look_of(group) == Look::Never {
        LOOKS[group].store(Look::Before as u8, Ordering::SeqCst);
    }
    does_any_wait
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_all(look: Look) {
        set((0..GROUPS).map(|_| look));
    }

    #[test]
    fn holders_look_while_any_waits_and_until_the_next_turn() {
        let (lock, other) = (0x1000, 0x2000);
        assert_eq!(look(lock), Look::Never);
        let waits = Counted::new(lock);
        assert_eq!([lock, other].map(look), [Look::Before, Look::Never]);
        set_all(Look::Never);
        assert_eq!(look(lock), Look::Before);
        drop(waits);
        assert_eq!(look(lock), Look::Before);
        set_all(Look::Never);
        assert_eq!(look(lock), Look::Never);
        assert!(!IS_ANY.load(Ordering::Relaxed));
    }

    #[test]
    fn they_look_afterwards_where_more_wait_than_can_be_timed() {
        let lock = 0x1000;
        set_all(Look::After);
        assert_eq!(look(lock), Look::After);
        let waits = Counted::new(lock);
        assert_eq!(look(lock), Look::After);
        drop(waits);
        set_all(Look::Never);
        assert_eq!(look(lock), Look::Never);
    }
}
