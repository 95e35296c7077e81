//! CPU time that the clocks saw against CPU time that was sampled: what is missing is put into
//! frames that say why.
//!
//! The process's own CPU clock is the truth, less the time of the profiler's thread. Samples stand
//! for a period each; where they and what is known to be lost do not come to it, the rest goes to
//! the threads that it is known of, and what is left then to nobody by name.
//!
//! A thread's ticks are its CPU time within a period, up or down, as its first tick comes at a
//! random place of the first period. So only what exceeds a period is taken for missing in one
//! thread; over all of them the ups and downs cancel out. Where the ups are left, ticks stand for a
//! little less than a period each: the total is the clock's.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::threads::Account;
use crate::aggregate::{Unseen, Weight};

/// The frame of time that nobody could sample: before a thread was armed, or where it could not be,
/// or after its last tick.
pub(super) const UNSAMPLED: &str = "[unsampled]";
/// The frame of ticks whose samples found no lane or no room.
pub(super) const LOST: &str = "[lost]";
/// The frame of time in the kernel that a clock of user time alone does not see.
pub(super) const KERNEL: &str = "[kernel]";

/// What the audit is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Books {
    pub(super) period_ns: u64,
    /// CPU time of the process since the start, without the profiler's thread.
    pub(super) cpu_ns: u64,
    /// Periods in stacks.
    pub(super) ticks: u64,
    /// Periods that were lost.
    pub(super) lost: u64,
    /// Periods that the program's filter dropped.
    pub(super) filtered: u64,
    /// Threads have clocks of their own, so that their accounts say what is missing in each.
    pub(super) is_by_thread: bool,
    /// The clocks see user time alone.
    pub(super) is_user_only: bool,
}

/// What became of the process's CPU time.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Audit {
    pub(super) cpu: Duration,
    pub(super) in_stacks: Duration,
    pub(super) lost: Duration,
    pub(super) filtered: Duration,
    pub(super) unsampled: Duration,
    pub(super) kernel: Duration,
    pub(super) kernel_workers: Duration,
    pub(super) unseen: Vec<Unseen>,
    /// What the clocks' ticks in stacks stand for, of the time that they are periods of: a
    /// fraction.
    pub(super) worth: (u64, u64),
}

impl Audit {
    /// Settles the books. `accounts` are the threads by serial number; `others` is what is known of
    /// all others.
    pub(super) fn of(
        books: Books,
        accounts: impl Iterator<Item = (u32, Account)>,
        others: Account,
    ) -> Self {
        let mut accounts: Vec<(u32, Account)> = accounts.collect();
        accounts.sort_unstable_by_key(|&(serial, _)| serial);
        let ns = |ticks: u64| ticks.saturating_mul(books.period_ns);
        let mut ledger = Ledger {
            period_ns: books.period_ns,
            left_ns: books
                .cpu_ns
                .saturating_sub(ns(books.lost) + ns(books.filtered)),
            unseen: Vec::new(),
        };
        // By their own clocks, and exact: ticks stand for what these leave.
        let mut kernel_workers_ns = 0;
        if books.is_by_thread {
            for (serial, account) in &accounts {
                if let Some(worker) = account.worker {
                    kernel_workers_ns += ledger.take(worker.frame(), *serial, account.total_ns());
                }
            }
            accounts.retain(|(_, account)| account.worker.is_none());
        }
        let in_stacks_ns = ns(books.ticks).min(ledger.left_ns);
        ledger.left_ns -= in_stacks_ns;

        let mut lost = books.lost;
        for &(serial, account) in &accounts {
            let of_thread = account.lost.min(lost);
            lost -= of_thread;
            ledger.push(LOST, serial, of_thread, ns(of_thread));
        }
        ledger.push(LOST, 0, lost, ns(lost));

        let mut unsampled_ns = 0;
        let mut kernel_ns = 0;
        for &(serial, account) in &accounts {
            unsampled_ns += ledger.take(UNSAMPLED, serial, account.unarmed_ns);
        }
        unsampled_ns += ledger.take(UNSAMPLED, 0, others.unarmed_ns);
        let (why, sum_ns) = match books.is_user_only {
            true => (KERNEL, &mut kernel_ns),
            false => (UNSAMPLED, &mut unsampled_ns),
        };
        if books.is_by_thread {
            for &(serial, account) in &accounts {
                let missing_ns = account
                    .armed_ns
                    .saturating_sub(ns(account.ticks) + ns(account.lost));
                if missing_ns > books.period_ns {
                    *sum_ns += ledger.take(why, serial, missing_ns);
                }
            }
        }
        *sum_ns += ledger.take(why, 0, u64::MAX);
        Self {
            cpu: Duration::from_nanos(books.cpu_ns),
            in_stacks: Duration::from_nanos(in_stacks_ns),
            worth: match books.ticks {
                0 => (0, 0),
                ticks => (in_stacks_ns, ns(ticks)),
            },
            lost: Duration::from_nanos(ns(books.lost)),
            filtered: Duration::from_nanos(ns(books.filtered)),
            unsampled: Duration::from_nanos(unsampled_ns),
            kernel: Duration::from_nanos(kernel_ns),
            kernel_workers: Duration::from_nanos(kernel_workers_ns),
            unseen: ledger.into_unseen(),
        }
    }
}

/// Time that has no place yet, and the places that were found.
struct Ledger {
    period_ns: u64,
    left_ns: u64,
    unseen: Vec<Unseen>,
}

impl Ledger {
    /// Puts up to `ns` of what is left under a thread; the answer is how much that was.
    fn take(&mut self, why: &'static str, thread: u32, ns: u64) -> u64 {
        let taken = ns.min(self.left_ns);
        self.left_ns -= taken;
        self.push(why, thread, 0, taken);
        taken
    }

