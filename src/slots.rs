//! Slots: what a signal handler finds of its thread, besides what its clock's signal carries.
//!
//! A slot is found by its index, which a timer's signal carries, or by the thread's id. The table is an open-addressed one
//! with room for the threads of a very large process; it lies in memory that a forked child finds zeroed, so that nobody's
//! threads are taken for the child's.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::sys::fork::wiped_on_fork_pages;

/// How many slots there are, a power of two: 4 MiB of addresses, of which only what was touched takes memory.
const SLOTS: usize = 64 * 1024;
/// Slots that are looked at for an id. Ids are given out in turn, so neighbours rarely meet.
const PROBES: usize = 128;

/// Who needs a slot. It is free when nobody does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u64)]
pub(crate) enum User {
    /// The running recording, to which the thread is known.
    Recording = 1 << 32,
    /// The thread itself, which has labels.
    Labels = 1 << 33,
}

/// A freed slot: unlike a zeroed one, it does not end a search.
const FREED: u64 = 1 << 34;

/// One thread's slot.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// The thread's id, and above it the [`User`]s.
    holder: AtomicU64,
    /// The number of the thread in the running recording; 0 where it has none.
    pub(crate) serial: AtomicU32,
    /// Looks at the thread that the program's filter dropped.
    pub(crate) filtered: AtomicU32,
    /// The labels that the thread has set: a pointer that only it changes.
    pub(crate) labels: AtomicPtr<()>,
    /// Weights of the thread's ticks that were lost in the running recording.
    pub(crate) lost: AtomicU64,
    /// The thread's CPU time at which the next period that no tick stood for ends, in nanoseconds; 0 where its ticks say
    /// themselves what they stand for.
    pub(crate) due_ns: AtomicU64,
    /// Ticks that the handler is yet to let pass, after one that took it long.
    pub(crate) to_pass: AtomicU32,
    /// The weights of those it let pass, which the next sample stands for, too.
    pub(crate) passed: AtomicU32,
}

/// The table of a process.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slots {
    slots: [Slot; SLOTS],
    /// Something is recorded, so what records refer to is kept.
    is_recording: AtomicBool,
}

static TABLE: AtomicPtr<Slots> = AtomicPtr::new(std::ptr::null_mut());

impl Slots {
    /// The table, if it was ever needed. *Async-signal-safe.*
    pub(crate) fn get() -> Option<&'static Self> {
        // Acquire: the table was mapped before it was published.
        // SAFETY: null, or a mapping of zeros, which are valid slots, that is never unmapped.
        unsafe { TABLE.load(Ordering::Acquire).as_ref() }
    }

    /// The table, made if need be.
    pub(crate) fn get_or_make() -> io::Result<&'static Self> {
        if let Some(slots) = Self::get() {
            return Ok(slots);
        }
        let made: NonNull<Self> = wiped_on_fork_pages(size_of::<Self>())?.cast();
        let first = TABLE.compare_exchange(
            std::ptr::null_mut(),
            made.as_ptr(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        // Where two threads come here at once, one table stays unused: untouched addresses.
        let table = first.map_or_else(|theirs| theirs, |_| made.as_ptr());
        // SAFETY: as in `get`.
        Ok(unsafe { &*table })
    }

    /// Whether something is recorded in this process.
    pub(crate) fn is_recording(&self) -> bool {
        self.is_recording.load(Ordering::Acquire)
    }

    /// Says whether something is recorded.
    pub(crate) fn set_recording(&self, is_recording: bool) {
        self.is_recording.store(is_recording, Ordering::Release);
    }

    /// The slot of an index. *Async-signal-safe.*
    pub(crate) fn at(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize)
    }

    /// The slot of a thread, if it has one. *Async-signal-safe.*
    pub(crate) fn find(&self, tid: i32) -> Option<&Slot> {
        for slot in self.probe(tid) {
            match slot.holder.load(Ordering::Acquire) {
                0 => return None,
                holder if is_of(holder, tid) => return Some(slot),
                _ => {}
            }
        }
        None
    }

    /// The slot of a thread, for `user`, with its index. A new one is zeroed; one that is another user's already is shared.
    /// `None` where there are more threads than slots.
    pub(crate) fn claim(&self, tid: i32, user: User) -> Option<(u32, &Slot)> {
        loop {
            let mut free = None;
            let mut known = None;
            for slot in self.probe(tid) {
                match slot.holder.load(Ordering::Acquire) {
                    0 => {
                        free = free.or(Some((slot, 0)));
                        break;
                    }
                    FREED => free = free.or(Some((slot, FREED))),
                    holder if is_of(holder, tid) => {
                        known = Some((slot, holder));
                        break;
                    }
                    _ => {}
                }
            }
            let (slot, seen) = known.or(free)?;
            let claimed = match known {
                Some((_, holder)) => holder | user as u64,
                None => tid as u32 as u64 | user as u64,
            };
            // A slot that changed meanwhile is looked for again.
            if slot
                .holder
                .compare_exchange(seen, claimed, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                let index = (std::ptr::from_ref(slot) as usize - self.slots.as_ptr() as usize)
                    / size_of::<Slot>();
                return Some((index as u32, slot));
            }
        }
    }

    fn probe(&self, tid: i32) -> impl Iterator<Item = &Slot> {
        let start = tid as u32 as usize;
        (0..PROBES).filter_map(move |i| self.slots.get((start + i) & (SLOTS - 1)))
    }
}

