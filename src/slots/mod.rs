//! Slots: what a signal handler finds of its thread, besides what its clock's signal carries.
//!
//! A slot is found by its index, which a timer's signal carries, or by the thread's id. The table
//! is an open-addressed one with room for the threads of a very large process; it lies in memory
//! that a forked child finds zeroed, so that nobody's threads are taken for the child's.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::restart::Repeats;
use crate::sync::{self, fence};
use crate::sys::fork::wiped_on_fork_pages;

#[cfg(all(test, loom))]
mod models;

/// How many slots there are, a power of two: 4 MiB of addresses, of which only what was touched
/// takes memory.
const SLOTS: usize = if cfg!(loom) { 4 } else { 64 * 1024 };
/// Slots that are looked at for an id. Ids are given out in turn, so neighbours rarely meet.
const PROBES: usize = if cfg!(loom) { SLOTS } else { 128 };

/// One thread's slot.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// A [`Holder`]. One word, so that the right to record the thread passes from one to the next
    /// at one moment.
    holder: sync::AtomicU64,
    /// Looks at the thread that the program's filter dropped.
    pub(crate) filtered: AtomicU32,
    /// The labels that the thread has set: a pointer that only it changes.
    pub(crate) labels: AtomicPtr<()>,
    /// Weights of the thread's ticks that were lost in the running recording.
    pub(crate) lost: AtomicU64,
    /// Those among them that the next sample is to stand for, too, by why they found no place.
    pub(crate) put_off: [AtomicU32; 2],
    /// The thread's CPU time at which the next period that no tick stood for ends, in nanoseconds,
    /// and modulo 2^64, because it may lie before the thread's beginning; 0 where its ticks say
    /// themselves what they stand for.
    pub(crate) due_ns: AtomicU64,
    /// Periods that the handler is yet to let pass, after a tick that took it long.
    pub(crate) to_pass: AtomicU32,
    /// How many it may let pass, where its last tick took it long; 0 where that did not.
    pub(crate) most_to_pass: AtomicU32,
    /// The weights of those it let pass, which the next sample stands for, too.
    pub(crate) passed: AtomicU32,
    /// Its system call that began again last.
    pub(crate) repeats: Repeats,
}

/// Whose slot it is, and who needs it: the running recording, under the thread's serial number (0
/// where it does not), and the thread itself, which has labels. The slot is free when nobody does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Holder(u64);

impl Holder {
    /// Never used.
    const UNUSED: Self = Self(0);
    /// Unlike an unused one, a freed slot does not end a search.
    const FREED: Self = Self(1 << 31);
    const HAS_LABELS: u64 = 1 << 30;
    /// Somebody puts the thread's id into the slot, and does not know yet whether another one puts
    /// it into another slot. Until it is known, the thread is not found here, and nobody else takes
    /// the slot.
    const IS_PENDING: u64 = 1 << 29;
    /// Another than the thread itself has the right to record it, and its clock does not tick yet:
    /// the thread may still take the right over, so that it never waits for a clock whose maker has
    /// lost its CPU.
    const IS_PREPARED: u64 = 1 << 28;
    /// The kernel gives out no id above 2^22.
    const TID: u64 = Self::IS_PREPARED - 1;

    fn new(tid: i32) -> Self {
        Self(tid as u64 & Self::TID)
    }

    fn is_of(self, tid: i32) -> bool {
        self.id() == Self::new(tid).0
    }

    fn is_pending_of(self, tid: i32) -> bool {
        self.id() == Self::new(tid).pending().0
    }

    /// Whose it is, and whether that is settled.
    fn id(self) -> u64 {
        self.0 & (Self::FREED.0 | Self::IS_PENDING | Self::TID)
    }

    fn pending(self) -> Self {
        Self(self.0 | Self::IS_PENDING)
    }

