//! Interned call chains and their summed weights.

use hashbrown::HashMap;

use crate::profile::SliceTable;
use crate::unwind::StopReason;

/// What samples of one call chain are told apart by.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Tag {
    /// The thread's serial number.
    pub(crate) thread: u32,
    /// The number of the set of labels that the program gave it; 0 for none.
    pub(crate) labels: u32,
    /// What the thread did.
    pub(crate) state: State,
}

/// What a thread did when it was sampled.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum State {
    /// It ran, or the recording is of time on a CPU, where it goes without saying.
    #[default]
    Unsaid,
    /// It ran, or waited for a CPU.
    Running,
    /// It waited for something else.
    Waiting,
}

/// What the samples of a chain and a tag sum up to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Weight {
    /// Ticks, or looks.
    pub(crate) count: u64,
    /// Time.
    pub(crate) ns: u64,
}

/// A call chain as it was recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack<'f> {
    /// The layout that the addresses are of.
    pub(crate) layout: u32,
    /// How the stack ended.
    pub(crate) ended: StopReason,
    /// The addresses of its frames, leaf first.
    pub(crate) frames: &'f [u64],
}

/// Weights by call chain and tag.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    /// Each slice is a layout's number with how the stack ended in the upper half, and then the
    /// addresses of its frames, leaf first.
    chains: SliceTable<u64>,
    weights: HashMap<(u32, Tag), Weight>,
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
    /// Adds a sample. The answer is the chain's number, for [`add_again`](Self::add_again).
    pub(crate) fn add(&mut self, stack: Stack<'_>, tag: Tag, weight: Weight) -> u32 {
        self.scratch.clear();
        self.scratch
            .push(u64::from(stack.layout) | (stack.ended as u64) << 32);
        self.scratch.extend_from_slice(stack.frames);
        let chain = self.chains.intern(&self.scratch);
        self.add_again(chain, tag, weight);
        self.counts.records += 1;
        chain
    }

    /// Adds to a chain that is known.
    pub(crate) fn add_again(&mut self, chain: u32, tag: Tag, weight: Weight) {
        if weight == Weight::default() {
            return;
        }
        let sum = self.weights.entry((chain, tag)).or_default();
        sum.count += weight.count;
        sum.ns += weight.ns;
        self.counts.weight += weight.count;
    }

    /// Sums over everything so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// How many distinct call chains there are.
    pub(crate) fn len(&self) -> usize {
        self.chains.len()
    }

    /// The call chains by number.
    pub(super) fn chains(&self) -> impl ExactSizeIterator<Item = Stack<'_>> {
        self.chains.iter().map(|chain| {
            let (&first, frames) = chain.split_first().unwrap_or((&0, &[]));
            Stack {
                layout: first as u32,
                ended: StopReason::from_u8((first >> 32) as u8),
                frames,
            }
        })
    }

    /// Chain, tag and weight of everything that was added, in order of chains and tags.
    pub(super) fn weights(&self) -> Vec<(u32, Tag, Weight)> {
        let mut weights: Vec<_> = self
            .weights
            .iter()
            .map(|(&(chain, tag), &weight)| (chain, tag, weight))
            .collect();
        weights.sort_unstable_by_key(|&(chain, tag, _)| (chain, tag));
        weights
    }

    /// Bytes that the table takes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.chains.size_bytes() + self.weights.allocation_size()
    }
}
