//! Everything that a recording counts, at a moment or between two.
#![forbid(unsafe_code)]

use std::time::Duration;

use hashbrown::HashMap;

use super::Collector;
use super::moment::at_once;
use crate::aggregate::Unseen;
use crate::cpu::stats::{Lost, WallTime};
use crate::cpu::threads::Account;
use crate::cpu::wall::Wall;
#[cfg(feature = "http")]
use crate::cpu::wall::unsampled_and_workers;
use crate::unwind::StopReason;

/// Counts since the start of a recording, or since an earlier moment of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) elapsed: Duration,
    /// The process's CPU time, with that of the profiler's thread.
    pub(super) process_ns: u64,
    /// That of the profiler's thread.
    pub(super) own_ns: u64,
    /// Ticks that were written to lanes.
    pub(super) written: u64,
    pub(super) lost: Lost,
    /// Ticks that the program sent, whatever became of them.
    pub(super) sent_elsewhere: u64,
    pub(super) foreign: u64,
    /// System calls that a tick interrupted and that began again.
    pub(super) restarted: u64,
    /// Those that returned `EINTR`.
    pub(super) interrupted: u64,
    /// Periods of the clocks in stacks, without what the program sent.
    pub(super) ticks: u64,
    /// Ticks that the program sent, in stacks.
    pub(super) sent: u64,
    pub(super) truncated: [u64; StopReason::ALL.len()],
    /// The threads, by serial number.
    pub(super) accounts: HashMap<u32, Account>,
    /// All other threads.
    pub(super) others: Account,
    /// Of elapsed time, where that is recorded.
    pub(super) wall: Option<(Vec<Unseen>, WallTime)>,
}

impl Collector {
    /// All counts so far.
    pub(super) fn totals(&self) -> Totals {
        if let Some(totals) = &self.final_totals {
            return totals.clone();
        }
        let recorder = self.recorder;
        let (now, (process_ns, own_ns)) = at_once(|| self.cpu_now());
        let (accounts, others) = self.threads.accounts();
        Totals {
            elapsed: self.duration_to(now),
            process_ns,
            own_ns,
            written: recorder.sum(|c| &c.written),
            lost: Lost {
                no_lane: recorder.sum(|c| &c.no_lane),
                lane_full: recorder.sum(|c| &c.lane_full),
                filtered: recorder.sum(|c| &c.filtered)
                    + self.wall.as_ref().map_or(0, Wall::filtered),
            },
            sent_elsewhere: recorder.sum(|c| &c.sent).saturating_sub(self.sent),
            foreign: recorder.sum(|c| &c.foreign),
            restarted: recorder.sum(|c| &c.restarted),
            interrupted: recorder.sum(|c| &c.interrupted),
            ticks: self.ticks,
            sent: self.sent,
            truncated: self.truncated,
            accounts: accounts.collect(),
            others,
            wall: self.wall.as_ref().map(|wall| {
                let unseen = wall.unseen();
                let time = wall.time(&unseen);
                (unseen, time)
            }),
        }
    }
}

#[cfg(feature = "http")]
impl Totals {
    /// What was counted since `earlier`, a moment of the same recording.
    pub(super) fn since(mut self, earlier: &Self) -> Self {
        // What is kept of a thread that is forgotten is among the others'.
        let mut others = earlier.others;
        for (serial, account) in &earlier.accounts {
            match self.accounts.get_mut(serial) {
                Some(now) => *now = now.since(account),
                None => {
                    others.unarmed_ns += account.unarmed_ns;
                    others.lost += account.lost;
                }
            }
        }
        self.others = self.others.since(&others);
        if let (Some((unseen, time)), Some((earlier, earlier_time))) =
            (&mut self.wall, &earlier.wall)
        {
            for unseen in &mut *unseen {
                let before = earlier.iter().find(|before| before.thread == unseen.thread);
                let before = before.map(|before| before.weight).unwrap_or_default();
                unseen.weight.count = unseen.weight.count.saturating_sub(before.count);
                unseen.weight.ns = unseen.weight.ns.saturating_sub(before.ns);
            }
            unseen.retain(|unseen| unseen.weight.ns > 0);
            time.in_stacks = time.in_stacks.saturating_sub(earlier_time.in_stacks);
            (time.unsampled, time.kernel_workers) = unsampled_and_workers(unseen);
            time.filtered = time.filtered.saturating_sub(earlier_time.filtered);
            time.looks -= earlier_time.looks;
            time.looks_at_waiting -= earlier_time.looks_at_waiting;
        }
        self.elapsed = self.elapsed.saturating_sub(earlier.elapsed);
        self.process_ns = self.process_ns.saturating_sub(earlier.process_ns);
        self.own_ns = self.own_ns.saturating_sub(earlier.own_ns);
        self.written -= earlier.written;
        self.lost.no_lane -= earlier.lost.no_lane;
        self.lost.lane_full -= earlier.lost.lane_full;
        self.lost.filtered -= earlier.lost.filtered;
        // Of those on their way there were some then, and are others now.
        self.sent_elsewhere = self.sent_elsewhere.saturating_sub(earlier.sent_elsewhere);
        self.foreign -= earlier.foreign;
        self.restarted -= earlier.restarted;
        self.interrupted -= earlier.interrupted;
        self.ticks -= earlier.ticks;
        self.sent -= earlier.sent;
        for (now, before) in self.truncated.iter_mut().zip(earlier.truncated) {
            *now -= before;
        }
        self
    }
}