    fn serial(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn with_serial(self, serial: u32) -> Self {
        Self(self.confirmed().0 & u64::from(u32::MAX) | u64::from(serial) << 32)
    }

    fn is_prepared(self) -> bool {
        self.0 & Self::IS_PREPARED != 0
    }

    fn prepared(self) -> Self {
        Self(self.0 | Self::IS_PREPARED)
    }

    fn confirmed(self) -> Self {
        Self(self.0 & !Self::IS_PREPARED)
    }

    fn has_labels(self) -> bool {
        self.0 & Self::HAS_LABELS != 0
    }

    fn with_labels(self) -> Self {
        Self(self.0 | Self::HAS_LABELS)
    }

    fn without_labels(self) -> Self {
        Self(self.0 & !Self::HAS_LABELS)
    }

    /// Itself, or [`FREED`](Self::FREED) where nobody needs the slot.
    fn or_freed(self) -> Self {
        match self.serial() == 0 && !self.has_labels() {
            true => Self::FREED,
            false => self,
        }
    }
}

/// What came of asking for the right to record a thread, with which goes the right to make its
/// clock.
#[derive(Debug)]
pub(crate) enum Claim<'s> {
    /// The caller has it, until it is [released](Slot::release), and is to [confirm](Slot::confirm)
    /// it before the clock ticks: the slot with its index.
    Granted(u32, &'s Slot),
    /// Another has it, under this serial number.
    Held(u32),
    /// There are more threads than slots.
    Full,
}

/// The table of a process.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slots {
    slots: [Slot; SLOTS],
    /// Something is recorded, so what records refer to is kept.
    is_recording: AtomicBool,
}

/// The number that was given out last. A forked child goes on from it, so that what it inherited is
/// not taken for its own.
static LAST_NUMBER: AtomicU32 = AtomicU32::new(0);

/// A number for a recording or for a thread, greater than all before it. Recordings and threads are
/// numbered in one row, so that a thread's number says which recordings it is older than. They are
/// compared as [`is_before`] does. *Async-signal-safe.*
pub(crate) fn next_number() -> u32 {
    // 0 says "none".
    match LAST_NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_add(1) {
        0 => next_number(),
        number => number,
    }
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
            match slot.holder() {
                Holder::UNUSED => return None,
                holder if holder.is_of(tid) => return Some(slot),
                _ => {}
            }
        }
        None
    }

    /// Asks for the right to record a thread under a number that was taken after the thread was
    /// seen to exist. Of all who ask, the thread itself ([`claim_own`](Self::claim_own)) among
    /// them, one has it at a time. Until the caller [confirms](Slot::confirm) that the clock is
    /// made, the thread can still take the right over.
    pub(crate) fn claim(&self, tid: i32, serial: u32) -> Claim<'_> {
        self.claim_unless(tid, |holder| match holder.serial() {
            0 => Ok(holder.with_serial(serial).prepared()),
            held => Err(held),
        })
    }

    /// As [`claim`](Self::claim), for the calling thread when it begins, and from the first for
    /// good. It was given its number before it existed, so a lower one on its slot is that of a
    /// thread which had its id before and is gone, and a higher one was taken for itself. What a
    /// thread before it has left in the slot, labels among it, is forgotten.
    pub(crate) fn claim_own(&self, tid: i32, serial: u32) -> Claim<'_> {
        if let Some(slot) = self.find(tid) {
            slot.labels.store(std::ptr::null_mut(), Ordering::Relaxed);
            slot.release_labels();
        }
        let claim = self.claim_unless(tid, |holder| match holder.serial() {
            held if held == 0 || is_before(held, serial) || holder.is_prepared() => {
                Ok(holder.with_serial(serial))
            }
            held => Err(held),
        });
        if let Claim::Granted(_, slot) = claim {
            slot.clear();
        }
        claim
    }

    fn claim_unless(&self, tid: i32, claimed: impl Fn(Holder) -> Result<Holder, u32>) -> Claim<'_> {
        match self.update(tid, claimed) {
            None => Claim::Full,
            Some(Err(held)) => Claim::Held(held),
            Some(Ok(slot)) => {
                let index = (std::ptr::from_ref(slot) as usize - self.slots.as_ptr() as usize)
                    / size_of::<Slot>();
                Claim::Granted(index as u32, slot)
            }
        }
    }

    /// The calling thread's slot, to put labels into, until that is
    /// [released](Slot::release_labels). `None` where there are more threads than slots.
    pub(crate) fn for_labels(&self, tid: i32) -> Option<&Slot> {
        let updated = self.update(tid, |holder| Ok::<_, u32>(holder.with_labels()));
        updated?.ok()
    }

    /// The slot of a thread, or a free one, with the holder that `next` makes of what it is.
    fn update<E>(
        &self,
        tid: i32,
        next: impl Fn(Holder) -> Result<Holder, E>,
    ) -> Option<Result<&Slot, E>> {
        // Where somebody else changed the slot meanwhile, it is looked for again.
        loop {
            let mut free = None;
            let mut known = None;
            for slot in self.probe(tid) {
                match slot.holder() {
                    Holder::UNUSED => {
                        free = free.or(Some((slot, Holder::UNUSED)));
                        break;
                    }
                    Holder::FREED => free = free.or(Some((slot, Holder::FREED))),
                    holder if holder.is_of(tid) => {
                        known = Some((slot, holder));
                        break;
                    }
                    _ => {}
                }
            }
            let (slot, seen) = known.or(free)?;
            let next = match next(known.map_or(Holder::new(tid), |(_, holder)| holder)) {
                Ok(next) => next,
                Err(error) => return Some(Err(error)),
            };
            let is_done = match known {
                Some(_) => slot.exchange(seen, next),
                None => self.insert(tid, slot, seen, next),
            };
            if is_done {
                return Some(Ok(slot));
            }
        }
    }

    /// Puts a thread that has no slot into a free one, unless somebody else puts it into another
    /// one at the same time: a slot that was freed while they searched is free to one of them only.
    /// As in Purcell and Harris, "Non-blocking hashtables with open addressing" (2005): each says
    /// what it is about to do, then makes all others begin again that have said so.
    fn insert(&self, tid: i32, own: &Slot, seen: Holder, next: Holder) -> bool {
        let pending = next.pending();
        if !own.exchange(seen, pending) {
            return false;
        }
        // Of two, the one whose fence is later sees what the other has said.
        fence(Ordering::SeqCst);
        for slot in self.probe(tid).filter(|slot| !std::ptr::eq(*slot, own)) {
            let mut holder = slot.holder();
            while holder.is_pending_of(tid) && !slot.exchange(holder, Holder::FREED) {
                holder = slot.holder();
            }
            if holder == Holder::UNUSED {
                break;
            }
            if holder.is_of(tid) {
                // The other one was first. It may have freed this slot, too.
                own.exchange(pending, Holder::FREED);
                return false;
            }
        }
        own.exchange(pending, next)
    }

    /// The threads that are recorded under a number.
    #[cfg(test)]
    pub(crate) fn recorded(&self) -> Vec<i32> {
        let holders = self.slots.iter().map(Slot::holder);
        let recorded = holders.filter(|holder| holder.serial() != 0);
        recorded
            .map(|holder| (holder.0 & Holder::TID) as i32)
            .collect()
    }

    fn probe(&self, tid: i32) -> impl Iterator<Item = &Slot> {
        let start = tid as u32 as usize;
        (0..PROBES).filter_map(move |i| self.slots.get((start + i) & (SLOTS - 1)))
    }
}

