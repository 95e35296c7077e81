//! Threads of the kernel's own: they run no code of the program and hear no signal, so they get no
//! clock, and their CPU clocks say what they have used.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::{Live, Threads};
use crate::cpu::arming::ThreadClock;
use crate::sys::clock::Clock;
use crate::sys::thread::Worker;

/// The least time between two reads of workers' clocks, for each worker: 1 % of a CPU, whatever
/// their number.
const READ_SPACING: Duration = Duration::from_micros(30);

impl Threads {
    /// A live thread has turned out to be one of the kernel's: it gives its clock back. Its name is
    /// kept, since all of its time stands under that.
    pub(in crate::cpu) fn leave_to_kernel(&mut self, tid: i32, worker: Worker) {
        let Some(live) = self.live.get_mut(&tid) else {
            return;
        };
        live.worker = Some(worker);
        let refused = std::mem::take(&mut live.refused);
        if let Some(clock) = live.clock.take() {
            self.armed -= 1;
            self.armed_by_perf -= u64::from(matches!(clock, ThreadClock::PerfEvent(_)));
            // Nothing that it has sent is on its way: the thread hears no signal.
            self.recorder.births.budget.give_back(&clock);
        }
        if let Some(thread) = self.known.get_mut(&live.serial) {
            thread.account.worker = Some(worker);
            thread.is_sampled = true;
            thread.is_blocking = false;
        }
        self.forget_refusals(refused);
    }

    /// Reads the clocks of the kernel's threads: they do not say that they end, and what they used
    /// after the last read is nobody's.
    pub(super) fn see_workers(&mut self) {
        let now = Instant::now();
        if now < self.next_look_at_workers {
            return;
        }
        let mut workers = 0;
        for (&tid, live) in &self.live {
            if live.worker.is_none() {
                continue;
            }
            workers += 1;
            if let (Some(thread), Ok(cpu_ns)) = (
                self.known.get_mut(&live.serial),
                Clock::thread_cpu(tid).now_ns(),
            ) {
                thread.account.see(cpu_ns);
            }
        }
        self.next_look_at_workers = now + READ_SPACING * workers;
    }

    /// Whether a live thread is one of the kernel's, as far as is known.
    pub(in crate::cpu) fn worker(&self, tid: i32) -> Option<Worker> {
        self.live.get(&tid).and_then(|live: &Live| live.worker)
    }
}
