//! The tools of the field read what we write, and show what we show.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sigprof::Profile;
use sigprof::profile::{Function, Line, Location, Mapping, ValueType};

use super::hostile::one_stack;
use super::samples::by_hand;
use crate::large::large;
use crate::support::{go_pprof, run, tool};

/// A program with a function of its own and one in a library, which prints where they are and what
/// is mapped.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
extern int in_library(int);
__attribute__((noinline)) int in_program(int x) { return in_library(x) * 3 + 1; }
int main(int argc, char **argv) {
    char line[4096];
    printf("%p %p %p %d\n", (void *)main, (void *)in_program, (void *)in_library, in_program(argc));
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) fputs(line, stdout);
    return 0;
}
"#;
const LIBRARY: &str = "__attribute__((noinline)) int in_library(int x) { return x * 7 + 2; }";

/// A profile of that program, with samples in all three functions and one that was lost.
struct Compiled {
    _directory: tempfile::TempDir,
    program: PathBuf,
    build_id: String,
    profile: Profile,
}

fn compile(gcc: &Path, readelf: &Path, option: &str) -> Compiled {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().canonicalize().unwrap().join(name);
    fs::write(at("program.c"), PROGRAM).unwrap();
    fs::write(at("library.c"), LIBRARY).unwrap();
    let compile = |arguments: &[&str]| {
        let common = ["-O1", "-g", "-fno-omit-frame-pointer", "-Wl,--build-id"];
        run(Command::new(gcc)
            .args(common)
            .args(arguments)
            .current_dir(directory.path()));
    };
    compile(&[
        "-shared",
        "-fPIC",
        "-Wl,-soname,libexample.so.1",
        "-o",
        "libexample.so.1",
        "library.c",
    ]);
    compile(&[
        option,
        "-o",
        "program",
        "program.c",
        "-L.",
        "-l:libexample.so.1",
        "-Wl,-rpath,$ORIGIN",
    ]);
    let program = at("program");
    let output = run(&mut Command::new(&program)).stdout;
    let (first, maps) = output.split_once('\n').unwrap();
    let addresses: Vec<u64> = first
        .split_whitespace()
        .take(3)
        .map(|a| u64::from_str_radix(a.trim_start_matches("0x"), 16).unwrap())
        .collect();

    let mut profile = Profile::new(vec![
        ValueType::new("samples", "count"),
        ValueType::new("cpu", "nanoseconds"),
    ]);
    profile.period_type = ValueType::new("cpu", "nanoseconds");
    profile.period = 10_000_000;
    let build_id = |path: &str| {
        if !path.starts_with('/') {
            return String::new();
        }
        let notes = run(Command::new(readelf).args(["-n", path])).stdout;
        let line = notes
            .lines()
            .find_map(|l| l.trim().strip_prefix("Build ID: "));
        line.unwrap_or("").to_owned()
    };
    let mut mappings = Vec::new();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, limit) = words[0].split_once('-').unwrap();
        let number = |digits| u64::from_str_radix(digits, 16).unwrap();
        let path = words.get(5).copied().unwrap_or("");
        if words[1].contains('x') {
            let mapping = Mapping {
                memory_start: number(start),
                memory_limit: number(limit),
                file_offset: number(words[2]),
                filename: path.to_owned(),
                build_id: build_id(path),
                ..Mapping::default()
            };
            mappings.push(profile.push_mapping(mapping));
        }
    }
    let location = |profile: &mut Profile, address: u64| {
        let holds = |m: &Mapping| (m.memory_start..m.memory_limit).contains(&address);
        let mapping = profile
            .mappings()
            .iter()
            .position(holds)
            .map(|i| mappings[i]);
        assert!(mapping.is_some());
        profile.push_location(Location {
            mapping,
            address,
            ..Location::default()
        })
    };
    let [main, in_program, in_library] = addresses[..] else {
        panic!("three addresses in `{first}`");
    };
    let main = location(&mut profile, main + 8);
    let in_program = location(&mut profile, in_program + 8);
    let in_library = location(&mut profile, in_library + 1);
    let lost = profile.intern("[lost]");
    let function = profile.push_function(Function {
        name: lost,
        system_name: lost,
        ..Function::default()
    });
    let line = Line {
        function,
        line: 0,
        column: 0,
    };
    let lost = profile.push_location(Location {
        lines: vec![line],
        ..Location::default()
    });
    // One path in all: the frames that google/pprof would delete are not these.
    for (stack, count) in [
        (&[in_library, in_program, main][..], 40),
        (&[in_program, main], 30),
        (&[main], 20),
        (&[lost], 10),
    ] {
        profile.push_sample(stack, &[count, count * 10_000_000], &[]);
    }
    Compiled {
        build_id: profile.mappings()[0].build_id.clone(),
        program,
        profile,
        _directory: directory,
    }
}

