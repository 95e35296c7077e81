//! The only way out of signal context: a rack of lock-free lanes.
//!
//! A [`Lane`] is a single-producer single-consumer ring of 64-bit words, allocated before the first
//! signal. A handler [claims](Rack::claim) a free lane with one compare-and-swap, writes a record
//! into its free space, commits it and lets the lane go; the flusher, the one consumer,
//! [drains](Rack::drain) all lanes. Nothing waits: where no lane is free or none has room, the
//! caller is told and counts the loss.
//!
//! A thread that loses its CPU within a handler keeps its lane for as long as it waits for the CPU.
//! So the lanes that a process needs grow with its threads and with what a handler takes. A handler
//! that passes by many lanes in use says so ([`Rack::is_crowded`]), and the flusher [opens
//! more](Rack::open) before none is left.
//!
//! A claimed lane also carries the *epoch* its handler reads shared snapshots in, so that whoever
//! replaced a snapshot can tell when nobody reads the old one any more ([`Rack::oldest_epoch`]).

mod lane;
mod record;
mod words;

#[cfg(all(test, loom))]
mod models;

pub(crate) use lane::{Claim, Lane};
pub(crate) use record::{MAX_DEPTH, Record, RecordWriter, Source};
#[cfg(feature = "contention")]
pub(crate) use record::{Role, WaitWriter};

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crossbeam_utils::CachePadded;

use crate::sync::{Ordering, fence};

/// The most lanes there can be.
pub(crate) const MOST_LANES: usize = 128;

/// Why a handler could not get space for its record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    /// Other handlers hold every lane.
    NoLane,
    /// Lanes were free, but none had room: the flusher is behind.
    LaneFull,
}

impl Refused {
    pub(crate) const ALL: [Self; 2] = [Self::NoLane, Self::LaneFull];
}

/// All lanes: a few at first, and more where those are not enough.
#[derive(Debug)]
pub(crate) struct Rack {
    /// Those in use come first; a lane, once opened, stays.
    lanes: Box<[OnceLock<Box<CachePadded<Lane>>>]>,
    /// How many lanes are open, a power of two. No model's: what makes a lane visible is its
    /// `OnceLock`.
    open: AtomicUsize,
    /// Words of each lane.
    words: usize,
    /// A handler found many lanes in use. For the flusher, and no model's.
    is_crowded: AtomicBool,
}

impl Rack {
    /// A rack with room for `lanes` lanes, none of which is open, of `words` 64-bit words each;
    /// `words` is a power of two.
    pub(crate) fn new(lanes: usize, words: usize) -> Self {
        Self {
            lanes: (0..lanes).map(|_| OnceLock::new()).collect(),
            open: AtomicUsize::new(0),
            words,
            is_crowded: AtomicBool::new(false),
        }
    }

    /// Opens lanes up to `lanes`, a power of two. Handlers may be at work in those that are open.
    ///
    /// # Errors
    ///
    /// Those of mapping memory; the lanes that could be had are kept for the next try.
    pub(crate) fn open(&self, lanes: usize) -> std::io::Result<()> {
        assert!(lanes.is_power_of_two(), "lanes are found by masking");
        for place in &self.lanes[..lanes] {
            if place.get().is_none() {
                let lane = Lane::new(self.words)?;
                let _ = place.set(Box::new(CachePadded::new(lane)));
            }
        }
        self.open.fetch_max(lanes, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a handler has found so many lanes in use that more should be
    /// [opened](Self::open). Never where all are open. *Async-signal-safe.*
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// The same, and forgets that it was so. For the flusher.
    pub(crate) fn take_crowded(&self) -> bool {
        self.is_crowded() && self.is_crowded.swap(false, Ordering::Relaxed)
    }

    /// Claims a lane with room for `words` words, for a handler that reads in `epoch`; tries each
    /// lane once, beginning at one chosen by `hint` (a thread id, say), so that a thread tends to
    /// stay with a warm lane.
    ///
    /// *Async-signal-safe.*
    pub(crate) fn claim(&self, hint: u32, epoch: u32, words: usize) -> Result<Claim<'_>, Refused> {
        let open = self.len();
        let start = spread(hint, open);
        let mut refused = Refused::NoLane;
        for i in 0..open {
            let index = (start + i) & (open - 1);
            // Masking keeps the index in range; `get` rather than `[]` because a handler has no
            // panic to fall into.
            let Some(lane) = self.lanes.get(index).and_then(OnceLock::get) else {
                break;
            };
            // A quarter of all lanes in a row: at least so many are in use, and likely a half.
            if i == open / 4 && open < self.lanes.len() {
                self.is_crowded.store(true, Ordering::Relaxed);
            }
            if let Some(claim) = lane.try_claim(index, epoch) {
                if claim.has_room(words) {
                    return Ok(claim);
                }
                refused = Refused::LaneFull;
            }
        }
        Err(refused)
    }

    /// The lanes that are open.
    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes
            .iter()
            .map_while(OnceLock::get)
            .map(|lane| &***lane)
    }

