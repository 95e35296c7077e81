//! What a gmon.out file holds.

use super::dimension::Dimension;
use super::histogram::Histogram;

/// The records of a file; those of one kind are one, as gprof takes them.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) dimension: Dimension,
    pub(super) histograms: Vec<Histogram>,
    pub(super) arcs: Vec<Arc>,
    /// `None` where the file has no record of them.
    pub(super) blocks: Option<Vec<Block>>,
}

/// Calls of a function from one place.
#[derive(Clone, Copy, Debug)]
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