    fn push(&mut self, why: &'static str, thread: u32, count: u64, ns: u64) {
        if ns == 0 {
            return;
        }
        self.unseen.push(Unseen {
            why,
            thread,
            weight: Weight { count, ns },
        });
    }

    /// The places, once for each cause and thread, with the ticks that their time would have been:
    /// rounded so that they add up.
    fn into_unseen(mut self) -> Vec<Unseen> {
        self.unseen
            .sort_by_key(|unseen| (unseen.why, unseen.thread));
        self.unseen.dedup_by(|next, first| {
            let is_same = next.why == first.why && next.thread == first.thread;
            if is_same {
                first.weight.count += next.weight.count;
                first.weight.ns += next.weight.ns;
            }
            is_same
        });
        let mut sum_ns = self.period_ns / 2;
        for unseen in &mut self.unseen {
            if unseen.why != LOST {
                let before = sum_ns / self.period_ns;
                sum_ns += unseen.weight.ns;
                unseen.weight.count = sum_ns / self.period_ns - before;
            }
        }
        self.unseen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::thread::Worker;

    const PERIOD: u64 = 1_000_000;

    fn books() -> Books {
        Books {
            period_ns: PERIOD,
            cpu_ns: 100 * PERIOD,
            ticks: 90,
            lost: 4,
            filtered: 0,
            is_by_thread: true,
            is_user_only: false,
        }
    }

    fn thread(armed_ns: u64, unarmed_ns: u64, ticks: u64, lost: u64) -> Account {
        Account::armed_from_zero(armed_ns, unarmed_ns, ticks, lost)
    }

    fn total_ns(audit: &Audit) -> u64 {
        audit.unseen.iter().map(|unseen| unseen.weight.ns).sum()
    }

    #[test]
    fn all_of_the_processs_time_finds_a_place() {
        let accounts = [
            (1, thread(50 * PERIOD, 0, 49, 1)),
            (2, thread(45 * PERIOD, 2 * PERIOD, 41, 1)),
        ];
        let audit = Audit::of(books(), accounts.into_iter(), Account::default());
        let unseen = |why, thread, count, ns| Unseen {
            why,
            thread,
            weight: Weight { count, ns },
        };
        assert_eq!(
            audit.unseen,
            [
                unseen(LOST, 0, 2, 2 * PERIOD),
                unseen(LOST, 1, 1, PERIOD),
                unseen(LOST, 2, 1, PERIOD),
                unseen(UNSAMPLED, 0, 1, PERIOD),
                unseen(UNSAMPLED, 2, 5, 5 * PERIOD),
            ]
        );
        assert_eq!(audit.in_stacks + audit.lost + audit.unsampled, audit.cpu);
    }

    #[test]
    fn time_that_rounding_added_is_not_missed() {
        let accounts = [(1, thread(90 * PERIOD, 5 * PERIOD, 90, 4))];
        let books = Books {
            cpu_ns: 93 * PERIOD,
            ..books()
        };
        let audit = Audit::of(books, accounts.into_iter(), Account::default());
        assert_eq!(total_ns(&audit), 4 * PERIOD, "what was lost, and no more");
        assert_eq!(audit.unsampled, Duration::ZERO);
        assert_eq!(audit.worth, (89 * PERIOD, 90 * PERIOD));
        assert_eq!(audit.in_stacks + audit.lost, audit.cpu);
    }

    #[test]
    fn clocks_of_user_time_miss_the_kernels() {
        let accounts = [(1, thread(100 * PERIOD, 0, 90, 4))];
        let books = Books {
            is_user_only: true,
            ..books()
        };
        let audit = Audit::of(books, accounts.into_iter(), Account::default());
        assert_eq!(audit.kernel, Duration::from_nanos(6 * PERIOD));
        assert_eq!(audit.unsampled, Duration::ZERO);
    }

    #[test]
    fn the_time_of_the_kernels_workers_is_theirs_by_their_clocks() {
        let mut worker = thread(3 * PERIOD, 17 * PERIOD, 0, 0);
        worker.worker = Some(Worker::IoUring);
        // Rounded up by a period: what the clocks of workers say is not rounded.
        let accounts = [(1, thread(76 * PERIOD, 0, 73, 4)), (2, worker)];
        let books = Books {
            ticks: 77,
            ..books()
        };
        let audit = Audit::of(books, accounts.into_iter(), Account::default());
        assert_eq!(audit.kernel_workers, Duration::from_nanos(20 * PERIOD));
        assert_eq!(audit.in_stacks, Duration::from_nanos(76 * PERIOD));
        assert_eq!(audit.unsampled, Duration::ZERO);
        let of_worker: Vec<&Unseen> = audit.unseen.iter().filter(|u| u.thread == 2).collect();
        assert_eq!(of_worker.len(), 1);
        assert_eq!(of_worker[0].why, "[kernel: io_uring worker]");
        assert_eq!(of_worker[0].weight.count, 20);
        // One timer ticks for all threads, and for workers by ticks that fall on others.
        let books = Books {
            is_by_thread: false,
            ..books
        };
        let audit = Audit::of(books, accounts.into_iter(), Account::default());
        assert_eq!(audit.kernel_workers, Duration::ZERO);
    }

    #[test]
    fn ticks_of_unseen_time_add_up() {
        let accounts = (1..=10).map(|serial| (serial, thread(0, PERIOD * 3 / 10, 0, 0)));
        let books = Books {
            ticks: 0,
            lost: 0,
            cpu_ns: 3 * PERIOD,
            ..books()
        };
        let audit = Audit::of(books, accounts, Account::default());
        let ticks: u64 = audit.unseen.iter().map(|unseen| unseen.weight.count).sum();
        assert_eq!(ticks, 3);
    }
}
