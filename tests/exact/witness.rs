//! What a CPU timer of a thread can see.
//!
//! The kernel looks at a thread's CPU timers at the scheduler's ticks, and only at those that fall
//! while the thread runs. Beside busy programs hundreds of milliseconds of CPU time may go by
//! without one, and what a thread does after its last one is never seen. A timer of the test's own
//! is looked at together with the profiler's: what the one has seen the other has to have seen.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::work::thread_cpu;

/// A timer on the CPU clock of the thread that made it, with a signal of its own.
#[derive(Debug)]
pub struct Witness {
    timer: libc::timer_t,
}

thread_local! {
    /// The thread's CPU time at the last tick that the witness saw, in ns.
    static SEEN_NS: AtomicU64 = const { AtomicU64::new(0) };
}

extern "C" fn on_tick(_: libc::c_int) {
    // Without a destructor, and in the program itself: a signal handler may use it.
    SEEN_NS.with(|seen| seen.store(thread_cpu().as_nanos() as u64, Ordering::Relaxed));
}

impl Witness {
    /// Watches the calling thread.
    pub fn new() -> Self {
        let signal = libc::SIGRTMIN() + 5;
        static HANDLER: Once = Once::new();
        // SAFETY: zeros are valid for each of the structures, which are filled as timer_create(2)
        // has it; the handler is async-signal-safe.
        unsafe {
            HANDLER.call_once(|| {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_tick as *const () as usize;
                action.sa_flags = libc::SA_RESTART;
                assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            });
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::mem::zeroed();
            let clock = libc::CLOCK_THREAD_CPUTIME_ID;
            assert_eq!(libc::timer_create(clock, &mut event, &mut timer), 0);
            // Shorter than any tick, so that each tick finds it expired.
            let often = libc::timespec {
                tv_sec: 0,
                tv_nsec: 100_000,
            };
            let times = libc::itimerspec {
                it_interval: often,
                it_value: often,
            };
            let old = std::ptr::null_mut();
            assert_eq!(libc::timer_settime(timer, 0, &times, old), 0);
            Self { timer }
        }
    }

    /// Up to which CPU time of the thread, which is the calling one, its timers have been looked
    /// at.
    pub fn finish(self) -> Duration {
        // SAFETY: made in `new`, and deleted once.
        assert_eq!(unsafe { libc::timer_delete(self.timer) }, 0);
        Duration::from_nanos(SEEN_NS.with(|seen| seen.load(Ordering::Relaxed)))
    }
}
