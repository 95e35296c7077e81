//! gmon.out files, read by GNU gprof.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use sigprof::Profile;
use sigprof::format::Gmon;
use sigprof::profile::{Line, Location, MappingId};

use crate::library::{compiled, library, plain};
use crate::process::{soak, succeed};
use crate::support::{run, tool};

/// What the program works in.
const FUNCTIONS: [&str; 4] = ["sixty", "twenty_five", "ten", "five"];
/// Which of two functions calls each.
const CALLERS: [&str; 4] = ["more", "more", "less", "less"];

/// The program, made so that it lies where it was linked to, or anywhere.
fn shares(directory: &Path, flag: &str) -> PathBuf {
    let optimized = "-fno-optimize-sibling-calls".to_owned();
    compiled("cc", "shares.c", directory, &[flag.to_owned(), optimized])
}

/// Records the program for some seconds of CPU time; what each function has used of it.
fn record(program: &Path, file: &Path, ms: f64) -> [f64; 4] {
    let used = run_recorded(program, file, ms);
    used.try_into().unwrap()
}

/// The same of any program: the numbers that it says.
fn run_recorded(program: &Path, file: &Path, ms: f64) -> Vec<f64> {
    let mut command = plain(program);
    command.env("LD_PRELOAD", library());
    command.env("CPUPROFILE", file);
    command.env("CPUPROFILE_FREQUENCY", "1000");
    command.arg(format!("{ms:.0}"));
    let said = String::from_utf8(succeed(&mut command).stdout).unwrap();
    let numbers = said.split_whitespace();
    numbers.map(|ns| ns.parse().unwrap()).collect()
}

/// What gprof says of a program and its files.
fn gprof(gprof: &Path, options: &[&str], program: &Path, files: &[&Path]) -> String {
    run(Command::new(gprof).args(options).arg(program).args(files)).stdout
}

/// Functions and their seconds, of gprof's flat profile.
fn flat(text: &str) -> HashMap<&str, f64> {
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Share, sum, seconds, and behind the calls the name.
    let row = |words: Vec<_>| {
        let [_, _, seconds, ..] = words[..] else {
            return None;
        };
        let seconds: &str = seconds;
        Some((*words.last()?, seconds.parse().ok()?))
    };
    lines.filter_map(row).collect()
}

#[test]
fn gprof_finds_shares_and_callers() {
    let Some(reader) = tool("gprof") else { return };
    for flag in ["-no-pie", "-pie"] {
        let directory = tempfile::tempdir().unwrap();
        let program = shares(directory.path(), flag);
        let file = directory.path().join("gmon.out");
        let used = record(&program, &file, 2000.0 * soak());
        let text = gprof(&reader, &["-b", "-p"], &program, &[&file]);
        let seconds = flat(&text);
        let total: f64 = seconds.values().sum();
        // By timers a sample stands for a tick of the scheduler's, of which there are 100 a second
        // at least. Five deviations are exceeded by chance once in a million.
        let samples = total * 100.0;
        for (function, ns) in FUNCTIONS.into_iter().zip(used) {
            let expected = ns / used.iter().sum::<f64>();
            let found = seconds.get(function).copied().unwrap_or(0.0) / total;
            let deviation = (expected * (1.0 - expected) / samples).sqrt();
            assert!(
                (found - expected).abs() < 0.03_f64.max(5.0 * deviation),
                "{flag}: {function} has {found}, not {expected}:\n{text}"
            );
        }
        let text = gprof(&reader, &["-b", "-q"], &program, &[&file]);
        for (function, caller) in FUNCTIONS.into_iter().zip(CALLERS) {
            let calls = Calls::of(&text, function);
            assert_eq!(calls.callers, [caller], "{flag}: {text}");
            let calls = Calls::of(&text, caller);
            assert_eq!(calls.callers, ["main"], "{flag}: {text}");
            assert!(calls.callees.contains(&function), "{flag}: {text}");
        }
    }
}

/// What gprof's call graph says of a function.
struct Calls<'t> {
    callers: Vec<&'t str>,
    callees: Vec<&'t str>,
}

