//! One thread of a wall-clock recording: up to when its time has a place, and what is to be done
//! for the rest.
#![forbid(unsafe_code)]

use crate::aggregate::{State, Tag, Weight};
use crate::sys::thread::{Scheduled, Worker};

/// CPU time that a look may cost a thread which waits: it wakes, runs the handler, and waits again,
/// perhaps by way of a loop that calls the interrupted function once more. Seen: from 5 to 40 µs,
/// and up to 150 µs for the first stack of a thread, whose unwind tables are cold.
const LOOK_COSTS_NS: u64 = 250_000;

/// Looks in a row at a thread that found it at the same place and never at rest, after which that
/// place is believed: a program that answers each interruption with more than a moment's work must
/// not be interrupted for ever.
const LOOKS_AT_ONE_PLACE: u32 = 3;

/// A thread that has been at rest for so long is checked less often than each tick. Not sooner: of
/// one that runs for a moment many times a second, a late check would never see what it runs.
const RESTS_LONG_NS: u64 = 1_000_000_000;

/// Where the time of a thread goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// A call chain by its number.
    Stack { chain: u32, tag: Tag },
    /// Nowhere: the program's filter dropped the thread.
    Filtered,
}

/// A thread's own measures of how much it has run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Run {
    pub(super) cpu_ns: u64,
    /// What the scheduler says, where it does.
    pub(super) scheduled: Option<Scheduled>,
}

impl Run {
    /// Time that it ran, or waited for a CPU, since `before`.
    fn since(self, before: Self) -> u64 {
        let delay_ns = match (self.scheduled, before.scheduled) {
            (Some(now), Some(before)) => now.delay_ns.saturating_sub(before.delay_ns),
            _ => 0,
        };
        self.cpu_ns.saturating_sub(before.cpu_ns) + delay_ns
    }
}

/// What is known of what a thread does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Standing {
    /// Nothing, so it is to be looked at, but not before this time.
    Unknown { not_before_ns: u64 },
    /// A look is on its way.
    Asked {
        at_ns: u64,
        state: State,
        before: Run,
        /// Looks that the filter had dropped before this one.
        filtered: u32,
    },
    /// It waited at this place when it was looked at. Whether it still does is to be seen.
    Answered { place: Place, before: Run },
    /// It has waited at this place for as long as its CPU clock stands there.
    AtRest {
        place: Place,
        run: Run,
        since_ns: u64,
        next_check_ns: u64,
    },
    /// It is one of the kernel's own: all of its time stands in a frame that says so.
    InKernel(Worker),
}

/// One thread. Times are since the start of the recording.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) tid: i32,
    pub(super) slot: u32,
    /// Its time up to here has a place.
    pub(super) accounted_ns: u64,
    /// Time before that, in which it ran where nobody saw it: it belongs to the place where it is
    /// next seen to run.
    pub(super) ran_unseen_ns: u64,
    pub(super) standing: Standing,
    counter: Counter,
    /// Looks in vain, in a row.
    misses: u32,
    /// The place of the last look that found it waiting, and how many in a row that was.
    last: Option<(Place, u32)>,
}

/// Time to whole periods, with what is left over carried on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Counter {
    carried_ns: u64,
}

impl Counter {
    fn weigh(&mut self, ns: u64, period_ns: u64) -> Weight {
        let sum_ns = self.carried_ns + ns;
        self.carried_ns = sum_ns % period_ns;
        Weight {
            count: sum_ns / period_ns,
            ns,
        }
    }
}

impl Watched {
    /// `carried_ns` is a random part of a period, which the counts of its samples begin with:
    /// rounded, those of many short threads are then right in sum.
    pub(super) fn new(tid: i32, slot: u32, since_ns: u64, carried_ns: u64) -> Self {
        Self {
            tid,
            slot,
            accounted_ns: since_ns,
            ran_unseen_ns: 0,
            standing: Standing::Unknown { not_before_ns: 0 },
            counter: Counter { carried_ns },
            misses: 0,
            last: None,
        }
    }

