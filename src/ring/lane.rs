//! One lane: a single-producer single-consumer ring of words, claimed for the length of one
//! handler.

use crossbeam_utils::CachePadded;

use super::words::Words;
use crate::sync::{AtomicU32, AtomicUsize, Ordering, fence};

/// The value of `Lane::owner` when nobody has claimed it; epochs are never 0.
const FREE: u32 = 0;

/// The consumer's claim, while it turns the lane back. No epoch comes after it, so nothing is kept
/// for its sake.
const CONSUMER: u32 = u32::MAX;

/// A first word of a record that says: nothing more up to the end of the ring, go on at its
/// beginning.
const SKIP: u64 = 0;

/// Words that a lane is to stay within: 64 KiB. The consumer is called where more than these wait,
/// and a lane that is empty beyond them is turned back to its beginning. So the rest is touched,
/// and takes memory, only where the consumer was held up.
const USUAL_WORDS: usize = 8 * 1024;

/// A ring of words. `tail - head` words are committed and not yet consumed; both count words since
/// the beginning and are masked to find a place. The invariants:
///
/// - Only the holder of the claim moves `tail` and writes words in `[tail, head + capacity)`.
/// - Only the consumer moves `head` and reads words in `[head, tail)`.
/// - A record lies in one piece. Its first word is its length in words, in the low 16 bits, and
///   never [`SKIP`].
#[derive(Debug)]
pub(crate) struct Lane {
    /// [`FREE`], or the epoch in which the claiming handler reads.
    owner: AtomicU32,
    tail: AtomicUsize,
    /// On a line of its own: the consumer writes it while handlers write the two above.
    head: CachePadded<AtomicUsize>,
    words: Words,
    /// Words that were ever used since the memory was last given back, from the first on. For the
    /// figures: no model's.
    touched: std::sync::atomic::AtomicUsize,
}

impl Lane {
    /// A lane of `capacity` words, a power of two.
    pub(super) fn new(capacity: usize) -> std::io::Result<Self> {
        assert!(capacity.is_power_of_two(), "positions are masked");
        Ok(Self {
            owner: AtomicU32::new(FREE),
            tail: AtomicUsize::new(0),
            head: CachePadded::new(AtomicUsize::new(0)),
            words: Words::new(capacity)?,
            touched: std::sync::atomic::AtomicUsize::new(0),
        })
    }

    /// As [`USUAL_WORDS`], in a lane of any capacity.
    fn usual_words(&self) -> usize {
        USUAL_WORDS.min(self.words.len() / 2)
    }

    /// Takes the lane if it is free. *Async-signal-safe.*
    pub(super) fn try_claim(&self, index: usize, epoch: u32) -> Option<Claim<'_>> {
        debug_assert_ne!(epoch, FREE);
        // A look before the swap, so that handlers passing by do not take the line from the one
        // that works.
        if self.owner.load(Ordering::Relaxed) != FREE {
            return None;
        }
        // Acquire: what the last holder wrote (its `tail`) is visible to this one.
        self.owner
            .compare_exchange(FREE, epoch, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // Pairs with the fence in `Rack::oldest_epoch`: from here on, either the claim is seen by
        // whoever wants to free a snapshot, or the newer snapshot is seen by this handler.
        fence(Ordering::SeqCst);
        Some(Claim { lane: self, index })
    }

    /// The epoch of the handler that holds the lane, if one does.
    pub(super) fn epoch(&self) -> Option<u32> {
        // Acquire: once a lane is seen free, all reads of its last holder have happened.
        match self.owner.load(Ordering::Acquire) {
            FREE => None,
            epoch => Some(epoch),
        }
    }

