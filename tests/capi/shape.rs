//! What a loader sees of the library.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::library::library;
use crate::support::{run, tool};

/// What `readelf` says of the library.
fn readelf(options: &[&str]) -> Option<String> {
    let readelf = tool("readelf")?;
    let mut command = Command::new(readelf);
    Some(run(command.args(options).arg(library())).stdout)
}

#[test]
fn the_library_exports_the_headers_functions_and_nothing_else() {
    let Some(symbols) = readelf(&["--wide", "--dyn-syms"]) else {
        return;
    };
    let exported: BTreeSet<&str> = symbols
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.len() == 8 && words[6] != "UND" && words[4] != "LOCAL")
        .map(|words| words[7])
        .filter(|name| *name != "Name")
        .collect();

    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/gperftools/profiler.h");
    let header = std::fs::read_to_string(header).unwrap();
    let declared: BTreeSet<&str> = header
        .lines()
        .filter(|line| line.starts_with("PERFTOOLS_DLL_DECL "))
        .filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back())
        .collect();
    assert_eq!(exported, declared);
    assert!(declared.contains("ProfilerStart"), "{declared:?}");
}

#[test]
fn the_library_has_a_name_and_stays_in_memory() {
    let Some(dynamic) = readelf(&["--wide", "--dynamic"]) else {
        return;
    };
    let has = |words: &[&str]| {
        let mut lines = dynamic.lines();
        lines.any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(has(&["SONAME", "[libsigprof.so]"]), "{dynamic}");
    assert!(has(&["FLAGS_1", "NODELETE"]), "{dynamic}");
    // A program that has many libraries can still load this one late.
    assert!(!has(&["STATIC_TLS"]), "{dynamic}");
}
