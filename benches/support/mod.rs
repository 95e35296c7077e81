//! Stacks to record, and signals to record them with.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use sigprof::cpu::Profiler;

/// Frames of a stack where a benchmark does not say otherwise.
pub const DEPTH: usize = 30;

/// Signals raised in one go: far fewer than a lane of the ring holds at the greatest depth here.
pub const BURST: u32 = 64;

/// Distinct stacks of a large profile. Tests, which `cargo bench` is not, are content with fewer.
pub fn stacks() -> u32 {
    match std::env::args().any(|argument| argument == "--bench") {
        true => 20_000,
        false => 500,
    }
}

/// A profiler that leaves names to who wants them.
pub fn profiler(frequency_hz: u32) -> Profiler {
    let profiler = Profiler::new().frequency_hz(frequency_hz);
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler
}

/// Sends this thread a signal, which is handled before the call returns.
#[inline(never)]
pub fn raise(signal: libc::c_int) {
    // SAFETY: raise has no preconditions; who benchmarks has installed a handler.
    unsafe { libc::raise(signal) };
}

/// Lets the flusher take what a burst has left in the lanes.
pub fn pause() {
    thread::sleep(Duration::from_millis(2));
}

/// Calls `leaf` under `depth` frames of this function, each of which keeps values across its call,
/// as most functions do.
#[inline(never)]
pub fn descend(depth: u64, leaf: &mut dyn FnMut()) -> u64 {
    if depth == 0 {
        leaf();
        return 0;
    }
    let (a, b) = (black_box(depth), black_box(depth + 1));
    let below = descend(black_box(depth - 1), leaf);
    // Opaque, or the recursion would become a loop.
    black_box(black_box(below) + a) ^ b
}

/// Raises a `SIGPROF` under each of `count` stacks that differ.
pub fn raise_in_distinct_stacks(count: u32) {
    for number in 0..count {
        if number % BURST == 0 {
            pause();
        }
        let mut chain = Chain { number };
        black_box(chain.call_level(0));
    }
}

/// Levels of a chain: more than [`DEPTH`] with what lies above and below, so that the profiler can
/// cut stacks to that.
const CHAIN_LEVELS: u32 = 27;

/// A chain of calls that no other number has. Each level is one of 256 functions: the number's
/// bytes pick the innermost ones, a hash the others, so that chains share little, as in a program
/// with much code.
struct Chain {
    number: u32,
}

impl Chain {
    #[inline(always)]
    fn call_level(&mut self, level: u32) -> usize {
        if level == CHAIN_LEVELS {
            raise(libc::SIGPROF);
            return 0;
        }
        let pick = match CHAIN_LEVELS - 1 - level {
            below @ 0..4 => self.number >> (8 * below),
            _ => (self.number ^ level.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b) >> 24,
        };
        let pick = (pick & 0xff) as usize;
        STEPS[pick / 16][pick % 16](self, level)
    }
}

type Step = fn(&mut Chain, u32) -> usize;

/// Each uses its name, so that no two are the same code, which the compiler would merge.
macro_rules! modules_of_steps {
    ($($module:ident)*) => {
        $(mod $module {
            steps!(a b c d e f g h i j k l m n o p);
        })*
        static STEPS: [[Step; 16]; 16] = [$($module::STEPS),*];
    };
}

macro_rules! steps {
    ($($step:ident)*) => {
        $(#[inline(never)]
        fn $step(chain: &mut super::Chain, level: u32) -> usize {
            let below = chain.call_level(level + 1);
            let name = std::hint::black_box(concat!(module_path!(), "::", stringify!($step)));
            std::hint::black_box(below) + name.len()
        })*
        pub(super) const STEPS: [super::Step; 16] = [$($step),*];
    };
}

modules_of_steps!(a b c d e f g h i j k l m n o p);
