//! A program that profiles a call chain of its own, and judges what it finds: a module of the
//! tests, and a program by itself.
#![allow(dead_code, reason = "the tests have another main")]

use std::os::unix::fs::FileExt;
use std::time::Duration;

use sigprof::Profile;
use sigprof::cpu::Profiler;
use sigprof::profile::{Location, Mapping};

fn main() {
    profile_itself();
}

#[inline(never)]
fn inner(time: Duration) -> u64 {
    let end = cpu_time() + time;
    let mut value = 1_u64;
    while cpu_time() < end {
        let mut turn = 0;
        while turn < 1_000_000 {
            value = value.wrapping_mul(6_364_136_223_846_793_005) ^ turn;
            turn += 1;
        }
        std::hint::black_box(value);
    }
    value
}

/// CPU time of this thread. From a file, since this is compiled without the libc crate, too.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = stat.split(' ').next().unwrap();
    Duration::from_nanos(nanoseconds.parse().unwrap())
}

#[inline(never)]
fn middle(time: Duration) -> u64 {
    std::hint::black_box(inner(time)) ^ 1
}

#[inline(never)]
fn outer(time: Duration) -> u64 {
    std::hint::black_box(middle(time)) ^ 2
}

/// The functions that there are, by the address of their first instruction.
struct Functions([(u64, &'static str); 4]);

impl Functions {
    fn new() -> Self {
        let mut functions = [
            (inner as *const () as u64, "inner"),
            (middle as *const () as u64, "middle"),
            (outer as *const () as u64, "outer"),
            (profile_itself as *const () as u64, "profile_itself"),
        ];
        functions.sort_unstable();
        Self(functions)
    }

    /// The function that holds an address: the next one below, if it is near.
    fn of(&self, address: u64) -> &'static str {
        let after = self.0.partition_point(|&(start, _)| start <= address);
        let last = after.checked_sub(1).map(|last| self.0[last]);
        last.filter(|&(start, _)| address - start < 0x4000)
            .map_or("?", |(_, name)| name)
    }
}

/// Records the chain of calls, and panics if it is not what it must be. `SIGPROF_PROBE_NAMES` says
/// that it must have names.
#[inline(never)]
pub fn profile_itself() {
    let executable = std::fs::File::open("/proc/self/exe").unwrap();
    let path = std::fs::read_link("/proc/self/exe").unwrap();
    let path = path.to_str().unwrap();
    take_away(path);
    let recording = Profiler::new().frequency_hz(1000).start().unwrap();
    std::hint::black_box(outer(Duration::from_millis(400)));
    let profile = recording.stop().unwrap();
    let stats = recording.stats();

    let functions = Functions::new();
    let (mut in_inner, mut whole) = (0, 0);
    let mut other = None;
    for sample in profile.samples() {
        let stack: Vec<&Location> = sample
            .stack
            .iter()
            .map(|&id| profile.location(id))
            .collect();
        let names: Vec<&str> = stack
            .iter()
            .map(|location| functions.of(location.address))
            .collect();
        if names.first() != Some(&"inner") {
            continue;
        }
        in_inner += sample.values[0];
        // A stack that is cut short ends in a frame without an address.
        let is_whole = names.starts_with(&["inner", "middle", "outer", "profile_itself"])
            && stack.last().is_some_and(|location| location.address != 0);
        match is_whole {
            true => whole += sample.values[0],
            false => other = Some(names),
        }
        for location in &stack[..3.min(stack.len())] {
            judge_location(&profile, location, path, &executable);
        }
        if std::env::var_os("SIGPROF_PROBE_NAMES").is_some() {
            for (location, name) in stack.iter().zip(["inner", "middle", "outer"]) {
                judge_name(&profile, location, name);
            }
        }
    }
    eprintln!("figure: {path}: {whole} of {in_inner} samples have whole stacks");
    assert!(in_inner >= 30, "{stats}");
    assert_eq!(whole, in_inner, "{other:?}\n{stats}");
    assert_eq!(
        profile.mappings()[0].filename,
        path,
        "the first is the program's"
    );
}

/// Does to the program's own file what it was told to.
fn take_away(path: &str) {
    if std::env::var_os("SIGPROF_PROBE_DELETES").is_some() {
        std::fs::remove_file(path).unwrap();
    }
    if let Some(replacement) = std::env::var_os("SIGPROF_PROBE_REPLACEMENT") {
        std::fs::rename(replacement, path).unwrap();
    }
}

/// A location lies in a mapping of the program's, and at the place in its file that holds the same
/// code.
fn judge_location(profile: &Profile, location: &Location, path: &str, executable: &std::fs::File) {
    let mapping: &Mapping = profile.mapping(location.mapping.expect("it is mapped"));
    assert_eq!(mapping.filename, path);
    assert!((mapping.memory_start..mapping.memory_limit).contains(&location.address));
    let mut in_file = [0; 16];
    let offset = location.address - mapping.memory_start + mapping.file_offset;
    executable.read_exact_at(&mut in_file, offset).unwrap();
    // SAFETY: code of this program's, with more behind it.
    let in_memory = unsafe { std::slice::from_raw_parts(location.address as *const u8, 16) };
    assert_eq!(in_file, in_memory);
}

fn judge_name(profile: &Profile, location: &Location, name: &str) {
    let last = location.lines.last().expect("it has a name");
    let found = profile.string(profile.function(last.function).name);
    assert!(
        found == name || found.ends_with(&format!("::{name}")),
        "{found} is {name}"
    );
}