    /// How many lanes are open. *Async-signal-safe.*
    pub(crate) fn len(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Bytes that the lanes' words take.
    pub(crate) fn size_bytes(&self) -> usize {
        self.lanes().map(Lane::size_bytes).sum()
    }

    /// Hands every committed record to `sink` and frees its space.
    ///
    /// # Safety
    ///
    /// One caller at a time: a lane has a single consumer.
    pub(crate) unsafe fn drain(&self, mut sink: impl FnMut(Record<'_>)) {
        for lane in self.lanes() {
            // SAFETY: the caller is the only consumer.
            unsafe { lane.drain(|words| sink(Record::new(words))) };
        }
    }

    /// The oldest epoch that a handler reads in right now; `None` when no lane is claimed.
    ///
    /// What was unpublished before this call and belongs to an older epoch than the answer is
    /// unreachable.
    pub(crate) fn oldest_epoch(&self) -> Option<u32> {
        // Pairs with the fence in `Lane::try_claim`: either that handler's claim is seen here, or
        // it sees what was published before this fence.
        fence(Ordering::SeqCst);
        self.lanes().filter_map(Lane::epoch).min()
    }

    /// Gives the memory of all lanes back to the system; the rack stays usable.
    ///
    /// # Safety
    ///
    /// No lane is claimed or being drained, nor will be while this runs.
    pub(crate) unsafe fn release_memory(&self) {
        for lane in self.lanes() {
            // SAFETY: the caller's contract is the lane's.
            unsafe { lane.release_memory() };
        }
    }
}

/// A place among `places`, a power of two, for whoever has this number (a thread id, say).
/// *Async-signal-safe.*
pub(crate) fn spread(number: u32, places: usize) -> usize {
    // Fibonacci hashing: neighbouring numbers land far apart.
    (number.wrapping_mul(0x9E37_79B9) >> 16) as usize & places.wrapping_sub(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_crowded_rack_opens_more_lanes_until_there_are_no_more() {
        let rack = Rack::new(16, 8);
        assert_eq!(rack.claim(1, 1, 1).err(), Some(Refused::NoLane));
        rack.open(8).unwrap();
        let mut claims = Vec::new();
        let mut all = |lanes| {
            while let Ok(claim) = rack.claim(7, 1, 1) {
                claims.push(claim.index());
                std::mem::forget(claim);
            }
            claims.sort_unstable();
            assert!(claims.iter().copied().eq(0..lanes), "{claims:?}");
        };
        assert!(!rack.take_crowded());
        all(8);
        assert!(rack.take_crowded() && !rack.is_crowded());
        rack.open(16).unwrap();
        all(16);
        assert!(!rack.is_crowded(), "there are no more");
    }

    #[test]
    fn numbers_are_spread_over_all_places() {
        let mut hits = [0; 8];
        for number in 1000..1064 {
            hits[spread(number, 8)] += 1;
        }
        assert!(hits.iter().all(|hits| (6..=10).contains(hits)), "{hits:?}");
        assert_eq!(spread(5, 1), 0);
    }
}
