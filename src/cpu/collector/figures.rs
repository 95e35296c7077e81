//! What a collector says: the profile, and the figures.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::Collector;
use super::totals::Totals;
use crate::aggregate::{Labels, Recorded, Sums, ThreadLabels, build};
use crate::cpu::audit::{Audit, Books};
use crate::cpu::engine::Engine;
use crate::cpu::stats::{Fallback, Stats, Truncated};
use crate::cpu::wall::Wall;
use crate::profile::Profile;
use crate::sys::clock::Clock;
use crate::unwind::StopReason;

/// A stretch of a recording: the whole of it so far, or a window.
#[derive(Debug)]
pub(super) struct Stretch<'s> {
    pub(super) is_whole: bool,
    /// Its samples.
    pub(super) sums: &'s Sums,
    /// What was counted in it.
    pub(super) totals: Totals,
    /// Nanoseconds since the Unix epoch.
    pub(super) start_realtime_ns: u64,
    pub(super) frequency_hz: u32,
}

impl Collector {
    /// The profile so far: addresses, not names.
    pub(in crate::cpu) fn profile(&mut self) -> Profile {
        self.catch_up();
        self.profile_of(&self.whole())
    }

    /// Counts what there is to be counted up to now.
    pub(super) fn catch_up(&mut self) {
        if self.stopped_after.is_some() {
            return;
        }
        self.drain();
        self.threads.hear();
        self.count_threads();
        if let Some(wall) = &mut self.wall {
            wall.account(&mut self.table);
        }
    }

    /// Reads the clocks of all threads, those that began after the last turn among them.
    pub(super) fn count_threads(&mut self) {
        // A scan that fails leaves what is known as it is.
        let _ = self.threads.scan();
        self.threads.refresh();
    }

