//! Windows of a recording: what is counted between two moments of it.
#![forbid(unsafe_code)]

use super::figures::Stretch;
use super::totals::Totals;
use super::{Collector, Moment};
use crate::aggregate::Thinning;
use crate::cpu::engine::Rate;
use crate::profile::Profile;

/// What had been counted when a window was opened.
#[derive(Debug)]
pub(super) struct Mark {
    window: u32,
    totals: Totals,
    frequency_hz: u32,
}

/// What a window has of one recording.
#[derive(Debug)]
pub(in crate::cpu) struct Part {
    /// Addresses, not names.
    pub(in crate::cpu) profile: Profile,
    pub(in crate::cpu) from: Moment,
    pub(in crate::cpu) to: Moment,
}

impl Collector {
    /// Counts for a window from here on, at the rate that it asks for or, where the recording's is
    /// lower, at that.
    pub(in crate::cpu) fn open_window(&mut self, window: u32, rate: Rate) {
        self.catch_up();
        self.count_for(window, rate, self.totals());
    }

    /// Counts for a window from the start on, before anything has been counted.
    pub(in crate::cpu) fn open_window_at_start(&mut self, window: u32, rate: Rate) {
        self.count_for(window, rate, Totals::default());
    }

    fn count_for(&mut self, window: u32, rate: Rate, totals: Totals) {
        let thinning = match self.wall {
            // The time of a look is not known before the next.
            Some(_) => None,
            None => Thinning::new(self.rate.period_ns(), rate.period_ns()),
        };
        self.windows.push(Mark {
            window,
            totals,
            frequency_hz: rate.frequency_hz,
        });
        self.table.open_window(window, thinning);
    }

    /// What was counted since the window was opened.
    pub(in crate::cpu) fn close_window(&mut self, window: u32) -> Option<Part> {
        self.catch_up();
        let sums = self.table.close_window(window)?;
        let place = self.windows.iter().position(|mark| mark.window == window)?;
        let mark = self.windows.swap_remove(place);
        let totals = self.totals();
        let moment = |totals: &Totals| self.start.later(totals.elapsed, totals.process_ns);
        let (from, to) = (moment(&mark.totals), moment(&totals));
        let profile = self.profile_of(&Stretch {
            is_whole: false,
            sums: &sums,
            totals: totals.since(&mark.totals),
            start_realtime_ns: from.realtime_ns,
            frequency_hz: mark.frequency_hz,
        });
        Some(Part { profile, from, to })
    }

    /// Bytes that what was sampled takes.
    pub(in crate::cpu) fn table_bytes(&self) -> usize {
        self.table.size_bytes()
    }
}