impl Slot {
    fn holder(&self) -> Holder {
        Holder(self.holder.load(Ordering::Acquire))
    }

    fn exchange(&self, seen: Holder, next: Holder) -> bool {
        self.holder
            .compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Begins the account of a thread.
    fn clear(&self) {
        self.lost.store(0, Ordering::Relaxed);
        for put_off in &self.put_off {
            put_off.store(0, Ordering::Relaxed);
        }
        self.due_ns.store(0, Ordering::Relaxed);
        self.to_pass.store(0, Ordering::Relaxed);
        self.most_to_pass.store(0, Ordering::Relaxed);
        self.passed.store(0, Ordering::Relaxed);
    }

    /// The number of the thread in the running recording; 0 where it has none that is
    /// [confirmed](Self::confirm). *Async-signal-safe.*
    pub(crate) fn serial(&self) -> u32 {
        let holder = self.holder();
        if holder.is_prepared() {
            0
        } else {
            holder.serial()
        }
    }

    /// Makes the right that was [claimed](Slots::claim) under that number one for good, and begins
    /// the account of the thread, which no clock of it may do before: false if the thread has taken
    /// the right over, or lost it.
    pub(crate) fn confirm(&self, serial: u32) -> bool {
        loop {
            let holder = self.holder();
            if holder.serial() != serial {
                return false;
            }
            if !holder.is_prepared() {
                return true;
            }
            if self.exchange(holder, holder.confirmed()) {
                self.clear();
                return true;
            }
        }
    }

    /// Gives back the right to record the thread of that number, whose clock is gone. Nothing
    /// happens if another has it by now.
    pub(crate) fn release(&self, serial: u32) {
        self.release_if(|holder| (holder.serial() == serial).then_some(holder.with_serial(0)));
    }

    /// Says that the thread has no labels any more.
    pub(crate) fn release_labels(&self) {
        self.release_if(|holder| holder.has_labels().then_some(holder.without_labels()));
    }

    fn release_if(&self, next: impl Fn(Holder) -> Option<Holder>) {
        let mut seen = self.holder();
        while let Some(next) = next(seen) {
            if self.exchange(seen, next.or_freed()) {
                return;
            }
            seen = self.holder();
        }
    }

    /// Whether this is a slot of the thread. In a forked child it is nobody's. *Async-signal-safe.*
    pub(crate) fn is_of(&self, tid: i32) -> bool {
        self.holder().is_of(tid)
    }
}

/// Whether a number was given out before the other one. They are used up after four billion
/// threads, so half of them are before, and half after. *Async-signal-safe.*
pub(crate) fn is_before(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(claim: Claim<'_>) -> (u32, &Slot) {
        match claim {
            Claim::Granted(index, slot) => (index, slot),
            refused => panic!("{refused:?}"),
        }
    }

    // Ids beyond those that the kernel gives out, so that no other test's thread is meant.

    #[test]
    fn slots_are_shared_by_users_and_free_when_none_is_left() {
        let slots = Slots::get_or_make().unwrap();
        let (tid, colliding) = (1 << 24, (1 << 24) + SLOTS as i32);
        assert!(slots.find(tid).is_none());
        let (index, slot) = granted(slots.claim(tid, 7));
        let (other_index, other) = granted(slots.claim(colliding, 8));
        assert_ne!(index, other_index);
        assert!(std::ptr::eq(slots.for_labels(tid).unwrap(), slot));
        slot.release(7);
        assert!(slots.find(tid).is_some_and(|s| std::ptr::eq(s, slot)));
        slot.release_labels();
        assert!(slots.find(tid).is_none());
        let found = slots.find(colliding).unwrap();
        assert!(std::ptr::eq(found, other), "a freed slot ends no search");
        other.release(8);
        assert!(std::ptr::eq(slots.for_labels(colliding).unwrap(), slot));
        slot.release_labels();
    }

    #[test]
    fn one_has_the_right_to_record_a_thread() {
        let slots = Slots::get_or_make().unwrap();
        let tid = (1 << 24) + 1000;
        let [gone, own, scans, later] = [(); 4].map(|()| next_number());
        let (_, slot) = granted(slots.claim(tid, gone));
        assert!(slot.confirm(gone) && slot.confirm(gone));
        let _ = slots.for_labels(tid);
        slot.lost.store(1, Ordering::Relaxed);
        slot.due_ns.store(1, Ordering::Relaxed);
        // The one of an earlier thread is the new one's, whose scan comes too late.
        let (_, own_slot) = granted(slots.claim_own(tid, own));
        assert!(std::ptr::eq(own_slot, slot));
        assert_eq!(slot.lost.load(Ordering::Relaxed), 0);
        assert_eq!(slot.due_ns.load(Ordering::Relaxed), 0);
        assert!(matches!(slots.claim(tid, scans), Claim::Held(by) if by == own));
        // What is done for the earlier one comes too late, too.
        slot.release(gone);
        assert_eq!(slot.serial(), own);
        slot.release(own);
        assert!(slots.find(tid).is_none(), "its labels went with it");
        // The scan is first, and has the clock ready before the thread asks.
        let (_, slot) = granted(slots.claim(tid, scans));
        assert_eq!(slot.serial(), 0);
        assert!(matches!(slots.claim(tid, later), Claim::Held(by) if by == scans));
        assert!(slot.confirm(scans));
        assert_eq!(slot.serial(), scans);
        assert!(matches!(slots.claim_own(tid, own), Claim::Held(by) if by == scans));
        slot.release(scans);
        assert!(slots.find(tid).is_none());
        // The scan is first, and the thread asks while it makes the clock.
        let (_, slot) = granted(slots.claim(tid, scans));
        granted(slots.claim_own(tid, own));
        slot.lost.store(1, Ordering::Relaxed);
        assert!(!slot.confirm(scans));
        slot.release(scans);
        assert_eq!(slot.serial(), own);
        assert_eq!(slot.lost.load(Ordering::Relaxed), 1);
        slot.release(own);
        assert!(slots.find(tid).is_none());
        // The scan gives up.
        let (_, slot) = granted(slots.claim(tid, scans));
        slot.release(scans);
        assert!(!slot.confirm(scans));
        assert!(slots.find(tid).is_none());
    }

    #[test]
    fn numbers_are_compared_around_the_end() {
        assert!(is_before(1, 2) && !is_before(2, 2) && !is_before(2, 1));
        assert!(is_before(u32::MAX, 1) && !is_before(1, u32::MAX));
    }
}
