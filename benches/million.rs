//! What writing and reading a profile of 1,000,000 samples of 100,000 stacks of 64 frames costs in
//! each format: CPU time, the median of rounds, and the most memory that was held meanwhile, beside
//! the file's bytes and the profile that was there before. Arguments are the formats to try, all
//! else.

use std::fs;
use std::time::Duration;

use sigprof::{Format, Profile};

#[path = "../tests/support/large.rs"]
mod large;
#[path = "../tests/support/work.rs"]
mod work;

use work::thread_cpu;

/// How large the profile is, and how often each format is written and read.
struct Amount {
    samples: usize,
    stacks: usize,
    rounds: usize,
}

const ALL: Amount = Amount {
    samples: 1_000_000,
    stacks: 100_000,
    rounds: 7,
};
/// `cargo test` only wants to see that this works.
const LEAST: Amount = Amount {
    samples: 2_000,
    stacks: 500,
    rounds: 1,
};
const FRAMES: usize = 64;

const FORMATS: [Format; 5] = [
    Format::Pprof,
    Format::PprofUncompressed,
    Format::CpuProfile,
    Format::Gmon,
    Format::Collapsed,
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let amount = match arguments.iter().any(|argument| argument == "--bench") {
        true => ALL,
        false => LEAST,
    };
    let is_asked_for = |format: &Format| {
        let mut asked = arguments.iter().filter(|a| !a.starts_with('-')).peekable();
        asked.peek().is_none() || asked.any(|name| *name == format!("{format:?}"))
    };
    let profile = large::large(amount.samples, amount.stacks, FRAMES);
    println!("| format | file | written in | with | read in | with |");
    println!("|---|---|---|---|---|---|");
    for format in FORMATS.into_iter().filter(is_asked_for) {
        let [mut written, mut read] = [const { Vec::new() }; 2];
        // Memory for the file is there before, as a file's buffers are.
        let mut file = Vec::new();
        profile.write(format, &mut file).unwrap();
        for _ in 0..amount.rounds {
            file.clear();
            written.push(Cost::of(|| profile.write(format, &mut file).unwrap()));
            read.push(Cost::of(|| drop(Profile::read(&file).unwrap())));
        }
        let [written, read] = [written, read].map(Cost::median);
        println!(
            "| {format:?} | {:.1} MB | {:.0?} | {:.0} MiB | {:.0?} | {:.0} MiB |",
            file.len() as f64 / 1e6,
            written.cpu,
            written.memory as f64 / MIB,
            read.cpu,
            read.memory as f64 / MIB,
        );
    }
}

const MIB: f64 = (1 << 20) as f64;

struct Cost {
    cpu: Duration,
    /// Bytes at the peak that were not resident before.
    memory: u64,
}

impl Cost {
    fn of(work: impl FnOnce()) -> Self {
        // SAFETY: has no preconditions. What was freed before is not to be taken for new memory.
        unsafe { libc::malloc_trim(0) };
        // The peak begins anew with what is resident now (proc(5)).
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let (before, begin) = (peak(), thread_cpu());
        work();
        Self {
            cpu: thread_cpu() - begin,
            memory: peak() - before,
        }
    }

    fn median(costs: Vec<Self>) -> Self {
        let (mut cpu, mut memory): (Vec<_>, Vec<_>) = costs
            .into_iter()
            .map(|cost| (cost.cpu, cost.memory))
            .unzip();
        cpu.sort_unstable();
        memory.sort_unstable();
        Self {
            cpu: cpu[cpu.len() / 2],
            memory: memory[memory.len() / 2],
        }
    }
}

/// The most bytes that were ever resident.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse::<u64>().unwrap() << 10
}