    /// All of the recording so far.
    fn whole(&self) -> Stretch<'_> {
        Stretch {
            is_whole: true,
            sums: self.table.all(),
            totals: self.totals(),
            start_realtime_ns: self.start.realtime_ns,
            frequency_hz: self.rate.frequency_hz,
        }
    }

    pub(super) fn profile_of(&self, stretch: &Stretch<'_>) -> Profile {
        let audit = self.audit(stretch);
        let recorded = Recorded {
            time: match self.wall {
                Some(_) => "wall",
                None => "cpu",
            },
            period_ns: self.period_ns(stretch),
            start_realtime_ns: stretch.start_realtime_ns,
            duration_ns: stretch.totals.elapsed.as_nanos() as u64,
            comments: self.stats_of(stretch, &audit).comments(),
            worth: self.worth(stretch, &audit),
        };
        build(
            &self.table,
            stretch.sums,
            self.publisher.layouts(),
            self,
            &audit.unseen,
            recorded,
        )
    }

    /// Between two ticks that count in a stretch.
    fn period_ns(&self, stretch: &Stretch<'_>) -> u64 {
        stretch.sums.period_ns(self.rate.period_ns())
    }

    /// What became of the process's CPU time in a stretch.
    fn audit(&self, stretch: &Stretch<'_>) -> Audit {
        let Stretch { sums, totals, .. } = stretch;
        if let Some((unseen, _)) = &totals.wall {
            return Audit {
                unseen: unseen.clone(),
                ..Audit::default()
            };
        }
        let lost = totals.lost;
        // Of what was lost, the clocks' part is what the program's part leaves.
        let sent_elsewhere = totals.sent_elsewhere;
        let without_stack = lost.no_lane + lost.lane_full;
        let lost_sent = sent_elsewhere.min(without_stack);
        let books = Books {
            period_ns: self.period_ns(stretch),
            cpu_ns: match self.engine {
                // It ticks for the profiler's thread, too, on whichever thread the signal falls.
                Engine::ProcessTimer => totals.process_ns,
                _ => totals.process_ns.saturating_sub(totals.own_ns),
            },
            ticks: match sums.is_thinned() {
                false => totals.ticks,
                true => (sums.counts().weight).saturating_sub(sums.counting(totals.sent)),
            },
            lost: sums.counting(without_stack - lost_sent),
            filtered: sums.counting(lost.filtered.saturating_sub(sent_elsewhere - lost_sent)),
            is_by_thread: self.is_by_thread,
            is_user_only: self.is_user_only,
        };
        let accounts = totals.accounts.iter().map(|(&serial, &account)| {
            let mut account = account;
            if sums.is_thinned() {
                account.ticks = sums.ticks_of(serial);
                account.lost = sums.counting(account.lost);
            }
            (serial, account)
        });
        Audit::of(books, accounts, totals.others)
    }

    /// What the time in the sums is to be multiplied by. Ticks that the program sent are in it,
    /// too.
    fn worth(&self, stretch: &Stretch<'_>, audit: &Audit) -> (u64, u64) {
        if self.wall.is_some() {
            return (1, 1);
        }
        let (part_ns, whole_ns) = audit.worth;
        let sent = stretch.sums.counting(stretch.totals.sent);
        let sent_ns = sent * self.period_ns(stretch);
        (part_ns + sent_ns, whole_ns + sent_ns)
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
        (process_ns.saturating_sub(self.start.process_cpu_ns), own_ns)
    }

    /// The part of the recording's time that is before `now`.
    pub(super) fn duration_to(&self, now: Instant) -> Duration {
        let elapsed = || now.saturating_duration_since(self.start.at);
        self.stopped_after.unwrap_or_else(elapsed)
    }

    pub(in crate::cpu) fn stats(&self) -> Stats {
        let whole = self.whole();
        self.stats_of(&whole, &self.audit(&whole))
    }

    fn stats_of(&self, stretch: &Stretch<'_>, audit: &Audit) -> Stats {
        if let Some(stats) = self.final_stats.as_ref().filter(|_| stretch.is_whole) {
            return stats.clone();
        }
        let Stretch { sums, totals, .. } = stretch;
        let counts = sums.counts();
        // By elapsed time nothing is delivered that is not in the table: most of it no signal
        // brought.
        let written = match totals.wall {
            Some(_) => counts.weight,
            // Some of what a window counts was in lanes already when the window was opened.
            None => totals.written.max(counts.weight),
        };
        let truncated = |reason: StopReason| totals.truncated[reason as usize];
        Stats {
            engine: self.engine,
            frequency_hz: stretch.frequency_hz,
            effective_hz: 1e9 / self.period_ns(stretch) as f64,
            duration: totals.elapsed,
            ticks: written + totals.lost.total(),
            samples: counts.weight,
            records: counts.records,
            distinct_stacks: match stretch.is_whole {
                true => self.table.len() as u64,
                false => sums.distinct_chains() as u64,
            },
            lost: totals.lost,
            truncated: Truncated {
                depth: truncated(StopReason::Depth),
                no_unwind_data: truncated(StopReason::NoUnwindData),
                unreadable: truncated(StopReason::Unreadable),
                not_advancing: truncated(StopReason::NotAdvancing),
            },
            foreign_signals: totals.foreign,
            calls_restarted: totals.restarted,
            calls_interrupted: totals.interrupted,
            threads_armed: self.threads.armed(),
            threads_hooked: self.threads.is_hooked(),
            threads_by_perf: self.threads.armed_by_perf(),
            threads_refused: self.threads.refused(),
            fallbacks: self.threads.refusals().map(Fallback::of).collect(),
            threads_blocking: self.threads.blocking(),
            cpu: audit.into(),
            wall: totals.wall.as_ref().map(|&(_, time)| time),
            handler_replaced: self.handler_replaced || self.quiet_signal_is_lost,
            sent: totals.sent,
            own_cpu: Duration::from_nanos(totals.own_ns),
            own_memory_bytes: (self.recorder.size_bytes()
                + self.table.size_bytes()
                + self.threads.size_bytes()
                + self.wall.as_ref().map_or(0, Wall::size_bytes)
                + self.publisher.size_bytes()) as u64,
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
