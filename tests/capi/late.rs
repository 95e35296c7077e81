//! The library, loaded by a program that runs already.

use std::path::Path;
use std::process::Command;

use crate::legacy::Legacy;
use crate::library::{compiled, library, plain, shared};
use crate::process::succeed;

/// The program that loads these libraries, recorded for the file `cpu` in a directory.
fn late(directory: &Path, libraries: &[&Path]) -> Command {
    let program = compiled("cc", "late.c", directory, &[]);
    let mut command = plain(&program);
    command.args(libraries).current_dir(directory);
    command.env("CPUPROFILE", "cpu");
    command.env("CPUPROFILE_FREQUENCY", "1000");
    command
}

/// Asserts that the file has the work after so many libraries, 200 periods each.
fn has_work(directory: &Path, times: u64) {
    let counted = Legacy::read(&directory.join("cpu")).counted();
    assert!(counted >= times * 200 * 95 / 100, "{counted}");
}

#[test]
fn a_program_loads_it_while_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let output = succeed(&mut late(directory, &[library()]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    has_work(directory, 1);
}

#[test]
fn another_library_waits_for_a_thread_while_it_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let waits = shared("waits", directory, &[]);
    let output = succeed(&mut late(directory, &[library(), &waits]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    has_work(directory, 2);
}

#[test]
fn no_room_for_static_thread_locals_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = shared("static_tls", directory, &[]);
    let takers: Vec<_> = (0..64)
        .map(|i| {
            let copy = directory.join(format!("libtaker{i}.so"));
            std::fs::copy(&first, &copy).unwrap();
            copy
        })
        .collect();
    let libraries = takers.iter().map(|taker| &**taker).chain([library()]);
    let libraries: Vec<&Path> = libraries.collect();
    let output = succeed(&mut late(directory, &libraries));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("static TLS"), "{stdout}");
    assert!(!stdout.contains("libsigprof"), "{stdout}");
    has_work(directory, 1);
}
