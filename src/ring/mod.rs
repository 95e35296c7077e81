//! The only way out of signal context: a rack of lock-free lanes.
//!
//! A [`Lane`] is a single-producer single-consumer ring of 64-bit words, allocated before the first
//! signal. A handler [claims](Rack::claim) a free lane with one compare-and-swap, writes a record
//! into its free space, commits it and lets the lane go; the flusher, the one consumer,
//! [drains](Rack::drain) all lanes. Nothing waits: where no lane is free or none has room, the
//! caller is told and counts the loss.
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

use crossbeam_utils::CachePadded;

use crate::sync::{Ordering, fence};

/// Why a handler could not get space for its record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    /// Other handlers hold every lane.
    NoLane,
    /// Lanes were free, but none had room: the flusher is behind.
    LaneFull,
}

/// All lanes.
#[derive(Debug)]
pub(crate) struct Rack {
    lanes: Box<[CachePadded<Lane>]>,
}

impl Rack {
    /// A rack of `lanes` lanes of `words` 64-bit words each; both are powers of two.
    pub(crate) fn new(lanes: usize, words: usize) -> std::io::Result<Self> {
        assert!(lanes.is_power_of_two(), "lanes are found by masking");
        Ok(Self {
            lanes: (0..lanes)
                .map(|_| Lane::new(words).map(CachePadded::new))
                .collect::<std::io::Result<_>>()?,
        })
    }

    /// Claims a lane with room for `words` words, for a handler that reads in `epoch`; tries each
    /// lane once, beginning at one chosen by `hint` (a thread id, say), so that a thread tends to
    /// stay with a warm lane.
    ///
    /// *Async-signal-safe.*
    pub(crate) fn claim(&self, hint: u32, epoch: u32, words: usize) -> Result<Claim<'_>, Refused> {
        let mask = self.lanes.len() - 1;
        let start = self.start(hint);
        let mut refused = Refused::NoLane;
        for i in 0..self.lanes.len() {
            let index = (start + i) & mask;
            // Masking keeps the index in range; `get` rather than `[]` because a handler has no
            // panic to fall into.
            let Some(lane) = self.lanes.get(index) else {
                break;
            };
            if let Some(claim) = lane.try_claim(index, epoch) {
                if claim.has_room(words) {
                    return Ok(claim);
                }
                refused = Refused::LaneFull;
            }
        }
        Err(refused)
    }

    /// Where the search for a free lane begins. *Async-signal-safe.*
    pub(crate) fn start(&self, hint: u32) -> usize {
        // Fibonacci hashing: neighbouring thread ids land far apart.
        (hint.wrapping_mul(0x9E37_79B9) >> 16) as usize & (self.lanes.len() - 1)
    }

    /// How many lanes there are.
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Bytes that the lanes' words take.
    pub(crate) fn size_bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.size_bytes()).sum()
    }

    /// Hands every committed record to `sink` and frees its space.
    ///
    /// # Safety
    ///
    /// One caller at a time: a lane has a single consumer.
    pub(crate) unsafe fn drain(&self, mut sink: impl FnMut(Record<'_>)) {
        for lane in &self.lanes {
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
        self.lanes.iter().filter_map(|lane| lane.epoch()).min()
    }

    /// Gives the memory of all lanes back to the system; the rack stays usable.
    ///
    /// # Safety
    ///
    /// No lane is claimed or being drained, nor will be while this runs.
    pub(crate) unsafe fn release_memory(&self) {
        for lane in &self.lanes {
            // SAFETY: the caller's contract is the lane's.
            unsafe { lane.release_memory() };
        }
    }
}
