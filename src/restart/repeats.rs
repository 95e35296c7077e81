//! How often a thread's call has begun again.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::arch::InterruptedCall;
use crate::sys::clock::Clock;
use crate::sys::system_call::key;

/// The call of a thread's that began again last. A timeout begins again with its call: a call that
/// is interrupted more often than its timeout ends must not begin again each time. For the thread
/// itself, in its handlers.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Tells calls apart; in the lowest bits how often it has begun again.
    call: AtomicU32,
    /// The thread's CPU time then, in microseconds modulo 2^32.
    cpu_us: AtomicU32,
}

/// A thread that has used more CPU time since is in another call, as a rule; each tick of a CPU
/// clock comes after more.
const SAME_CALL_US: u32 = 50;
const COUNT: u32 = 3;
/// A look at a thread that is on its way into a call may be followed by one that finds it there.
const MOST_REPEATS: u32 = 2;

impl Repeats {
    /// Whether the thread's call may begin again once more, which it then does. The number of
    /// repeats begins anew where it may not. *Async-signal-safe.*
    pub(super) fn allow(&self, call: &InterruptedCall) -> bool {
        match Clock::THREAD_CPU.now_ns() {
            Ok(cpu_ns) => self.allow_at(call, (cpu_ns / 1000) as u32),
            Err(_) => false,
        }
    }

    fn allow_at(&self, call: &InterruptedCall, cpu_us: u32) -> bool {
        let last = self.call.load(Ordering::Relaxed);
        let since_us = cpu_us.wrapping_sub(self.cpu_us.load(Ordering::Relaxed));
        let own = key(call) & !COUNT;
        let is_same = last & !COUNT == own && since_us < SAME_CALL_US;
        let repeats = match is_same {
            true => last & COUNT,
            false => 0,
        };
        let is_allowed = repeats < MOST_REPEATS;
        let repeats = match is_allowed {
            true => repeats + 1,
            false => 0,
        };
        self.call.store(own | repeats, Ordering::Relaxed);
        self.cpu_us.store(cpu_us, Ordering::Relaxed);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_begins_again_twice_where_its_thread_does_nothing_else() {
        let call = |pc| InterruptedCall {
            pc,
            sp: 4096,
            arguments: [1; 6],
            blocked: 0,
        };
        let repeats = Repeats::default();
        let allow = |pc, cpu_us| repeats.allow_at(&call(pc), cpu_us);
        let allowed = [10, 12, 14, 16, 18].map(|cpu_us| allow(1000, cpu_us));
        assert_eq!(allowed, [true, true, false, true, true]);
        assert!(allow(2000, 20), "another call");
        assert!(allow(2000, 30));
        assert!(allow(2000, 100), "the thread has done something else");
        let after_wrap = [u32::MAX, 10, 20].map(|cpu_us| allow(3000, cpu_us));
        assert_eq!(after_wrap, [true, true, false]);
    }
}