impl<'t> Calls<'t> {
    fn of(text: &'t str, function: &str) -> Self {
        let name = |line: &'t str| line.split_whitespace().rev().nth(1).unwrap_or_default();
        let mut blocks = text.split("-----------------------------------------------\n");
        let is_own = |line: &&'t str| line.starts_with('[') && name(line) == function;
        let block = blocks.find(|block| block.lines().any(|line| is_own(&line)));
        let block = block.unwrap_or_else(|| panic!("no {function} in:\n{text}"));
        let own = block.lines().position(|line| is_own(&line)).unwrap();
        let lines: Vec<&str> = block.lines().collect();
        Self {
            callers: lines[..own]
                .iter()
                .map(|line| name(line))
                .filter(|n| !n.is_empty())
                .collect(),
            callees: lines[own + 1..].iter().map(|line| name(line)).collect(),
        }
    }
}

#[test]
fn gprof_finds_what_the_profile_says() {
    let Some(reader) = tool("gprof") else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = shares(directory.path(), "-pie");
    let file = directory.path().join("cpu.pb.gz");
    record(&program, &file, 500.0);
    let profile = Profile::open(&file).unwrap();
    let file = directory.path().join("gmon.out");
    let mut bytes = Vec::new();
    let remark = Gmon::new()
        .basic_blocks(true)
        .write(&profile, &mut bytes)
        .unwrap();
    assert!(remark.contains("`shares.c.cc`"), "{remark}");
    std::fs::write(&file, bytes).unwrap();

    let text = gprof(&reader, &["-b", "-p"], &program, &[&file]);
    let seconds = flat(&text);
    let top = profile.top(0);
    for function in FUNCTIONS {
        let row = top.rows().iter().find(|row| row.name == function);
        let expected = row.map_or(0.0, |row| row.flat as f64 / 1e9);
        let found = seconds.get(function).copied().unwrap_or(0.0);
        // gprof prints hundredths.
        assert!(
            (found - expected).abs() < 0.011,
            "{function}: {text}\n{top}"
        );
    }
    // Twice the same file is twice the time.
    let sum = directory.path().join("gmon.sum");
    let mut command = Command::new(&reader);
    command
        .current_dir(directory.path())
        .arg("-s")
        .arg(&program)
        .args([&file, &file]);
    run(&mut command);
    let text = gprof(&reader, &["-b", "-p"], &program, &[&sum]);
    for (function, sum) in flat(&text) {
        let once = seconds.get(function).copied().unwrap_or(0.0);
        assert!((sum - 2.0 * once).abs() < 0.021, "{function}: {text}");
    }
    // The line that does the work has its samples before it, and those of each of its addresses, as
    // many as there is room for.
    let sources = format!("-I{}/tests/capi/programs", env!("CARGO_MANIFEST_DIR"));
    let options = ["-b", "-l", "-A", &sources];
    let text = gprof(&reader, &options, &program, &[&file]);
    let line = text.lines().find(|line| line.ends_with("WORKS(sixty)"));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let shown = line.trim_end_matches("WORKS(sixty)");
    let shown = shown.trim_matches([' ', '-', '>']);
    let counts = counts_of(&profile, "sixty");
    let sum = counts.iter().sum::<i64>().to_string();
    let each: Vec<_> = counts.iter().map(i64::to_string).collect();
    let all = format!("{sum},{}", each.join(","));
    assert!(
        shown.contains(&sum) && all.starts_with(shown),
        "{line}: {all}"
    );
}

/// How many samples each address of a function has, in the order of the addresses.
fn counts_of(profile: &Profile, function: &str) -> Vec<i64> {
    let mut counts = BTreeMap::new();
    for sample in profile.samples() {
        let location = &profile.locations()[sample.stack[0].index()];
        let name = |line: &Line| profile.string(profile.function(line.function).name);
        if location.lines.iter().any(|line| name(line) == function) {
            *counts.entry(location.address).or_default() += sample.values[0];
        }
    }
    counts.into_values().collect()
}

/// Two functions of one name, in two files, without debug information.
#[test]
fn functions_that_share_a_name_have_their_own_callers() {
    let (Some(gcc), Some(reader)) = (tool("gcc"), tool("gprof")) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let part = |name: &str, turns: u32| {
        let source = format!(
            "static volatile unsigned long sink;
            static __attribute__((noinline)) void work(long turns) {{
              for (long turn = 0; turn < turns; turn++) sink += turn * sink;
            }}
            void {name}(void) {{ work({turns}); sink++; }}"
        );
        std::fs::write(directory.path().join(name.to_owned() + ".c"), source).unwrap();
    };
    part("one", 200_000);
    part("two", 100_000);
    let main = "#include <time.h>
        void one(void); void two(void);
        int main(void) { while (clock() < CLOCKS_PER_SEC / 2) { one(); two(); } return 0; }";
    std::fs::write(directory.path().join("main.c"), main).unwrap();
    let options = [
        "-O1",
        "-no-pie",
        "-fno-optimize-sibling-calls",
        "-Wl,--build-id",
    ];
    let files = ["main.c", "one.c", "two.c"];
    let mut command = Command::new(gcc);
    command.args(options).args(["-o", "program"]).args(files);
    run(command.current_dir(directory.path()));
    let program = directory.path().join("program");
    let file = directory.path().join("gmon.out");
    run_recorded(&program, &file, 0.0);
    let graph = gprof(&reader, &["-b", "-q"], &program, &[&file]);
    // Each has a block of its own with the one caller, above its own line.
    let mut callers: Vec<Vec<&str>> = Vec::new();
    for block in graph.split("-----------------------------------------------") {
        let lines: Vec<&str> = block.lines().collect();
        let own = lines
            .iter()
            .position(|line| line.starts_with('[') && line.contains(" work "));
        if let Some(own) = own {
            let above = lines[..own].iter().filter(|line| line.contains('['));
            callers.push(
                above
                    .map(|line| line.split_whitespace().rev().nth(1).unwrap())
                    .collect(),
            );
        }
    }
    callers.sort();
    let expected: [Vec<&str>; 2] = [vec!["one"], vec!["two"]];
    assert_eq!(callers, expected, "{graph}");
}

/// gcc aligns no function here, so that some begin in the midst of what gprof counts as one.
#[test]
fn every_byte_of_a_function_is_its_own() {
    let (Some(reader), Some(nm)) = (tool("gprof"), tool("nm")) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let program = shares(directory.path(), "-no-pie");
    let file = directory.path().join("cpu.pb.gz");
    record(&program, &file, 10.0);
    let recorded = Profile::open(&file).unwrap();
    // A second for each byte of the program's functions.
    let mut profile = Profile::new(recorded.sample_types().to_vec());
    let mappings = recorded.mappings().iter();
    let mappings: Vec<_> = mappings.map(|m| profile.push_mapping(m.clone())).collect();
    let symbols = run(Command::new(nm)
        .args(["-S", "--defined-only"])
        .arg(&program))
    .stdout;
    let mut sizes = HashMap::new();
    for symbol in symbols.lines() {
        let [address, size, "t" | "T", name] = symbol.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        let hex = |number| u64::from_str_radix(number, 16).unwrap();
        let (address, size) = (hex(address), hex(size));
        sizes.insert(name, size);
        for address in address..address + size {
            let holds = |id: &&MappingId| {
                let mapping = profile.mapping(**id);
                (mapping.memory_start..mapping.memory_limit).contains(&address)
            };
            let mapping = mappings.iter().find(holds).copied();
            assert!(mapping.is_some(), "{symbol}");
            let location = profile.push_location(Location {
                mapping,
                address,
                lines: Vec::new(),
                is_folded: false,
            });
            profile.push_sample(&[location], &[1, 1_000_000_000], &[]);
        }
    }
    assert!(sizes.len() >= 8, "{symbols}");
    let file = directory.path().join("gmon.out");
    profile.save(&file).unwrap();
    let text = gprof(&reader, &["-b", "-p"], &program, &[&file]);
    let seconds = flat(&text);
    for (function, size) in sizes {
        let found = seconds.get(function).copied().unwrap_or(0.0);
        assert!(
            (found - size as f64).abs() < 0.01,
            "{function}, {size}: {text}"
        );
    }
}

#[test]
fn more_samples_than_a_bin_holds_add_up() {
    let Some(reader) = tool("gprof") else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = shares(directory.path(), "-no-pie");
    let file = directory.path().join("cpu.pb.gz");
    record(&program, &file, 100.0);
    let recorded = Profile::open(&file).unwrap();
    // As much as a day of each sample.
    let mut profile = recorded.clone();
    let day = [86_400_000, 86_400_000_000_000];
    let samples: Vec<_> = recorded
        .samples()
        .map(|sample| sample.stack.to_vec())
        .collect();
    for stack in &samples {
        profile.push_sample(stack, &day, &[]);
    }
    let file = directory.path().join("gmon.out");
    profile.save(&file).unwrap();
    let text = gprof(&reader, &["-b", "-p"], &program, &[&file]);
    let top = profile.top(0);
    for (function, found) in flat(&text) {
        let Some(row) = top.rows().iter().find(|row| row.name == function) else {
            continue;
        };
        let expected = row.flat as f64 / 1e9;
        assert!(
            (found - expected).abs() < 0.011,
            "{function}: {text}\n{top}"
        );
    }
    let seconds = flat(&text);
    assert!(seconds["sixty"] > 86_400.0, "{text}");
}
