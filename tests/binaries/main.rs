//! Programs of odd forms that profile themselves: not one of them may cost a stack its end. Most
//! are copies of this test's own executable, changed; those of other relocation models are linked
//! from the library that it was linked from.

#[path = "../support/compile.rs"]
mod compile;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;

#[cfg(target_env = "gnu")]
mod namespaces;
mod probe;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use process::{child, succeed, succeed_and_show};
use support::tool;

#[test]
#[ignore = "a child process"]
fn child_that_profiles_itself() {
    probe::profile_itself();
}

/// The command that [`child`] makes, for a copy of this program.
fn child_in(program: &Path) -> Command {
    let original = child("child_that_profiles_itself");
    let mut command = Command::new(program);
    command.args(original.get_args());
    command
}

/// Whether stacks have names where symbols are at hand.
fn ask_for_names(command: &mut Command) -> &mut Command {
    if cfg!(feature = "symbolize") {
        command.env("SIGPROF_PROBE_NAMES", "1");
    }
    command
}

/// A copy of this program in a directory of its own.
fn copy() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    (directory, program)
}

#[test]
fn a_stripped_program_has_whole_stacks() {
    let Some(strip) = tool("strip") else { return };
    let (_directory, program) = copy();
    succeed(Command::new(strip).arg("-s").arg(&program));
    succeed_and_show(&mut child_in(&program));
}

#[test]
fn a_program_that_is_deleted_while_it_runs_has_whole_stacks() {
    let (_directory, program) = copy();
    let mut command = child_in(&program);
    succeed_and_show(ask_for_names(command.env("SIGPROF_PROBE_DELETES", "1")));
    assert!(!program.exists());
}

#[test]
fn a_program_that_is_replaced_while_it_runs_has_whole_stacks() {
    let (directory, program) = copy();
    let replacement = directory.path().join("replacement");
    fs::copy("/bin/sh", &replacement).unwrap();
    let mut command = child_in(&program);
    command.env("SIGPROF_PROBE_REPLACEMENT", &replacement);
    succeed_and_show(ask_for_names(&mut command));
    assert!(!replacement.exists());
}

#[test]
fn a_program_without_section_headers_has_whole_stacks() {
    let (_directory, program) = copy();
    let mut bytes = fs::read(&program).unwrap();
    // `e_shoff`, and `e_shnum` with `e_shstrndx` (elf(5)).
    for field in [0x28..0x30, 0x3c..0x40] {
        bytes[field].fill(0);
    }
    fs::write(&program, bytes).unwrap();
    succeed_and_show(&mut child_in(&program));
}

/// Links the program by itself, with flags of rustc's, and runs it.
fn run_linked(kind: &str, flags: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let program = compile::program(directory.path(), "tests/binaries/probe.rs", flags);
    assert_eq!(kind_of(&program), kind);
    succeed_and_show(&mut Command::new(&program));
}

/// Whether a program is loaded at the place it was linked for, and whether it has a loader.
fn kind_of(program: &Path) -> String {
    let headers = succeed(Command::new("readelf").arg("-hlW").arg(program));
    let headers = String::from_utf8_lossy(&headers.stdout).into_owned();
    let place = match headers.contains("DYN (") {
        true => "anywhere",
        false => "in place",
    };
    let loader = match headers.contains("INTERP") {
        true => "by the loader",
        false => "by itself",
    };
    format!("{place}, {loader}")
}

#[test]
fn a_program_in_a_fixed_place_has_whole_stacks() {
    if tool("readelf").is_some() {
        run_linked("in place, by the loader", &["-Crelocation-model=static"]);
    }
}

#[test]
#[cfg(target_env = "gnu")]
fn a_static_program_has_whole_stacks() {
    if tool("readelf").is_some() {
        run_linked("anywhere, by itself", &["-Ctarget-feature=+crt-static"]);
    }
}

#[test]
#[cfg(target_env = "gnu")]
fn a_static_program_in_a_fixed_place_has_whole_stacks() {
    if tool("readelf").is_some() {
        run_linked(
            "in place, by itself",
            &["-Ctarget-feature=+crt-static", "-Crelocation-model=static"],
        );
    }
}
