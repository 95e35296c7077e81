//! CPU time of one thread: what its clock says, and what was sampled of it.
#![forbid(unsafe_code)]

/// CPU time of a thread, by its clock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::cpu) struct Account {
    /// Before it was armed, and while it could not be.
    pub(in crate::cpu) unarmed_ns: u64,
    /// On its clock when it was armed.
    pub(super) armed_at_ns: u64,
    /// On its clock when it was last looked at.
    pub(super) seen_at_ns: u64,
    /// Periods in its samples.
    pub(in crate::cpu) ticks: u64,
    /// Periods whose samples were lost.
    pub(in crate::cpu) lost: u64,
    /// It has no clock of its own.
    pub(super) is_unarmed: bool,
}

impl Account {
    /// CPU time since it was armed, as far as its clock was read.
    pub(in crate::cpu) fn armed_ns(&self) -> u64 {
        match self.is_unarmed {
            true => 0,
            false => self.seen_at_ns.saturating_sub(self.armed_at_ns),
        }
    }

    #[cfg(test)]
    pub(in crate::cpu) fn armed_from_zero(
        armed_ns: u64,
        unarmed_ns: u64,
        ticks: u64,
        lost: u64,
    ) -> Self {
        Self {
            seen_at_ns: armed_ns,
            unarmed_ns,
            ticks,
            lost,
            ..Self::default()
        }
    }

    pub(super) fn see(&mut self, cpu_ns: u64) {
        if self.is_unarmed {
            self.unarmed_ns += cpu_ns.saturating_sub(self.seen_at_ns);
        }
        self.seen_at_ns = self.seen_at_ns.max(cpu_ns);
    }
}
