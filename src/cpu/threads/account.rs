//! CPU time of one thread: what its clock says, and what was sampled of it.
#![forbid(unsafe_code)]

use crate::sys::thread::Worker;

/// CPU time of a thread, by its clock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::cpu) struct Account {
    /// Before it was armed, and while it could not be.
    pub(in crate::cpu) unarmed_ns: u64,
    /// While it was armed.
    pub(in crate::cpu) armed_ns: u64,
    /// On its clock when it was last looked at.
    pub(super) seen_at_ns: u64,
    /// Periods in its samples.
    pub(in crate::cpu) ticks: u64,
    /// Periods whose samples were lost.
    pub(in crate::cpu) lost: u64,
    /// It has no clock of its own.
    pub(super) is_unarmed: bool,
    /// It is one of the kernel's own, which get no clocks: all of its time is known by this.
    pub(in crate::cpu) worker: Option<Worker>,
}

impl Account {
    /// Of a thread that is armed when its clock says `cpu_ns`, of which the recording has seen
    /// `unarmed_ns`.
    pub(super) fn begin(cpu_ns: u64, unarmed_ns: u64) -> Self {
        Self {
            unarmed_ns,
            seen_at_ns: cpu_ns,
            ..Self::default()
        }
    }

    /// CPU time while it was recorded.
    pub(in crate::cpu) fn total_ns(&self) -> u64 {
        self.unarmed_ns + self.armed_ns
    }

    #[cfg(test)]
    pub(in crate::cpu) fn armed_from_zero(
        armed_ns: u64,
        unarmed_ns: u64,
        ticks: u64,
        lost: u64,
    ) -> Self {
        Self {
            armed_ns,
            unarmed_ns,
            ticks,
            lost,
            ..Self::default()
        }
    }

    /// Adds what the thread has used since it was last looked at.
    pub(super) fn see(&mut self, cpu_ns: u64) {
        let used_ns = cpu_ns.saturating_sub(self.seen_at_ns);
        match self.is_unarmed {
            true => self.unarmed_ns += used_ns,
            false => self.armed_ns += used_ns,
        }
        self.seen_at_ns += used_ns;
    }

    /// What was added since `earlier`, which is of the same thread.
    #[cfg(feature = "http")]
    pub(in crate::cpu) fn since(&self, earlier: &Self) -> Self {
        Self {
            unarmed_ns: self.unarmed_ns.saturating_sub(earlier.unarmed_ns),
            armed_ns: self.armed_ns.saturating_sub(earlier.armed_ns),
            ticks: self.ticks.saturating_sub(earlier.ticks),
            lost: self.lost.saturating_sub(earlier.lost),
            ..*self
        }
    }
}
