//! Interned call chains and their summed weights.

use super::sums::Sums;
#[cfg(feature = "http")]
use super::sums::Thinning;
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

/// Call chains, and what samples of them sum up to: in all, and in windows.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    /// Each slice is a layout's number with how the stack ended in the upper half, and then the
    /// addresses of its frames, leaf first.
    chains: SliceTable<u64>,
    all: Sums,
    /// Windows that are open, by number.
    #[cfg(feature = "http")]
    windows: Vec<(u32, Sums)>,
    /// A chain with its layout in front, reused.
    scratch: Vec<u64>,
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
        self.each(Sums::count_record);
        chain
    }

    /// Adds to a chain that is known.
    pub(crate) fn add_again(&mut self, chain: u32, tag: Tag, weight: Weight) {
        self.each(|sums| sums.add(chain, tag, weight));
    }

    fn each(&mut self, work: impl Fn(&mut Sums)) {
        work(&mut self.all);
        #[cfg(feature = "http")]
        for (_, sums) in &mut self.windows {
            work(sums);
        }
    }

    /// Everything so far.
    pub(crate) fn all(&self) -> &Sums {
        &self.all
    }

    /// From here on ticks are summed up for the window, too: all, or those that count.
    #[cfg(feature = "http")]
    pub(crate) fn open_window(&mut self, window: u32, thinning: Option<Thinning>) {
        self.windows.push((window, Sums::thinned(thinning)));
    }

    /// What was added since the window was opened.
    #[cfg(feature = "http")]
    pub(crate) fn close_window(&mut self, window: u32) -> Option<Sums> {
        let place = self.windows.iter().position(|&(open, _)| open == window)?;
        Some(self.windows.swap_remove(place).1)
    }

    /// How many distinct call chains there are.
    pub(crate) fn len(&self) -> usize {
        self.chains.len()
    }

    /// The call chain of a number.
    pub(super) fn chain(&self, chain: u32) -> Stack<'_> {
        let chain = self.chains.get(chain);
        let (&first, frames) = chain.split_first().unwrap_or((&0, &[]));
        Stack {
            layout: first as u32,
            ended: StopReason::from_u8((first >> 32) as u8),
            frames,
        }
    }

    /// Bytes that the table takes.
    pub(crate) fn size_bytes(&self) -> usize {
        let bytes = self.chains.size_bytes() + self.all.size_bytes();
        #[cfg(feature = "http")]
        let bytes = (self.windows.iter()).fold(bytes, |sum, (_, sums)| sum + sums.size_bytes());
        bytes
    }
}
