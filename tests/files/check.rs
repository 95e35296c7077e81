//! What the tests record, and what they look at afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sigprof::Profile;
use sigprof::cpu::Profiler;

use crate::process::child;
use crate::support::{go_pprof, tool};

/// Ticks of [`work`]. The clocks of the process's threads add their own.
pub const TICKS: i64 = 20;

/// What a directory of the tests is called in the environment of a child.
const DIRECTORY: &str = "SIGPROF_TEST_DIRECTORY";

/// Work that is worth [`TICKS`] ticks.
pub fn work() {
    for _ in 0..TICKS {
        // SAFETY: a signal to the calling thread.
        unsafe { libc::raise(libc::SIGPROF) };
    }
}

/// Addresses are enough here.
pub fn profiler() -> Profiler {
    let profiler = Profiler::new();
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler
}

/// Nothing is recorded, so that a recording can start.
pub fn assert_nothing_runs() {
    profiler().start().unwrap().stop().unwrap();
}

/// What lies in a directory, in order.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Our reader and google/pprof's take the file whole, and it holds at least what [`work`] is worth.
pub fn assert_complete(file: &Path) -> Profile {
    let profile = Profile::open(file).unwrap();
    let total = profile.total(0);
    assert!(total >= TICKS, "{total} ticks");
    if let Some(go) = tool("go") {
        let raw = go_pprof(&go, &["-raw", "-symbolize=none"], file);
        assert_eq!(raw.stderr, "", "{file:?}");
        let samples = raw.stdout.lines();
        let samples = samples
            .skip_while(|line| *line != "Samples:")
            .take_while(|line| *line != "Locations");
        let counts = samples.filter_map(|line| {
            let (values, _) = line.split_once(':')?;
            values.split_whitespace().next()?.parse::<i64>().ok()
        });
        assert_eq!(counts.sum::<i64>(), total, "{}", raw.stdout);
        let period = format!("Period: {}\n", profile.period);
        assert!(raw.stdout.contains(&period), "{}", raw.stdout);
    }
    profile
}

/// A child that finds this directory with [`directory`].
pub fn child_in(directory: &Path, test: &str) -> Command {
    let mut command = child(test);
    command.env(DIRECTORY, directory);
    command
}

/// The directory that the parent test chose.
pub fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os(DIRECTORY).expect("set by `child_in`"))
}

pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}