impl Slot {
    /// Begins the account of a thread under its number in the running recording.
    pub(crate) fn begin(&self, serial: u32) {
        self.lost.store(0, Ordering::Relaxed);
        self.due_ns.store(0, Ordering::Relaxed);
        self.to_pass.store(0, Ordering::Relaxed);
        self.passed.store(0, Ordering::Relaxed);
        self.serial.store(serial, Ordering::Release);
    }

    /// Ends a user's need; the slot is free once it was the last. What the user kept in it is cleared before.
    pub(crate) fn release(&self, user: User) {
        let mut seen = self.holder.load(Ordering::Relaxed);
        while seen & user as u64 != 0 {
            let left = seen & !(user as u64);
            let is_used = left & (User::Recording as u64 | User::Labels as u64) != 0;
            let next = if is_used { left } else { FREED };
            match self
                .holder
                .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Frees the slot of a thread that is gone, whoever its users were. For the thread that has its id now.
    pub(crate) fn forget_thread(&self) {
        self.labels.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.serial.store(0, Ordering::Relaxed);
        self.holder.store(FREED, Ordering::Release);
    }

    /// Whether this is a slot of the thread. In a forked child it is nobody's.
    pub(crate) fn is_of(&self, tid: i32) -> bool {
        is_of(self.holder.load(Ordering::Acquire), tid)
    }
}

fn is_of(holder: u64, tid: i32) -> bool {
    holder != FREED && holder as u32 == tid as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_by_users_and_free_when_none_is_left() {
        let slots = Slots::get_or_make().unwrap();
        // Beyond the ids that the kernel gives out, so that no other test's thread is meant.
        let (tid, colliding) = (1 << 24, (1 << 24) + SLOTS as i32);
        assert!(slots.find(tid).is_none());
        let (index, slot) = slots.claim(tid, User::Recording).unwrap();
        let (other_index, other) = slots.claim(colliding, User::Recording).unwrap();
        assert_ne!(index, other_index);
        assert_eq!(slots.claim(tid, User::Labels).unwrap().0, index);
        slot.release(User::Recording);
        assert!(slots.find(tid).is_some_and(|s| std::ptr::eq(s, slot)));
        slot.release(User::Labels);
        assert!(slots.find(tid).is_none());
        let found = slots.find(colliding).unwrap();
        assert!(std::ptr::eq(found, other), "a freed slot ends no search");
        other.release(User::Recording);
        assert_eq!(slots.claim(colliding, User::Labels).unwrap().0, index);
        slot.release(User::Labels);
    }
}
