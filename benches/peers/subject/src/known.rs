//! Work whose CPU time is known: each part of it is timed by its thread's own clock, which no
//! profiler owns.

use std::hint::black_box;
use std::time::Duration;

use crate::proc;

/// Computes until the thread's own clock says so, and hands back what it took.
///
/// It looks at the clock after 0.2 to 0.4 ms, never the same: work of equal pieces could fall into
/// step with the kernel's tick, which comes every few ms, and be sampled at the same place every
/// time.
macro_rules! burn {
    ($time:expr) => {{
        let begin_ns = proc::thread_cpu_time_ns();
        let end_ns = begin_ns + $time.as_nanos() as u64;
        let mut lengths = Lengths::new(end_ns);
        loop {
            let now_ns = proc::thread_cpu_time_ns();
            if now_ns >= end_ns {
                break Duration::from_nanos(now_ns - begin_ns);
            }
            let mut value = now_ns | 1;
            for _ in 0..lengths.next(120_000) {
                value ^= value << 13;
                value ^= value >> 7;
                value ^= value << 17;
            }
            black_box(value);
        }
    }};
}

/// Lengths between once and twice a given one, from a generator that needs no more than to be
/// irregular (xorshift32).
struct Lengths(u32);

impl Lengths {
    fn new(seed: u64) -> Self {
        Self(seed as u32 | 1)
    }

    fn next(&mut self, least: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        least + self.0 % least
    }
}

/// A function that burns CPU time.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The function's name, without the modules that it is in.
    pub name: &'static str,
    /// How much of a hundred it is given.
    percent: u32,
    burn: fn(Duration) -> Duration,
    /// Where its code lies, for a profile that holds addresses alone.
    #[cfg(feature = "gperftools")]
    code: fn() -> std::ops::Range<u64>,
}

/// The functions. Each lies in a section of its own, whose bounds the linker names.
macro_rules! parts {
    ($($name:ident: $percent:literal, $section:literal from $start:literal to $stop:literal;)*) => {
        $(
            #[inline(never)]
            #[unsafe(link_section = $section)]
            fn $name(time: Duration) -> Duration {
                // Its name is in its code, or the compiler would see that all parts are the same.
                black_box(stringify!($name));
                burn!(time)
            }
        )*

        pub const PARTS: [Part; [$($section),*].len()] = [$(Part {
            name: stringify!($name),
            percent: $percent,
            burn: $name,
            #[cfg(feature = "gperftools")]
            code: || {
                unsafe extern "C" {
                    #[link_name = $start]
                    static START: u8;
                    #[link_name = $stop]
                    static STOP: u8;
                }
                (&raw const START) as u64..(&raw const STOP) as u64
            },
        }),*];
    };
}

parts! {
    burn_sixty: 60, "sixty" from "__start_sixty" to "__stop_sixty";
    burn_twenty_five: 25, "twenty_five" from "__start_twenty_five" to "__stop_twenty_five";
    burn_ten: 10, "ten" from "__start_ten" to "__stop_ten";
    burn_five: 5, "five" from "__start_five" to "__stop_five";
}

impl Part {
    /// Whether the function holds an address.
    #[cfg(feature = "gperftools")]
    pub fn holds(&self, address: u64) -> bool {
        (self.code)().contains(&address)
    }
}

/// Gives each part its share of `time`, in turns of 10 to 20 ms, and hands back what each took.
pub fn burn_in_parts(time: Duration) -> [Duration; PARTS.len()] {
    let mut spent = [Duration::ZERO; PARTS.len()];
    let mut lengths = Lengths::new(proc::thread_cpu_time_ns());
    while spent.iter().sum::<Duration>() < time {
        let turn = Duration::from_micros(lengths.next(10_000).into());
        for (part, spent) in PARTS.iter().zip(&mut spent) {
            *spent += (part.burn)(turn * part.percent / 100);
        }
    }
    spent
}

/// Burns CPU time in one function, and hands back what it took.
#[inline(never)]
pub fn burn(time: Duration) -> Duration {
    burn!(time)
}