    /// Hands every committed record, as its words, to `sink`.
    ///
    /// # Safety
    ///
    /// One caller at a time.
    pub(super) unsafe fn drain(&self, mut sink: impl FnMut(&[u64])) {
        let mask = self.words.len() - 1;
        let mut head = self.head.load(Ordering::Relaxed);
        // Acquire: the words before `tail` have been written.
        let tail = self.tail.load(Ordering::Acquire);
        while head != tail {
            let start = head & mask;
            // SAFETY: the word at `head` lies in `[head, tail)`, which producers leave alone until
            // `head` moves.
            let first = unsafe { self.words.read(start, 1) }[0];
            if first == SKIP {
                head += self.words.len() - start;
            } else {
                let len = first as u16 as usize;
                // SAFETY: a record lies in one piece within `[head, tail)`.
                sink(unsafe { self.words.read(start, len) });
                head += len;
                self.touched.fetch_max(start + len, Ordering::Relaxed);
            }
            // Release: the reads above happen before a producer that sees the new `head` overwrites
            // the words.
            self.head.store(head, Ordering::Release);
        }
        if head & mask > self.usual_words() {
            self.turn_back(head);
        }
    }

    /// Goes on at the beginning of the ring, whose words are touched already and near. Nothing
    /// happens where a handler holds the lane or has written more.
    fn turn_back(&self, head: usize) {
        let Some(claim) = self.try_claim(0, CONSUMER) else {
            return;
        };
        // The claim makes this the only one who moves either.
        if self.tail.load(Ordering::Relaxed) == head {
            let beginning = head.next_multiple_of(self.words.len());
            self.head.store(beginning, Ordering::Relaxed);
            self.tail.store(beginning, Ordering::Relaxed);
        }
        drop(claim);
    }

    /// Bytes that the words take which were used since the memory was last given back.
    pub(super) fn size_bytes(&self) -> usize {
        self.touched.load(Ordering::Relaxed) * size_of::<u64>()
    }

    /// Gives the words' memory back to the system.
    ///
    /// # Safety
    ///
    /// The lane is drained, and neither claimed nor drained while this runs.
    pub(super) unsafe fn release_memory(&self) {
        // SAFETY: nobody reads or writes the words, by the caller's contract.
        unsafe { self.words.release_memory() };
        self.touched.store(0, Ordering::Relaxed);
    }
}

/// A claimed lane; dropping it lets the lane go. *Async-signal-safe.*
#[derive(Debug)]
pub(crate) struct Claim<'r> {
    lane: &'r Lane,
    index: usize,
}

impl Claim<'_> {
    /// The lane's position in its rack: what belongs to the lane belongs to the holder of its
    /// claim.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Where a record of up to `words` words would begin, and how far behind the flusher is, in
    /// words.
    fn place(&self, words: usize) -> Option<Place> {
        let capacity = self.lane.words.len();
        let tail = self.lane.tail.load(Ordering::Relaxed);
        // Acquire: the consumer is done with the words before `head`.
        let used = tail.wrapping_sub(self.lane.head.load(Ordering::Acquire));
        let start = tail & (capacity - 1);
        let to_end = capacity - start;
        let skip = if to_end < words { to_end } else { 0 };
        let needed = skip.checked_add(words)?;
        (needed <= capacity - used).then_some(Place {
            tail,
            start: if skip > 0 { 0 } else { start },
            skip,
            used,
        })
    }

    pub(super) fn has_room(&self, words: usize) -> bool {
        self.place(words).is_some()
    }

    /// Lets `fill` write a record into up to `words` free words and commits as many as it returns.
    /// The answer says whether so much waits after it that the consumer should come, or `None`
    /// where there was no room.
    ///
    /// `fill` puts the record's length into the low 16 bits of the first word.
    ///
    /// *Async-signal-safe* if `fill` is.
    pub(crate) fn write(
        &mut self,
        words: usize,
        fill: impl FnOnce(&mut [u64]) -> usize,
    ) -> Option<bool> {
        let place = self.place(words)?;
        // SAFETY: the claim makes this the only producer, and `place` found the words to be free:
        // they lie in `[tail, head + capacity)`, which the consumer leaves alone.
        let space = unsafe { self.lane.words.write(place.start, words) };
        let len = fill(space).min(words);
        debug_assert!(len > 0 && space[0] as u16 as usize == len);
        if place.skip > 0 {
            // SAFETY: as above; the skipped words are free as well.
            unsafe {
                self.lane
                    .words
                    .write(place.tail & (self.lane.words.len() - 1), 1)
            }
            .fill(SKIP);
        }
        // Release: the record is written before the consumer sees it.
        self.lane
            .tail
            .store(place.tail.wrapping_add(place.skip + len), Ordering::Release);
        Some(place.used + place.skip + len > self.lane.usual_words())
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Release: everything this handler did with the lane and read in its epoch happens before
        // the next claim, and before a snapshot of that epoch is freed.
        self.lane.owner.store(FREE, Ordering::Release);
    }
}

