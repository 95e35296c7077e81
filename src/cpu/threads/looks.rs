//! Threads that are known are looked at again: names change, ids can be other threads' by now, and
//! clocks can be gone.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::{Live, Threads};
use crate::cpu::arming::{Choice, Refusal, ThreadClock};
use crate::cpu::births;
use crate::sys::clock::Clock;
use crate::sys::perf_event::go_on;
use crate::sys::thread::{current_tid, identity};

/// Known threads that are looked at again in [`LOOKS_ARE_FOR`], for their names and whether they
/// are still the same, at 11 µs each: enough to see 400 threads a second, and with more threads
/// each of them less often.
const LOOKS: usize = 4;
/// With many threads the looks grow, to this: 1.8 % of a CPU.
const MOST_LOOKS: usize = 16;
const LOOKS_ARE_FOR: Duration = Duration::from_millis(10);
/// Threads whose name nobody has read yet have precedence.
const FIRST_LOOKS_PER_SCAN: usize = 1024;

/// When a new thread is looked at again: it often names itself only after it has begun.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(5);
/// The longest time between two looks at a thread, where there are not more than a hundred.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// CPU time without a tick after which a thread is told of that blocks the signal, and the event of
/// one that does not is made to go on. Threads that end block the signal, too, but for less.
const SILENT_FOR_NS: u64 = 20_000_000;

impl Threads {
    /// Looks again at a few threads that are due: names change, and an id can be another thread's
    /// by now.
    pub(super) fn look_again(&mut self) {
        let now = Instant::now();
        let since = now.saturating_duration_since(self.last_looks);
        let times = (since.as_nanos() / LOOKS_ARE_FOR.as_nanos()).clamp(1, 10) as usize;
        self.last_looks = now;
        let looks = (self.live.len() / 100).clamp(LOOKS, MOST_LOOKS) * times;
        let mut due: Vec<(bool, Instant, i32)> = self
            .live
            .iter()
            .filter(|(_, live)| live.next_look <= now)
            .map(|(&tid, live)| (live.start_time.is_some(), live.next_look, tid))
            .collect();
        // Those without a name, and those that have waited longest, so that each has its turn.
        due.sort_unstable();
        let nameless = due.partition_point(|(is_named, ..)| !is_named);
        let looks = looks.max(nameless.min(FIRST_LOOKS_PER_SCAN));
        for (_, _, tid) in due.into_iter().take(looks) {
            self.look_at(tid);
        }
    }

