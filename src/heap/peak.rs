//! How many bytes are in use, and what was in use when it was the most.
//!
//! No copy of the live set is made at a new peak, of which there is one a sample while a program
//! grows. Each begins an *epoch*, and whoever changes a site first keeps what the site had, if
//! that has not been done in this epoch. So a site had at the peak what was kept in this epoch, or
//! else what it has now.
//!
//! Who reads all sites goes on in the epoch that reading began in, while new peaks begin others: a
//! site keeps what it had in two epochs, and they take turns.
#![forbid(unsafe_code)]

use std::thread;
use std::time::Duration;

use super::countdown::without_samples;
use super::sites::Blocks;
use super::watch::{self, Bounds, Watch};
use crate::sys::fork_mutex::{ForkMutex, Guard, Held};

/// Held while a site's counters and the bytes in use change, so that one is always the sum of the
/// others: among the mutexes of the profile the last that a thread locks.
static IN_USE: ForkMutex<InUse> = ForkMutex::new(InUse {
    bytes: 0,
    most: 0,
    allocated: 0,
    epochs: [1, 0],
    turn: 0,
    read: 0,
    readers: 0,
});

/// What is in use by all sites.
#[derive(Debug)]
pub(super) struct InUse {
    /// What the sampled blocks stand for, and the most that it was.
    bytes: u64,
    most: u64,
    /// What sampled blocks stand for, freed or not.
    allocated: u64,
    /// Numbers, none of which comes twice.
    epochs: Epochs,
    /// Which of them is that of the peak,
    turn: usize,
    /// and which the one that is read, if there is a reader.
    read: usize,
    readers: u32,
}

type Epochs = [u64; 2];

/// What a site had in two epochs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    epochs: Epochs,
    blocks: [Blocks; 2],
}

/// Waits for whoever changes a site, and holds off others.
pub(super) fn lock() -> Guard<'static, InUse> {
    IN_USE.lock()
}

impl InUse {
    /// Keeps what a site has, before the site changes.
    pub(super) fn keep(&self, kept: &mut Kept, now: Blocks) {
        for turn in 0..2 {
            if kept.epochs[turn] != self.epochs[turn] {
                kept.epochs[turn] = self.epochs[turn];
                kept.blocks[turn] = now;
            }
        }
    }

    /// Counts what a block stands for, after its site has. By how much that is more than there
    /// ever was.
    pub(super) fn add(&mut self, bytes: u64) -> u64 {
        self.bytes = self.bytes.saturating_add(bytes);
        let growth = self.bytes.saturating_sub(self.most);
        if growth > 0 {
            self.most = self.bytes;
            let newest = self.epochs[self.turn];
            if self.readers > 0 && self.turn == self.read {
                self.turn = 1 - self.turn;
            }
            self.epochs[self.turn] = newest + 1;
        }
        self.allocated = self.allocated.saturating_add(bytes);
        watch::see(self.allocated, self.bytes);
        growth
    }

    /// Takes what a block stands for, after its site has.
    pub(super) fn subtract(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A reader of what there was at the peak.
#[derive(Debug)]
pub(super) struct Reader {
    turn: usize,
    epoch: u64,
}

impl Reader {
    /// Begins to read the last peak. Readers of one peak read at once, one of another waits.
    pub(super) fn new() -> Self {
        loop {
            let reader = without_samples(|| {
                let mut in_use = lock();
                if in_use.readers > 0 && in_use.read != in_use.turn {
                    return None;
                }
                in_use.readers += 1;
                in_use.read = in_use.turn;
                Some(Self {
                    turn: in_use.turn,
                    epoch: in_use.epochs[in_use.turn],
                })
            });
            match reader {
                Some(reader) => return reader,
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// What a site had then that has this now.
    pub(super) fn at_peak(&self, kept: &Kept, now: Blocks) -> Blocks {
        match kept.epochs[self.turn] == self.epoch {
            true => kept.blocks[self.turn],
            false => now,
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        without_samples(|| {
            let mut in_use = lock();
            in_use.readers = in_use.readers.saturating_sub(1);
        });
    }
}

/// Begins to watch for these bounds, from now on.
pub(super) fn begin_watch(watch: &Watch, bounds: Bounds) {
    without_samples(|| {
        let in_use = lock();
        watch.begin(bounds, in_use.allocated, in_use.bytes);
    });
}

/// Goes on to watch after a file is written.
pub(super) fn end_file(watch: &Watch) {
    without_samples(|| {
        let in_use = lock();
        watch.end_file(in_use.allocated, in_use.bytes);
    });
}

/// Watches for none any more.
pub(super) fn end_watch(watch: &Watch) {
    without_samples(|| {
        let _in_use = lock();
        watch.end();
    });
}

/// Goes on in a forked child, where nobody reads.
pub(super) fn begin_in_child() {
    lock().readers = 0;
}

/// The mutex, which a fork holds.
pub(super) fn mutex() -> &'static dyn Held {
    &IN_USE
}