/// The mapping lines of `pprof -raw`.
fn raw_mappings(raw: &str) -> Vec<&str> {
    raw.lines()
        .skip_while(|l| *l != "Mappings")
        .skip(1)
        .collect()
}

#[test]
fn a_gperftools_file_serves_both_readers() {
    let (Some(go), Some(perl)) = (tool("go"), tool("google-pprof")) else {
        return;
    };
    let (Some(gcc), Some(readelf)) = (tool("gcc"), tool("readelf")) else {
        return;
    };
    for option in ["-pie", "-no-pie"] {
        let compiled = compile(&gcc, &readelf, option);
        let file = compiled.program.with_file_name("cpu.prof");
        compiled.profile.save(&file).unwrap();
        let program = compiled.program.to_str().unwrap();

        let raw = go_pprof(&go, &["-raw"], &file);
        let warnings = raw.stderr.lines().filter(|l| !l.starts_with("Fetching"));
        assert_eq!(warnings.count(), 0, "{option}: {}", raw.stderr);
        let mappings = raw_mappings(&raw.stdout);
        let main = format!(" {program} {} ", compiled.build_id);
        assert!(
            mappings[0].starts_with("1: ") && mappings[0].contains(&main),
            "{mappings:#?}"
        );
        assert!(
            mappings.iter().any(|m| m.contains("libexample.so.1 ")),
            "{mappings:#?}"
        );
        assert_eq!(
            mappings.len(),
            3,
            "with [lost], those that samples lie in: {mappings:#?}"
        );

        // Of a program at 0x400000 the legacy parser moves the mapping's start, and `go tool pprof`
        // then finds no symbols in it; a profile.proto names them in both.
        let proto = file.with_extension("pb.gz");
        compiled.profile.save(&proto).unwrap();
        let named = match option {
            "-pie" => &[&file, &proto][..],
            _ => &[&proto],
        };
        for file in named {
            let text = go_pprof(&go, &["-top"], file).stdout;
            for (name, flat) in [
                ("in_library", "400ms"),
                ("in_program", "300ms"),
                ("main", "200ms"),
            ] {
                let row = text
                    .lines()
                    .find(|l| l.split_whitespace().nth(5) == Some(name));
                assert!(
                    row.is_some_and(|r| r.trim().starts_with(flat)),
                    "{option} {name}: {text}"
                );
            }
            assert!(text.contains("[lost]"), "{text}");
        }

        let text = run(Command::new(&perl).args(["--text", program]).arg(&file)).stdout;
        for (name, count) in [("in_library", "40"), ("in_program", "30"), ("main", "20")] {
            let row = text
                .lines()
                .find(|l| l.split_whitespace().last() == Some(name));
            assert!(
                row.is_some_and(|r| r.trim().starts_with(count)),
                "{option} {name}: {text}"
            );
        }
        assert!(
            text.contains("0x0100000000000000"),
            "lost time stays apart: {text}"
        );
    }
}

#[test]
fn profile_proto_reads_in_pprof_as_here() {
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    for name in ["cpu.pb.gz", "cpu.pb", "cpu.pprof"] {
        let file = directory.path().join(name);
        by_hand().save(&file).unwrap();
        let raw = go_pprof(&go, &["-raw", "-symbolize=none"], &file);
        // pprof numbers locations as samples use them and drops columns, so ours goes through its
        // own reader once.
        let reread = directory.path().join("reread.pb.gz");
        let output = format!("-output={}", reread.display());
        go_pprof(&go, &["-proto", "-symbolize=none", &output], &file);
        assert_eq!(raw.stdout, Profile::open(&reread).unwrap().to_string());
    }
}

#[test]
fn the_top_is_pprofs_top() {
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut other_unit = by_hand();
    other_unit.default_sample_type = "samples".into();
    let mut short = by_hand();
    short.duration_nanos = 6_130_000_000;
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata/pprof/cppbench.cpu");
    let profiles = [
        by_hand(),
        other_unit,
        short,
        large(3_000, 300, 12),
        large(400, 7, 5),
        one_stack(3, 3, 2),
        one_stack(1, 4, 5),
        Profile::open(golden).unwrap(),
        Profile::new(vec![ValueType::new("inuse_space", "bytes")]),
    ];
    for (i, profile) in profiles.iter().enumerate() {
        let file = directory.path().join(format!("{i}.pb.gz"));
        profile.save(&file).unwrap();
        for n in [0, 1, 3, 5, 10, 1000] {
            let count = format!("-nodecount={n}");
            let theirs = go_pprof(&go, &[&count, "-top", "-symbolize=none"], &file).stdout;
            assert_eq!(profile.top(n).to_string(), theirs, "profile {i}, {n} nodes");
        }
    }
}