    fn look_at(&mut self, tid: i32) {
        // With many threads each is looked at less often, so that all of them together are not
        // looked at more often.
        let last_look = LAST_LOOK.max(Duration::from_millis(10) * self.live.len() as u32);
        let (Some(live), Some(seen)) = (self.live.get_mut(&tid), identity(tid)) else {
            return;
        };
        if live
            .start_time
            .is_some_and(|start| start != seen.start_time)
        {
            self.retire(tid, None, Instant::now());
            self.discover(tid, None);
            return;
        }
        if seen.has_ended {
            // It did not say so, and stays listed for as long as the process lives.
            let cpu_ns = Clock::thread_cpu(tid).now_ns().ok();
            self.retire(tid, cpu_ns, Instant::now());
            self.leaving.extend(cpu_ns.map(|cpu_ns| (tid, cpu_ns)));
            return;
        }
        live.start_time = Some(seen.start_time);
        live.next_look = Instant::now() + live.look_after;
        live.look_after = (live.look_after * 4).min(last_look);
        if let (None, Some(worker)) = (live.worker, seen.worker) {
            self.leave_to_kernel(tid, worker);
        }
        let Some(live) = self.live.get_mut(&tid) else {
            return;
        };
        let Some(thread) = self.known.get_mut(&live.serial) else {
            return;
        };
        if let Ok(cpu_ns) = Clock::thread_cpu(tid).now_ns() {
            thread.account.see(cpu_ns);
            // CPU time without a tick, and the signal blocked: the one explains the other.
            let (ticks, cpu_before_ns) = live.last_look;
            let used_ns = cpu_ns.saturating_sub(cpu_before_ns);
            let signal = match live.clock {
                Some(ThreadClock::PerfEvent(_)) => self.arming.quiet,
                _ => self.arming.signal,
            };
            // The calling thread looks with its signals blocked. The kernel's threads have no
            // ticks that could wait.
            let blocks = seen.blocks(signal) && tid != current_tid() && live.worker.is_none();
            let period_ns = self.arming.rate.period_ns();
            let has_ticked = thread.account.ticks != ticks;
            if !has_ticked && used_ns > SILENT_FOR_NS.max(2 * period_ns) {
                thread.is_blocking |= blocks;
                // The kernel keeps one signal where two of a kind are pending. Another than the
                // event's may have been in front of that of its first tick.
                if let (false, Some(ThreadClock::PerfEvent(event))) = (blocks, &live.clock)
                    && event.is_open()
                    && self.recorder.events.take_first(event.fd())
                {
                    go_on(event.fd(), period_ns);
                }
            }
            if has_ticked || !blocks {
                live.last_look = (thread.account.ticks, cpu_ns);
            }
        }
        thread.labels.name = seen.name;
        // An event that the program closed, and a clock that was refused, are asked for again.
        let is_closed =
            matches!(&live.clock, Some(ThreadClock::PerfEvent(event)) if !event.is_open());
        if is_closed || live.refusal().is_some() {
            self.rearm(tid);
        }
    }

    /// Gives a thread that lives another clock, or asks for one again. It stays the thread that it
    /// was: under its number, in its slot, with its account.
    pub(super) fn rearm(&mut self, tid: i32) {
        let Some(live) = self.live.get_mut(&tid) else {
            return;
        };
        // A thread that is gone has used what it had when it was last looked at, as far as is
        // known; a scan retires it.
        let Ok(cpu_ns) = Clock::thread_cpu(tid).now_ns() else {
            return;
        };
        if live.worker.is_some() {
            return;
        }
        let (serial, slot) = (live.serial, live.slot);
        let last = live.clock.take();
        let refused = live.refused;
        self.forget_refusals(refused);
        let was_armed = last.is_some();
        if let Some(last) = last {
            // What it has sent until now may still be on its way, and is the thread's: `events`
            // goes on to say so.
            self.recorder.births.budget.give_back(&last);
        }
        let armed = births::arm(&self.arming, self.recorder, tid, slot, serial);
        if let Some(thread) = self.known.get_mut(&serial) {
            thread.account.see(cpu_ns);
        }
        self.equip(tid, armed, was_armed);
    }

