//! Outside programs that tests compare with.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{output, skip};

/// Where to get the programs.
const INSTALL: [(&str, &str); 12] = [
    ("go", "apt-get install golang-go"),
    ("google-pprof", "apt-get install google-perftools"),
    ("gprof", "apt-get install binutils"),
    ("readelf", "apt-get install binutils"),
    ("gcc", "apt-get install gcc libc6-dev"),
    ("python3", "apt-get install python3"),
    ("xz", "apt-get install xz-utils"),
    ("make", "apt-get install make"),
    ("perl", "apt-get install perl"),
    ("sqlite3", "apt-get install sqlite3"),
    ("curl", "apt-get install curl"),
    ("redis-check-rdb", "apt-get install redis-tools"),
];

/// The path of a program that a test needs. Without it the test is to return early: a line on
/// stderr says that it was skipped.
///
/// # Panics
///
/// If the program is missing and `SIGPROF_REQUIRE_TOOLS=1`, with the command that installs it;
/// unless `SIGPROF_SKIP_TOOLS` (names with commas between them) has it as one that cannot be had
/// here.
pub fn tool(name: &str) -> Option<PathBuf> {
    let found = match name {
        // Some distributions call it `pprof`. google/pprof, which is called that everywhere, is no
        // Perl script.
        "google-pprof" => on_path(name).or_else(|| on_path("pprof").filter(|path| is_perl(path))),
        _ => on_path(name),
    };
    if found.is_none() {
        let install = INSTALL.iter().find(|(tool, _)| *tool == name);
        let install = install.map_or("install it", |(_, command)| command);
        let is_required = std::env::var_os("SIGPROF_REQUIRE_TOOLS").is_some_and(|v| v == "1");
        let to_skip = std::env::var("SIGPROF_SKIP_TOOLS").unwrap_or_default();
        if is_required && !to_skip.split(',').any(|tool| tool == name) {
            panic!("this test needs `{name}`: {install}");
        }
        skip(&format!("it needs `{name}`: {install}"));
    }
    found
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

fn is_perl(program: &Path) -> bool {
    let bytes = std::fs::read(program).unwrap_or_default();
    let first_line = bytes.split(|&b| b == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(first_line).contains("perl")
}

/// What a program printed.
pub struct Output {
    pub stdout: String,
    pub stderr: String,
}

/// Runs a program to its end.
///
/// # Panics
///
/// If it fails, with what it printed, or hangs, with what it waits in.
pub fn run(command: &mut Command) -> Output {
    let output = output(command).unwrap_or_else(|e| panic!("{command:?} cannot be run: {e}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{command:?} failed ({}):\n{stdout}\n{stderr}",
        output.status
    );
    Output { stdout, stderr }
}

/// Runs `go tool pprof` with these options on a file; times are in UTC, and nothing is looked for
/// outside the machine.
pub fn go_pprof(go: &Path, options: &[&str], file: &Path) -> Output {
    let mut command = Command::new(go);
    command.args(["tool", "pprof"]).args(options).arg(file);
    command.env("TZ", "UTC").env("DEBUGINFOD_URLS", "");
    run(&mut command)
}
