//! Programs that are linked with the library, and call its functions.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::library::{include, program};
use crate::process::succeed;
use crate::support::{go_pprof, tool};

/// The size of a gperftools file before its text, and the sum of its counts.
fn legacy_sizes(file: &Path) -> (u64, u64) {
    let bytes = fs::read(file).unwrap();
    let slot = |i: usize| u64::from_ne_bytes(bytes[i * 8..][..8].try_into().unwrap());
    let (mut at, mut samples) = (5, 0);
    while [slot(at), slot(at + 1), slot(at + 2)] != [0, 1, 0] {
        samples += slot(at);
        at += 2 + slot(at + 1) as usize;
    }
    (8 * (at as u64 + 3), samples)
}

#[test]
fn a_programs_profile_shows_where_its_time_went() {
    let directory = tempfile::tempdir().unwrap();
    for compiler in ["cc", "c++"] {
        let file = directory.path().join("cpu.prof");
        let hot = program(compiler, "hot.c", directory.path());
        let output = succeed(Command::new(&hot).arg(&file));
        let said = String::from_utf8(output.stderr).unwrap();
        let figures = said.strip_prefix("PROFILE: interrupts/evictions/bytes = ");
        let figures: Vec<&str> = figures.unwrap_or(&said).trim_end().split('/').collect();
        let (bytes, counted) = legacy_sizes(&file);
        assert_eq!(figures[1..], ["0", &bytes.to_string()], "{said}");
        // The file counts time without a stack as well.
        let samples: u64 = figures[0].parse().unwrap();
        assert!((50..=counted).contains(&samples), "{said}: {counted}");

        let Some(go) = tool("go") else { return };
        let top = go_pprof(&go, &["-top"], &file);
        let rows = top.stdout.lines();
        let first = rows.skip_while(|line| !line.contains("flat%")).nth(1);
        let is_hot = first.is_some_and(|row| row.ends_with(" hot"));
        assert!(is_hot, "{compiler}: {}{}", top.stdout, top.stderr);
    }
}

#[test]
fn the_header_compiles_in_old_c_and_cpp() {
    for (compiler, language, standard) in [
        ("cc", "c", "-std=c90"),
        ("cc", "c", "-std=c17"),
        ("c++", "c++", "-std=c++98"),
        ("c++", "c++", "-std=c++20"),
    ] {
        let mut compile = Command::new(compiler);
        compile
            .args(["-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror"])
            .args([standard, "-x", language])
            .arg(include().join("gperftools/profiler.h"));
        succeed(&mut compile);
    }
}
