//! How long a sampled block lived, and whether it was temporary.
#![forbid(unsafe_code)]

use super::countdown::{self, Position};
use super::sites::{Blocks, class};
use crate::sys::clock::Clock;

/// A block that lived no longer is temporary, whoever frees it.
const TEMPORARY_NS: u64 = 1_000_000;

/// When a block was allocated. Packed, since each block of the live set has one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(Rust, packed(4))]
pub(super) struct Birth {
    time_ns: u64,
    /// Where the thread was that allocated the block.
    position: Position,
}

impl Birth {
    /// That of a block which the calling thread has just allocated, at this time by the monotonic
    /// clock.
    pub(super) fn at(time_ns: u64) -> Self {
        Self {
            time_ns,
            position: countdown::position(),
        }
    }

    /// The lifetime of a block of this size that the calling thread frees.
    ///
    /// A block is temporary whose thread frees it before the thread has allocated as many bytes
    /// again, and so before its next allocation of that size.
    pub(super) fn lifetime(self, size: u64) -> Lifetime {
        let now = Clock::MONOTONIC.now_ns().unwrap_or(0);
        let ns = now.saturating_sub(self.time_ns);
        let bytes = countdown::position().bytes_since(self.position);
        Lifetime {
            ns,
            is_temporary: ns <= TEMPORARY_NS || bytes.is_some_and(|bytes| bytes < class(size)),
        }
    }
}

/// The lifetime of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    ns: u64,
    is_temporary: bool,
}

impl Lifetime {
    /// The class of the lifetime: those of one class differ by less than a factor of 2.
    pub(super) fn class(self) -> u8 {
        self.ns.max(1).ilog2() as u8
    }
}

/// Sampled blocks of one site that are freed, and lived about as long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Freed {
    pub(super) all: Blocks,
    pub(super) temporary: Blocks,
    /// The sum of their lifetimes.
    pub(super) ns: u64,
}

impl Freed {
    /// Counts a block.
    pub(super) fn add(&mut self, size: u64, lifetime: Lifetime) {
        self.all.add(size);
        if lifetime.is_temporary {
            self.temporary.add(size);
        }
        self.ns = self.ns.saturating_add(lifetime.ns);
    }
}
