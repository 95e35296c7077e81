//! Work of known cost: CPU time by the thread's own clock, which the profiler does not own.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process.
pub fn process_cpu() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of a thread of this process, if there is one with this id.
pub fn thread_cpu_of(tid: libc::pid_t) -> Option<Duration> {
    // As the kernel numbers the CPU clocks of threads (`CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`).
    try_clock(!tid << 3 | 6)
}

fn clock(id: libc::clockid_t) -> Duration {
    try_clock(id).unwrap()
}

fn try_clock(id: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `time`.
    let refused = unsafe { libc::clock_gettime(id, &mut time) } != 0;
    (!refused).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Sets a flag when dropped, so that threads which work until then end when their test fails, too.
pub struct StopOnDrop<'f>(pub &'f AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Some 0.2 to 0.4 ms of arithmetic that calls nothing, also in a build without optimization. Its
/// length varies, or the program could fall into step with the scheduler's tick, which comes every
/// few ms, and be sampled at the same place every time.
macro_rules! spin {
    ($turn:ident) => {{
        let turns = if cfg!(debug_assertions) {
            20_000
        } else {
            120_000
        };
        $turn = ($turn ^ ($turn << 13)) & 0xffff_ffff;
        $turn ^= $turn >> 17;
        $turn = ($turn ^ ($turn << 5)) & 0xffff_ffff;
        let turns = turns + $turn % turns;
        let mut x = 0x9E37_79B9_7F4A_7C15_u64;
        let mut i = 0;
        while i < turns {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            i += 1;
        }
        std::hint::black_box(x);
    }};
}

/// Burns CPU time on the calling thread.
#[inline(never)]
pub fn burn(time: Duration) {
    let end = thread_cpu() + time;
    let mut turn = u64::from(end.subsec_nanos()) | 1;
    while thread_cpu() < end {
        spin!(turn);
    }
}

/// A function that spins for a slice of CPU time, by the thread's clock, and nothing else; under a
/// name of its own.
macro_rules! burner {
    ($($name:ident)*) => {$(
        #[inline(never)]
        pub fn $name(time: Duration) {
            let end = thread_cpu() + time;
            let mut turn = u64::from(end.subsec_nanos()) | 1;
            while thread_cpu() < end {
                spin!(turn);
            }
        }
    )*};
}

burner! { burn_sixty burn_twenty_five burn_ten burn_five burn_on_first burn_on_second burn_on_third }