    /// What was refused to one thread is asked for again, or for no more.
    pub(super) fn forget_refusals(&mut self, refused: [Option<Refusal>; 2]) {
        for refusal in refused.into_iter().flatten() {
            if let Some(count) = self.refusals.get_mut(&refusal) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// Reads the names and the clocks of the live threads, as they are now.
    pub(in crate::cpu) fn refresh(&mut self) {
        let Self { live, known, .. } = self;
        let mut sampled = Vec::new();
        for (&tid, live) in live.iter() {
            let Some(thread) = known.get_mut(&live.serial) else {
                continue;
            };
            if let Ok(cpu_ns) = Clock::thread_cpu(tid).now_ns() {
                thread.account.see(cpu_ns);
            }
            if thread.is_sampled || thread.labels.name.is_empty() {
                sampled.push(tid);
            }
        }
        sampled.into_iter().for_each(|tid| self.look_at(tid));
    }

    /// Gives threads timers in place of perf events, whose signal is somebody else's by now.
    pub(in crate::cpu) fn give_up_events(&mut self) {
        self.arming.choice = Choice::ThreadTimer;
        self.rearm_where(|live| matches!(live.clock, Some(ThreadClock::PerfEvent(_))));
    }

    /// Takes the timers from threads, whose signal is the program's own by now; or gives them back,
    /// where it is ours again.
    pub(in crate::cpu) fn use_timers(&mut self, has_timers: bool) {
        self.arming.has_timers = has_timers;
        self.rearm_where(|live| match live.clock {
            Some(ThreadClock::Timer(_)) => !has_timers,
            Some(ThreadClock::PerfEvent(_)) => false,
            None => has_timers,
        });
    }

    /// Arms threads anew, as they are to be armed from now on, as are new ones.
    fn rearm_where(&mut self, is_meant: impl Fn(&Live) -> bool) {
        self.recorder.births.change(self.arming);
        self.hear();
        let live = self.live.iter().filter(|(_, live)| is_meant(live));
        let tids: Vec<i32> = live.map(|(&tid, _)| tid).collect();
        for tid in tids {
            self.rearm(tid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::cpu::Engine;
    use crate::cpu::births::tests::{start, threads_until, ticks_in_stacks, wait_until};
    use crate::cpu::choice::QUIET;
    use crate::process;
    use crate::sys::clock::Clock;
    use crate::sys::perf_event::open;
    use crate::sys::signal::{block, forged, unblock};
    use crate::sys::thread::current_tid;

    #[test]
    fn an_event_goes_on_whose_first_signal_was_not_kept() {
        process::succeed(&mut process::child(
            "cpu::threads::looks::tests::child_that_has_another_signal_in_front",
        ));
    }

    #[test]
    #[ignore = "a child process"]
    fn child_that_has_another_signal_in_front() {
        let burn = || (0..1000).for_each(|n| _ = std::hint::black_box(n));
        block(&[QUIET]);
        // Of no event that is known.
        forged::descriptor(current_tid(), QUIET, 0).unwrap();
        let recording = start();
        if recording.stats().engine != Engine::PerfEvent {
            return process::skip("perf events are not allowed here");
        }
        let after_first = Clock::THREAD_CPU.now_ns().unwrap() + 2 * 1_000_000_000 / 1000;
        wait_until(|| {
            burn();
            Clock::THREAD_CPU.now_ns().unwrap() > after_first
        });
        unblock(&[QUIET]);
        wait_until(|| {
            burn();
            recording.stats().samples > 0
        });
        let stats = recording.stats();
        assert_eq!(stats.foreign_signals, 1, "the one in front: {stats}");
        let few = stats.records;
        wait_until(|| {
            burn();
            recording.stats().records > few + 10
        });
    }

    #[test]
    fn a_thread_whose_clock_was_closed_gets_another_and_stays_the_same() {
        process::succeed_and_show(&mut process::child(
            "cpu::threads::looks::tests::child_that_closes_events",
        ));
    }

    #[test]
    #[ignore = "a child process"]
    fn child_that_closes_events() {
        let recording = start();
        if recording.stats().engine != Engine::PerfEvent {
            return;
        }
        let others = recording.stats().threads_armed;
        let is_enough = Arc::new(AtomicBool::new(false));
        let threads = threads_until::<4>(&is_enough);
        let armed = others + 4;
        wait_until(|| recording.stats().threads_armed == armed);
        for _ in 0..3 {
            open::close_all();
            wait_until(|| open::all().len() as u64 == armed);
        }
        is_enough.store(true, Ordering::Release);
        for thread in threads {
            thread.join().unwrap();
        }
        let profile = recording.stop().unwrap();
        let stats = recording.stats();
        let ticks = ticks_in_stacks(&profile, 4);
        process::figure!("clocks closed three times: {ticks:?} ticks, {stats}");
        // The last clock had 20 ms of CPU time to itself.
        assert!(ticks.iter().all(|&ticks| ticks >= 15), "{ticks:?}\n{stats}");
        assert_eq!(stats.threads_armed, armed, "{stats}");
        assert_eq!(stats.foreign_signals, 0, "{stats}");
        assert_eq!(stats.ticks, stats.samples + stats.lost.total(), "{stats}");
    }
}
