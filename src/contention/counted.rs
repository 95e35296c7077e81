//! What was counted, by stack; and since when.
#![forbid(unsafe_code)]

use hashbrown::HashMap;

use super::sampling::Waits;
use crate::ring::Role;
use crate::sys::clock::Clock;

/// Counts of waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// By [`Role`], and the number of the stack.
    waits: [HashMap<u32, Waits>; 2],
    /// Those that are in no stack, by [`Role`].
    lost: [Waits; 2],
}

impl Counted {
    pub(super) fn add(&mut self, role: Role, stack: u32, waits: Waits) {
        let sum = self.waits[role as usize].entry(stack).or_default();
        *sum = sum.plus(waits);
    }

    pub(super) fn add_lost(&mut self, role: Role, waits: Waits) {
        let sum = &mut self.lost[role as usize];
        *sum = sum.plus(waits);
    }

    /// The waits of a stack.
    pub(super) fn waits(&self, role: Role, stack: u32) -> Waits {
        let waits = self.waits[role as usize].get(&stack);
        waits.copied().unwrap_or_default()
    }

    /// Those that are in no stack.
    pub(super) fn lost(&self, role: Role) -> Waits {
        self.lost[role as usize]
    }
}

/// The beginning of a span of time: what had been counted by then.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(super) counted: Counted,
    /// By the realtime clock.
    pub(super) time_nanos: i64,
    monotonic_ns: u64,
}

impl Mark {
    /// This moment, with what was counted so far.
    pub(super) fn new(counted: Counted) -> Self {
        Self {
            counted,
            time_nanos: Clock::REALTIME.now_ns().unwrap_or(0) as i64,
            monotonic_ns: Clock::MONOTONIC.now_ns().unwrap_or(0),
        }
    }

    /// Nanoseconds from then to now.
    pub(super) fn age_ns(&self) -> u64 {
        let now = Clock::MONOTONIC.now_ns().unwrap_or(0);
        now.saturating_sub(self.monotonic_ns)
    }
}
