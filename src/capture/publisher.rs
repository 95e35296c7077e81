//! The snapshots of what is loaded: published as modules come and go, and freed when nobody reads
//! them any more.

use std::io;
use std::sync::atomic::Ordering;

use super::Capture;
use crate::aggregate::Layouts;
use crate::sys::maps::Maps;
use crate::sys::modules::{self, Generation};
use crate::unwind::Snapshot;

/// The one who publishes snapshots of a [`Capture`].
#[derive(Debug)]
pub(crate) struct Publisher {
    capture: &'static Capture,
    /// What the addresses of all chains so far are of.
    layouts: Layouts,
    generation: Generation,
    /// Snapshots that were replaced, with the last epoch they can be read in.
    retired: Vec<(Box<Snapshot>, u32)>,
    snapshot_bytes: usize,
}

impl Publisher {
    /// The only publisher, for as long as it lives. It has published nothing yet.
    pub(crate) fn new(capture: &'static Capture) -> Self {
        Self {
            capture,
            layouts: Layouts::default(),
            generation: Generation::now(),
            retired: Vec::new(),
            snapshot_bytes: 0,
        }
    }

    /// Publishes a snapshot of the modules and mappings as they are now, and answers what they
    /// were made of: the loader's counters, which were read before the maps.
    ///
    /// # Errors
    ///
    /// Where the maps cannot be read.
    pub(crate) fn publish(&mut self) -> io::Result<(Generation, Maps)> {
        let capture = self.capture;
        capture.is_stale.store(false, Ordering::Relaxed);
        let generation = Generation::now();
        let maps = Maps::read()?;
        let epoch = capture.snapshot.next_epoch();
        // SAFETY: only this publisher replaces snapshots, so the current one stays for as long as
        // it is looked at here.
        let last = unsafe { capture.snapshot.get() };
        let known = capture.rules.lock().clone();
        let loaded = modules::loaded(known.iter().map(|rules| rules.module()), &maps);
        self.layouts
            .observe(epoch, loaded.iter().map(|module| &module.object));
        let snapshot = Box::new(Snapshot::new(epoch, loaded, &maps, last, &known));
        *capture.rules.lock() = snapshot.modules().to_vec();
        self.snapshot_bytes = snapshot.size_bytes();
        // SAFETY: one caller, by `&mut self`; the old one is kept until `reclaim` finds its readers
        // gone.
        self.retired
            .extend(unsafe { capture.snapshot.replace(snapshot) });
        self.generation = generation;
        Ok((generation, maps))
    }

    /// Whether the last snapshot does not know something that a new one would.
    pub(crate) fn is_outdated(&self) -> bool {
        Generation::now() != self.generation || self.capture.is_stale.load(Ordering::Relaxed)
    }

    /// The counters of the loader that the last snapshot is of.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// What the addresses of all chains so far are of.
    pub(crate) fn layouts(&self) -> &Layouts {
        &self.layouts
    }

    /// The snapshot that is published.
    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        // SAFETY: only this publisher replaces snapshots.
        unsafe { self.capture.snapshot.get() }
    }

    /// Notes how large the snapshot is: it grows as tables are compiled.
    pub(crate) fn measure(&mut self) {
        self.snapshot_bytes = self.snapshot().map_or(0, Snapshot::size_bytes);
    }

    /// Bytes of the last snapshot.
    pub(crate) fn size_bytes(&self) -> usize {
        self.snapshot_bytes
    }

    /// Frees the snapshots that nobody reads any more.
    pub(crate) fn reclaim(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let oldest = self.capture.rack.oldest_epoch();
        self.retired
            .retain(|&(_, last_epoch)| oldest.is_some_and(|oldest| oldest <= last_epoch));
    }

    /// Frees all snapshots and gives the memory of lanes and benches back.
    ///
    /// # Safety
    ///
    /// Nobody holds a lane, or claims one and gets to read a snapshot.
    pub(crate) unsafe fn finish(&mut self) {
        self.retired.clear();
        self.snapshot_bytes = 0;
        // SAFETY: the caller's contract.
        unsafe {
            drop(self.capture.snapshot.take());
            self.capture.release_memory();
        }
    }

    /// Leaves the snapshots to those who do not let go of them.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.retired));
    }
}
