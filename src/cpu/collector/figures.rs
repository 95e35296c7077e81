//! What a collector says: the profile, and the figures.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::Collector;
use crate::aggregate::{Labels, Recorded, ThreadLabels, build};
use crate::cpu::audit::{Audit, Books};
use crate::cpu::engine::Engine;
use crate::cpu::stats::{Fallback, Lost, Stats, Truncated};
use crate::cpu::wall::Wall;
use crate::profile::Profile;
use crate::sys::clock::Clock;
use crate::unwind::StopReason;

impl Collector {
    /// The profile so far: addresses, not names.
    pub(in crate::cpu) fn profile(&mut self) -> Profile {
        if self.stopped_after.is_none() {
            self.drain();
            self.threads.hear();
            self.threads.refresh();
            if let Some(wall) = &mut self.wall {
                wall.account(&mut self.table);
            }
        }
        let audit = self.audit();
        let recorded = Recorded {
            time: match self.wall {
                Some(_) => "wall",
                None => "cpu",
            },
            period_ns: self.rate.period_ns(),
            start_realtime_ns: self.start_realtime_ns,
            duration_ns: self.duration().as_nanos() as u64,
            comments: self.stats_with(&audit).comments(),
            worth: self.worth(&audit),
        };
        build(&self.table, &self.layouts, self, &audit.unseen, recorded)
    }

    /// What became of the process's CPU time so far.
    fn audit(&self) -> Audit {
        if let Some(wall) = &self.wall {
            return Audit {
                unseen: wall.unseen(),
                ..Audit::default()
            };
        }
        let lost = self.lost();
        // Of what was lost, the clocks' part is what the program's part leaves.
        let sent_elsewhere = self.recorder.sum(|c| &c.sent).saturating_sub(self.sent);
        let without_stack = lost.no_lane + lost.lane_full;
        let lost_sent = sent_elsewhere.min(without_stack);
        let (process_ns, own_ns) = self.cpu_now();
        let books = Books {
            period_ns: self.rate.period_ns(),
            cpu_ns: match self.engine {
                // It ticks for the profiler's thread, too, on whichever thread the signal falls.
                Engine::ProcessTimer => process_ns,
                _ => process_ns.saturating_sub(own_ns),
            },
            ticks: self.ticks,
            lost: without_stack - lost_sent,
            filtered: lost.filtered.saturating_sub(sent_elsewhere - lost_sent),
            is_by_thread: self.is_by_thread,
            is_user_only: self.is_user_only,
        };
        let (accounts, others) = self.threads.accounts();
        Audit::of(books, accounts, others)
    }

    /// What the time in the table is to be multiplied by. Ticks that the program sent are in it,
    /// too.
    fn worth(&self, audit: &Audit) -> (u64, u64) {
        if self.wall.is_some() {
            return (1, 1);
        }
        let (part_ns, whole_ns) = audit.worth;
        let sent_ns = self.sent * self.rate.period_ns();
        (part_ns + sent_ns, whole_ns + sent_ns)
    }

    fn lost(&self) -> Lost {
        Lost {
            no_lane: self.recorder.sum(|c| &c.no_lane),
            lane_full: self.recorder.sum(|c| &c.lane_full),
            filtered: self.recorder.sum(|c| &c.filtered)
                + self.wall.as_ref().map_or(0, Wall::filtered),
        }
    }

    /// CPU time since the start: the process's, and that of the profiler's thread, which is part of
    /// it.
    pub(super) fn cpu_now(&self) -> (u64, u64) {
        if let Some(cpu) = self.final_cpu {
            return cpu;
        }
        let own = self.threads.own().map(Clock::thread_cpu);
        let own_ns = own.and_then(|clock| clock.now_ns().ok()).unwrap_or(0);
        let process_ns = Clock::PROCESS_CPU.now_ns().unwrap_or(0);
        (process_ns.saturating_sub(self.process_cpu_ns), own_ns)
    }

    fn duration(&self) -> Duration {
        self.stopped_after.unwrap_or_else(|| self.started.elapsed())
    }

    pub(in crate::cpu) fn stats(&self) -> Stats {
        if let Some(stats) = &self.final_stats {
            return stats.clone();
        }
        self.stats_with(&self.audit())
    }

    fn stats_with(&self, audit: &Audit) -> Stats {
        if let Some(stats) = &self.final_stats {
            return stats.clone();
        }
        let lost = self.lost();
        let counts = self.table.counts();
        // By elapsed time nothing is delivered that is not in the table: most of it no signal
        // brought.
        let written = match self.wall {
            Some(_) => counts.weight,
            None => self.recorder.sum(|c| &c.written),
        };
        let truncated = |reason: StopReason| self.truncated[reason as usize];
        Stats {
            engine: self.engine,
            frequency_hz: self.rate.frequency_hz,
            effective_hz: self.rate.effective_hz(),
            duration: self.duration(),
            ticks: written + lost.total(),
            samples: counts.weight,
            records: counts.records,
            distinct_stacks: self.table.len() as u64,
            lost,
            truncated: Truncated {
                depth: truncated(StopReason::Depth),
                no_unwind_data: truncated(StopReason::NoUnwindData),
                unreadable: truncated(StopReason::Unreadable),
                not_advancing: truncated(StopReason::NotAdvancing),
            },
            foreign_signals: self.recorder.sum(|c| &c.foreign),
            threads_armed: self.threads.armed(),
            threads_hooked: self.threads.is_hooked(),
            threads_by_perf: self.threads.armed_by_perf(),
            threads_refused: self.threads.refused(),
            fallbacks: self.threads.refusals().map(Fallback::of).collect(),
            threads_blocking: self.threads.blocking(),
            cpu: audit.into(),
            wall: self.wall.as_ref().map(|wall| wall.time(&audit.unseen)),
            handler_replaced: self.handler_replaced || self.quiet_signal_is_lost,
            sent: self.sent,
            own_cpu: Duration::from_nanos(self.cpu_now().1),
            own_memory_bytes: (self.recorder.size_bytes()
                + self.table.size_bytes()
                + self.threads.size_bytes()
                + self.wall.as_ref().map_or(0, Wall::size_bytes)
                + self.snapshot_bytes) as u64,
        }
    }
}

impl Labels for Collector {
    fn of_thread(&self, serial: u32) -> Option<ThreadLabels> {
        self.threads.labels(serial)
    }

    fn of_set(&self, number: u32) -> &[(String, String)] {
        self.labels.get(number)
    }
}
