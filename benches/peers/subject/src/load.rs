//! Stacks of a known depth, distinct stacks in any number, and threads that keep busy.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

/// Calls `leaf` under `depth` frames of this function.
///
/// It keeps values across the call, as most functions do, so that each frame has saved registers
/// (without frame pointers rbp among them), and unwind tables say so. What comes back passes
/// through `black_box`: without that LLVM folds the values into one, and the recursion into a loop.
#[inline(never)]
pub fn descend(depth: u64, leaf: &mut dyn FnMut()) -> u64 {
    if depth == 0 {
        leaf();
        return 0;
    }
    let (a, b, c) = (black_box(depth), black_box(depth + 1), black_box(depth + 2));
    let below = descend(black_box(depth - 1), leaf);
    black_box(black_box(black_box(below) + a) ^ b) + c
}

/// Sends this thread a SIGPROF, which is handled before the call returns.
#[inline(never)]
pub fn tick() {
    // SAFETY: raise has no preconditions. The recorder has installed a handler, so the signal does
    // not kill.
    unsafe { libc::raise(libc::SIGPROF) };
}

/// Sends this thread a signal that [`handle_in_vain`] has a handler for.
#[inline(never)]
pub fn tick_in_vain() {
    // SAFETY: as above.
    unsafe { libc::raise(libc::SIGUSR1) };
}

/// Installs an empty handler, as a profiler would its own.
pub fn handle_in_vain() -> Result<()> {
    extern "C" fn on_nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    // SAFETY: all zeroes are a valid sigaction; it is complete when it is installed, and its
    // handler does nothing.
    let returned = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_nothing as Handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut())
    };
    match returned {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

/// Levels of a chain from [`unique_chain`]. With the frames above and below it a stack is 30 frames
/// deep.
const CHAIN_LEVELS: u32 = 18;

/// Calls `leaf` under a chain of calls that no other number has.
///
/// Each level is one of 256 functions. The lowest bytes of the number pick the first ones, which
/// makes the chain unique; a hash picks the others, so that chains share little, as in a program
/// with much code.
pub fn unique_chain(number: u32, leaf: &mut dyn FnMut()) {
    let mut chain = Chain { number, leaf };
    black_box(chain.call_level(0));
}

struct Chain<'a> {
    number: u32,
    leaf: &'a mut dyn FnMut(),
}

impl Chain<'_> {
    fn pick(&self, level: u32) -> usize {
        let byte = match level {
            0..4 => self.number >> (8 * level),
            _ => (self.number ^ level.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b) >> 24,
        };
        (byte & 0xff) as usize
    }

    #[inline(always)]
    fn call_level(&mut self, level: u32) -> usize {
        if level == CHAIN_LEVELS {
            (self.leaf)();
            return 0;
        }
        let pick = self.pick(level);
        STEPS[pick / 16][pick % 16](self, level)
    }
}

type Step = fn(&mut Chain<'_>, u32) -> usize;

/// Functions with names of their own, which generic ones would not have: some profilers tell stacks
/// apart by name. Each uses its name, so that no two are the same code, which the compiler would
/// merge.
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
        fn $step(chain: &mut super::Chain<'_>, level: u32) -> usize {
            let below = chain.call_level(level + 1);
            let name = std::hint::black_box(concat!(module_path!(), "::", stringify!($step)));
            std::hint::black_box(below) + name.len()
        })*
        pub(super) const STEPS: [super::Step; 16] = [$($step),*];
    };
}

modules_of_steps!(a b c d e f g h i j k l m n o p);

/// Computes until told to stop.
pub fn spin(stop: &AtomicBool) {
    let mut value = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            value = black_box(
                value
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
}

/// Computes for a while.
pub fn spin_for(duration: Duration) {
    let start = Instant::now();
    let mut value = 1_u64;
    while start.elapsed() < duration {
        for _ in 0..1000 {
            value = black_box(
                value
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
}

/// Threads that compute or wait until this is dropped.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Crowd {
    pub fn new(count: usize, busy: bool) -> Self {
        Self::of(count, busy, &thread::Builder::new)
    }

    /// Threads that wait, in so many that stacks of the usual size would be much.
    pub fn waiting(count: usize) -> Self {
        Self::of(count, false, &|| {
            thread::Builder::new().stack_size(64 << 10)
        })
    }

    fn of(count: usize, busy: bool, builder: &dyn Fn() -> thread::Builder) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count)
            .map(|_| {
                let stop = Arc::clone(&stop);
                builder()
                    .spawn(move || {
                        if busy {
                            spin(&stop);
                        } else {
                            while !stop.load(Ordering::Relaxed) {
                                thread::park();
                            }
                        }
                    })
                    .expect("the system gives a measurement the threads it asks for")
            })
            .collect();
        Self { stop, threads }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A thread that panicked has said so on stderr already.
            let _ = thread.join();
        }
    }
}