/// Where a record goes.
struct Place {
    tail: usize,
    /// Position of its first word.
    start: usize,
    /// Words left out at the end of the ring because the record would not fit there in one piece.
    skip: usize,
    /// Words committed and not consumed.
    used: usize,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn push(lane: &Lane, len: usize, value: u64) -> bool {
        let mut claim = lane.try_claim(0, 1).expect("nobody else claims");
        claim
            .write(len, |space| {
                space.fill(value);
                space[0] = len as u64 | value << 16;
                len
            })
            .is_some()
    }

    fn drain(lane: &Lane) -> Vec<(usize, u64)> {
        let mut records = Vec::new();
        // SAFETY: one thread.
        unsafe {
            lane.drain(|words| {
                assert!(words[1..].iter().all(|&w| w == words[0] >> 16));
                records.push((words.len(), words[0] >> 16));
            });
        }
        records
    }

    #[test]
    fn records_come_out_whole_and_in_order_around_the_end() {
        let lane = Lane::new(16).unwrap();
        let mut next = 1;
        for round in 0..1000 {
            let mut expected = Vec::new();
            for len in [1 + round % 7, 1 + round % 5, 3] {
                if push(&lane, len, next) {
                    expected.push((len, next));
                }
                next += 1;
            }
            assert!(!expected.is_empty());
            assert_eq!(drain(&lane), expected);
        }
    }

    #[test]
    fn a_full_lane_refuses_and_keeps_what_it_has() {
        let lane = Lane::new(8).unwrap();
        assert!(push(&lane, 5, 1));
        assert!(
            !push(&lane, 4, 2),
            "the end is 3 words away, the start is taken"
        );
        assert!(push(&lane, 3, 3));
        assert!(!push(&lane, 1, 4));
        assert_eq!(drain(&lane), [(5, 1), (3, 3)]);
        assert!(push(&lane, 8, 5));
        assert!(!push(&lane, 9, 6), "longer than the lane");
    }

    #[test]
    fn a_lane_that_is_emptied_in_time_stays_at_its_beginning() {
        let lane = Lane::new(1024).unwrap();
        for next in 1..1000 {
            assert!(push(&lane, 100, next));
            assert_eq!(drain(&lane), [(100, next)]);
        }
        assert_eq!(lane.size_bytes(), 600 * size_of::<u64>());
        // A handler that holds it is not waited for, and has all room in the end.
        assert!((1..=6).all(|next| push(&lane, 100, next)));
        let claim = lane.try_claim(0, 1).unwrap();
        assert_eq!(drain(&lane).len(), 6);
        drop(claim);
        assert!((1..=10).all(|next| push(&lane, 100, next)));
        assert_eq!(drain(&lane).len(), 10);
    }

    #[test]
    fn a_claimed_lane_is_not_claimed_again() {
        let lane = Lane::new(8).unwrap();
        let claim = lane.try_claim(0, 7).unwrap();
        assert!(lane.try_claim(0, 8).is_none());
        assert_eq!(lane.epoch(), Some(7));
        drop(claim);
        assert_eq!(lane.epoch(), None);
        assert!(lane.try_claim(0, 8).is_some());
    }
}
