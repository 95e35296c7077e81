//! How much of the interrupted stack the handler uses, by painting it: in a test binary of its own,
//! whose signals are known.

#[path = "support/mappings.rs"]
mod mappings;
#[path = "support/process.rs"]
mod process;
#[path = "support/work.rs"]
mod work;

use std::time::Duration;

use process::{child, figure, succeed_and_show};
use sigprof::cpu::{Engine, Profiler, Recording};
use work::burn;

const STACK: usize = 256 * 1024;
const PAINT: u8 = 0xa5;
/// The most that a sample may take beside the kernel's own frame. Without optimization it takes
/// three times as much, which with that frame still fits on the 8 KiB that Rust gives its threads
/// for their signals.
const MOST: usize = if cfg!(debug_assertions) { 4096 } else { 1024 };

/// An alternate signal stack of the calling thread's, which is painted before each use.
struct Painted(*mut u8);

impl Painted {
    fn install() -> Self {
        let stack = mappings::map(STACK);
        let alternate = libc::stack_t {
            ss_sp: stack.cast(),
            ss_flags: 0,
            ss_size: STACK,
        };
        // SAFETY: the stack is never unmapped.
        let installed = unsafe { libc::sigaltstack(&alternate, std::ptr::null_mut()) };
        assert_eq!(installed, 0);
        Self(stack)
    }

    /// How many bytes below its top are touched while `f` runs.
    fn touched(&self, f: impl FnOnce()) -> usize {
        // SAFETY: nothing runs on the stack but handlers, of which there is none now.
        unsafe { self.0.write_bytes(PAINT, STACK) };
        f();
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(self.0, STACK) };
        let untouched = bytes.iter().position(|&byte| byte != PAINT);
        STACK - untouched.unwrap_or(STACK)
    }
}

extern "C" fn empty(_: libc::c_int, _: *const libc::siginfo_t, _: *const libc::c_void) {}

fn set_handler(handler: usize) {
    // SAFETY: a handler that does nothing, or the default; on the alternate stack as sigprof's.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(
            libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()),
            0
        );
    }
}

/// Sends the signal, below frames that the unwinder has something to do with.
#[inline(never)]
fn raise_below(depth: u32) -> u32 {
    if depth == 0 {
        // SAFETY: a signal to the calling thread, which has a handler for it.
        unsafe { libc::raise(libc::SIGPROF) };
        return 0;
    }
    std::hint::black_box(raise_below(depth - 1)) + 1
}

fn raise_many() {
    for depth in 0..100 {
        raise_below(depth);
    }
}

/// The samples that a judgment takes.
const SAMPLES: u64 = 50;

/// A timer's signals come with the scheduler's ticks, of which a crowded machine gives a thread
/// few.
fn burn_through_ticks(recording: &Recording) {
    burn(Duration::from_millis(400));
    while recording.stats().records <= SAMPLES {
        burn(Duration::from_millis(20));
    }
}

#[test]
fn a_sample_takes_little_of_the_interrupted_stack() {
    for engine in ["sent", "timer", "perf"] {
        succeed_and_show(child("child_that_paints_its_stack").env("SIGPROF_TICKS", engine));
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_paints_its_stack() {
    let ticks = std::env::var("SIGPROF_TICKS").unwrap_or_default();
    let painted = Painted::install();
    set_handler(empty as *const () as usize);
    let kernels = painted.touched(raise_many);
    set_handler(libc::SIG_DFL);
    let (engine, frequency_hz) = match ticks.as_str() {
        "perf" => (Engine::Auto, 10_000),
        "timer" => (Engine::ThreadTimer, 1000),
        _ => (Engine::ThreadTimer, 1),
    };
    let profiler = Profiler::new().engine(engine).frequency_hz(frequency_hz);
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    let recording = profiler.start().unwrap();
    let with_sample = painted.touched(|| match ticks.as_str() {
        "sent" => raise_many(),
        _ => burn_through_ticks(&recording),
    });
    recording.stop().unwrap();
    let stats = recording.stats();
    assert!(stats.records > SAMPLES, "{stats}");
    let own = with_sample.saturating_sub(kernels);
    figure!(
        "by {ticks} ticks ({:?}): {own} bytes of the interrupted stack beside the {kernels} of the kernel's frame and an empty handler",
        stats.engine
    );
    assert!(own <= MOST, "{own}");
}
