//! Interned call chains and their summed weights.

use hashbrown::HashMap;

use crate::profile::SliceTable;

/// Weights by call chain and thread.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    /// Each slice is a layout's number and then the addresses of its frames, leaf first.
    chains: SliceTable<u64>,
    weights: HashMap<(u32, u32), u64>,
    counts: Counts,
    /// A chain with its layout in front, reused.
    scratch: Vec<u64>,
}

/// Sums over everything that was added.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    /// Records.
    pub(crate) records: u64,
    /// Their weights.
    pub(crate) weight: u64,
}

impl StackTable {
    /// Adds a sample of a thread: the addresses of its frames, leaf first, in the layout that they are of.
    pub(crate) fn add(&mut self, layout: u32, frames: &[u64], thread: u32, weight: u32) {
        self.scratch.clear();
        self.scratch.push(layout.into());
        self.scratch.extend_from_slice(frames);
        let chain = self.chains.intern(&self.scratch);
        *self.weights.entry((chain, thread)).or_default() += u64::from(weight);
        self.counts.records += 1;
        self.counts.weight += u64::from(weight);
    }

    /// Sums over everything so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// How many distinct call chains there are.
    pub(crate) fn len(&self) -> usize {
        self.chains.len()
    }

    /// The call chains by number: the layout and the frames of each.
    pub(super) fn chains(&self) -> impl ExactSizeIterator<Item = (u32, &[u64])> {
        self.chains.iter().map(|chain| match chain {
            [layout, frames @ ..] => (*layout as u32, frames),
            [] => (0, chain),
        })
    }

    /// Chain, thread and weight of everything that was added, in order of chains and threads.
    pub(super) fn weights(&self) -> Vec<(u32, u32, u64)> {
        let mut weights: Vec<_> = self
            .weights
            .iter()
            .map(|(&(chain, thread), &weight)| (chain, thread, weight))
            .collect();
        weights.sort_unstable();
        weights
    }

    /// Bytes that the table takes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.chains.size_bytes() + self.weights.allocation_size()
    }
}
