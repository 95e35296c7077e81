//! What a thread does right now, seen from another one that does not disturb it.
#![forbid(unsafe_code)]

use super::watched::Run;
use crate::sys::clock::Clock;
use crate::sys::thread::{Identity, Worker, identity, scheduled};

/// What a thread does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sight {
    /// It runs, or waits for a CPU.
    Running,
    /// It waits for something else.
    Waiting(Run),
    /// It does not run, and blocks the signal.
    Deaf,
    /// It is one of the kernel's own, which no signal reaches.
    Worker(Worker),
    Gone,
}

/// Looks at a thread, which is to be sent `signal`.
pub(super) fn see(tid: i32, signal: libc::c_int) -> Sight {
    let Some(cpu_ns) = resting_clock(tid) else {
        return Sight::Running;
    };
    // Read before the state: if the thread waits then and got onto a CPU in between, that counts as
    // more than once.
    let scheduled = scheduled(tid);
    match identity(tid) {
        Some(Identity {
            worker: Some(worker),
            ..
        }) => Sight::Worker(worker),
        Some(seen) if seen.blocks(signal) => Sight::Deaf,
        Some(seen) if seen.is_running => Sight::Running,
        Some(_) => Sight::Waiting(Run { cpu_ns, scheduled }),
        None => Sight::Gone,
    }
}

/// What a thread that is not on a CPU has run so far; `None` for one that is, or is gone.
pub(super) fn run_so_far(tid: i32) -> Option<Run> {
    Some(Run {
        cpu_ns: resting_clock(tid)?,
        scheduled: scheduled(tid),
    })
}

/// The CPU clock of a thread that is not on a CPU: read twice in a row it says the same.
fn resting_clock(tid: i32) -> Option<u64> {
    let clock = Clock::thread_cpu(tid);
    let (first, second) = (clock.now_ns().ok()?, clock.now_ns().ok()?);
    (first == second).then_some(second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::thread::current_tid;

    #[test]
    fn running_and_waiting_threads_are_told_apart() {
        let me = current_tid();
        // Of its own clock the calling thread always sees that it moves.
        assert_eq!(see(me, libc::SIGPROF), Sight::Running);
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(current_tid()).unwrap();
            let _ = ended.recv();
        });
        let tid = told.recv().unwrap();
        let seen = || see(tid, libc::SIGPROF);
        while !matches!(seen(), Sight::Waiting(_)) {
            std::thread::yield_now();
        }
        let (Sight::Waiting(first), Sight::Waiting(again)) = (seen(), seen()) else {
            panic!("it waits until it is told to end");
        };
        assert_eq!(first, again, "looking from outside does not make it run");
        drop(end);
        thread.join().unwrap();
    }
}
