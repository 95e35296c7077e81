//! What a gmon.out file holds.

use super::dimension::Dimension;
use super::histogram::Histogram;
use crate::format::cursor::Layout;

/// The records of a file; those of one kind are one, as gprof takes them.
#[derive(Debug)]
pub(super) struct Records<A = Vec<Arc>> {
    /// How the file stores numbers: as the machine does that the program ran on.
    pub(super) layout: Layout,
    pub(super) dimension: Dimension,
    pub(super) histograms: Vec<Histogram>,
    pub(super) arcs: A,
    /// `None` where the file has no record of them.
    pub(super) blocks: Option<Vec<Block>>,
}

/// Calls of a function from one place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arc {
    /// In the caller.
    pub(super) from: u64,
    /// In the callee.
    pub(super) to: u64,
    pub(super) count: u64,
}

/// How often a basic block was met.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) count: u64,
}

/// Arcs, some after the others.
pub(super) trait Arcs {
    /// No arc counts more than this.
    fn most(&self) -> u64;

    /// Hands all arcs to `f`, some at a time, until that fails.
    fn try_for_each<E>(&self, f: impl FnMut(&[Arc]) -> Result<(), E>) -> Result<(), E>;
}

impl Arcs for Vec<Arc> {
    fn most(&self) -> u64 {
        self.iter().map(|arc| arc.count).max().unwrap_or(0)
    }

    fn try_for_each<E>(&self, f: impl FnMut(&[Arc]) -> Result<(), E>) -> Result<(), E> {
        self.chunks(1 << 12).try_for_each(f)
    }
}