    /// Time that has no place, up to `now_ns`.
    pub(super) fn owed_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.accounted_ns) + self.ran_unseen_ns
    }

    /// The same as ticks, which stay owed.
    pub(super) fn owed(&self, now_ns: u64, period_ns: u64) -> Weight {
        let mut counter = self.counter;
        counter.weigh(self.owed_ns(now_ns), period_ns)
    }

    /// A look has found it: what it is owed up to `now_ns` has found its place.
    pub(super) fn pay(&mut self, state: State, now_ns: u64, period_ns: u64) -> Weight {
        let mut ns = now_ns.saturating_sub(self.accounted_ns);
        if state != State::Waiting {
            ns += std::mem::take(&mut self.ran_unseen_ns);
        }
        self.accounted_ns = self.accounted_ns.max(now_ns);
        self.misses = 0;
        self.counter.weigh(ns, period_ns)
    }

    /// A look was of no use; the next one comes later each time.
    pub(super) fn miss(&mut self, now_ns: u64) {
        const FIRST_NS: u64 = 20_000_000;
        let wait_ns = FIRST_NS << self.misses.min(6);
        self.misses += 1;
        self.standing = Standing::Unknown {
            not_before_ns: now_ns + wait_ns,
        };
    }

    /// Whether the last looks were of no use, either.
    pub(super) fn has_missed(&self) -> bool {
        self.misses > 2
    }

    /// Whether a look that nobody has answered is to be given up: the thread may block the signal,
    /// or its record was lost.
    pub(super) fn gives_up(&self, now_ns: u64) -> bool {
        const PATIENCE_NS: u64 = 200_000_000;
        matches!(self.standing, Standing::Asked { at_ns, .. } if now_ns > at_ns + PATIENCE_NS)
    }

    /// A look has found it at `place`.
    pub(super) fn found(&mut self, place: Place, state: State, before: Run) {
        if state != State::Waiting {
            self.last = None;
            self.standing = Standing::Unknown { not_before_ns: 0 };
            return;
        }
        let before_that = match self.last {
            Some((last, looks)) if last == place => looks,
            _ => 0,
        };
        self.last = Some((place, before_that + 1));
        self.standing = Standing::Answered { place, before };
    }

    /// It waited when it was looked at, and has `run` on its clocks now, or is running. Takes it to
    /// be at rest if the look alone explains how much it has run: once, and not for long.
    pub(super) fn settle(&mut self, run: Option<Run>, now_ns: u64) {
        let Standing::Answered { place, before } = self.standing else {
            return;
        };
        let Some(run) = run else {
            self.standing = Standing::Unknown { not_before_ns: 0 };
            return;
        };
        let once = match (before.scheduled, run.scheduled) {
            (Some(before), Some(now)) => now.slices <= before.slices + 1,
            _ => true,
        };
        let briefly = run.cpu_ns.saturating_sub(before.cpu_ns) <= LOOK_COSTS_NS;
        let often = matches!(self.last, Some((_, looks)) if looks >= LOOKS_AT_ONE_PLACE);
        self.standing = match once && briefly || often {
            true => Standing::AtRest {
                place,
                run,
                since_ns: now_ns,
                next_check_ns: now_ns,
            },
            false => Standing::Unknown { not_before_ns: 0 },
        };
    }

    /// It was at rest, and has not run since: where that is, and for how long it was there since
    /// the last check. The next one comes after `soon_ns`, or `late_ns` if it has been at rest for
    /// long.
    pub(super) fn rests(
        &mut self,
        now_ns: u64,
        period_ns: u64,
        (soon_ns, late_ns): (u64, u64),
    ) -> Option<(Place, Weight)> {
        let Standing::AtRest {
            place,
            since_ns,
            next_check_ns,
            ..
        } = &mut self.standing
        else {
            return None;
        };
        let place = *place;
        let is_long = now_ns.saturating_sub(*since_ns) > RESTS_LONG_NS;
        *next_check_ns = now_ns + if is_long { late_ns } else { soon_ns };
        self.last = None;
        let weight = self.pay_rest(0, now_ns, period_ns);
        Some((place, weight))
    }

    /// It was at rest, and has run since the last check. Whoever waited at the beginning of a
    /// period counts as waiting for the whole of it, and whoever ran as running; only where more
    /// than that has gone by, what it ran is owed.
    pub(super) fn has_run(
        &mut self,
        run: Run,
        now_ns: u64,
        period_ns: u64,
    ) -> Option<(Place, Weight)> {
        let is_long = now_ns.saturating_sub(self.accounted_ns) > 2 * period_ns;
        self.leave_rest(if is_long { Some(run) } else { None }, now_ns, period_ns)
    }

    /// It ends. Where it was at rest, it was there but for the time that it ran since then, by its
    /// last word.
    pub(super) fn end(
        &mut self,
        run: Option<Run>,
        now_ns: u64,
        period_ns: u64,
    ) -> Option<(Place, Weight)> {
        self.leave_rest(run, now_ns, period_ns)
    }

    fn leave_rest(
        &mut self,
        now: Option<Run>,
        now_ns: u64,
        period_ns: u64,
    ) -> Option<(Place, Weight)> {
        let Standing::AtRest { place, run, .. } = self.standing else {
            return None;
        };
        let ran_ns = now.map_or(0, |now| now.since(run));
        self.standing = Standing::Unknown { not_before_ns: 0 };
        Some((place, self.pay_rest(ran_ns, now_ns, period_ns)))
    }

    /// All time up to now but `ran_ns` has its place.
    fn pay_rest(&mut self, ran_ns: u64, now_ns: u64, period_ns: u64) -> Weight {
        let ns = now_ns.saturating_sub(self.accounted_ns);
        let ran_ns = ran_ns.min(ns);
        self.accounted_ns = self.accounted_ns.max(now_ns);
        self.ran_unseen_ns += ran_ns;
        self.counter.weigh(ns - ran_ns, period_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 10_000_000;
    const PLACE: Place = Place::Stack {
        chain: 3,
        tag: Tag {
            thread: 1,
            labels: 0,
            state: State::Waiting,
        },
    };

    fn run(cpu_ns: u64, slices: u64) -> Run {
        Run {
            cpu_ns,
            scheduled: Some(Scheduled {
                slices,
                delay_ns: 0,
            }),
        }
    }

    fn ran(cpu_ns: u64, slices: u64) -> Option<Run> {
        Some(run(cpu_ns, slices))
    }

    /// A thread that was found at `PLACE` with `run(1000, 5)`, and has no time without a place.
    fn found(now_ns: u64) -> Watched {
        let mut thread = Watched::new(1, 0, 0, PERIOD / 2);
        thread.pay(State::Waiting, now_ns, PERIOD);
        thread.found(PLACE, State::Waiting, run(1000, 5));
        thread
    }

    fn is_at_rest(thread: &Watched) -> bool {
        matches!(thread.standing, Standing::AtRest { .. })
    }

    #[test]
    fn what_a_look_costs_does_not_wake_a_thread() {
        let mut thread = found(PERIOD);
        thread.settle(ran(1000 + LOOK_COSTS_NS, 6), PERIOD);
        assert!(is_at_rest(&thread));
        for (cpu_ns, slices) in [(2000, 7), (1001 + LOOK_COSTS_NS, 6)] {
            let mut thread = found(PERIOD);
            thread.settle(ran(cpu_ns, slices), PERIOD);
            assert!(!is_at_rest(&thread), "{cpu_ns} ns, {slices} slices");
        }
    }

    #[test]
    fn a_thread_that_never_rests_is_believed_in_the_end() {
        let mut thread = found(PERIOD);
        let mut slices = 5;
        let mut looks = 1;
        loop {
            slices += 2;
            thread.settle(ran(9000, slices), PERIOD);
            if is_at_rest(&thread) {
                break;
            }
            thread.found(PLACE, State::Waiting, run(9000, slices));
            looks += 1;
        }
        assert_eq!(looks, LOOKS_AT_ONE_PLACE);
    }

    #[test]
    fn a_thread_at_rest_is_checked_less_often_after_a_while_and_loses_no_time() {
        const LATE: u64 = 10 * PERIOD;
        let mut thread = found(PERIOD);
        thread.settle(ran(2000, 6), PERIOD);
        let (mut sum, mut checks) = (Weight::default(), 0);
        for now_ns in (2..=1000).map(|tick| tick * PERIOD) {
            let Standing::AtRest { next_check_ns, .. } = thread.standing else {
                panic!("{thread:?}");
            };
            if next_check_ns <= now_ns {
                let (place, weight) = thread.rests(now_ns, PERIOD, (0, LATE)).unwrap();
                assert_eq!(place, PLACE);
                sum.count += weight.count;
                sum.ns += weight.ns;
                checks += 1;
            }
        }
        assert!((180..200).contains(&checks), "{checks} checks of 10 s");
        assert_eq!(sum.ns + PERIOD, thread.accounted_ns);
        assert_eq!(sum.count, sum.ns / PERIOD);
        assert!(thread.owed_ns(1000 * PERIOD) < LATE);
    }

    #[test]
    fn what_a_resting_thread_ran_goes_to_where_it_is_seen_to_run() {
        let mut thread = found(PERIOD);
        thread.settle(ran(2000, 6), PERIOD);
        let now_ns = 11 * PERIOD;
        let (_, weight) = thread
            .has_run(run(2000 + PERIOD, 7), now_ns, PERIOD)
            .unwrap();
        assert_eq!(weight.ns, 9 * PERIOD);
        assert_eq!(thread.owed_ns(now_ns), PERIOD);
        assert_eq!(thread.pay(State::Waiting, now_ns, PERIOD).ns, 0);
        assert_eq!(thread.pay(State::Running, now_ns, PERIOD).ns, PERIOD);
        assert_eq!(thread.owed_ns(now_ns), 0);
    }

    #[test]
    fn counts_add_up_whatever_the_pieces() {
        let mut thread = Watched::new(1, 0, 0, PERIOD / 2);
        let counted: u64 = (1..=1000)
            .map(|i| thread.pay(State::Running, i * PERIOD / 3, PERIOD).count)
            .sum();
        assert_eq!(counted, 333);
    }
}
