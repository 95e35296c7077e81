//! A leak of known place and size, as the tools of the field show it.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use sigprof::{Profile, heap};

use crate::support::{go_pprof, run, tool};

const BLOCKS: usize = 4000;
const SIZE: usize = 16 * 1024;
/// Bytes between two samples.
pub const INTERVAL: u64 = 64 * 1024;

#[inline(never)]
pub fn leaks() -> Vec<Vec<u8>> {
    (0..BLOCKS).map(|_| black_box(vec![1; SIZE])).collect()
}

#[inline(never)]
pub fn frees() {
    for i in 0..4 * BLOCKS {
        black_box(vec![i as u8; SIZE]);
    }
}

/// A profile of a program that leaks 62.5 MiB in one function and frees four times as much in
/// another one.
fn profile() -> Profile {
    let leaked = leaks();
    frees();
    let profile = heap::profile().unwrap();
    std::mem::forget(leaked);
    profile
}

/// Whether bytes are those of the leak, within five standard errors: one time in a million it is
/// farther off.
pub fn is_leak(bytes: f64) -> bool {
    let chance = -(-(SIZE as f64) / INTERVAL as f64).exp_m1();
    let error = (BLOCKS as f64 * (1.0 - chance) / chance).sqrt() * SIZE as f64;
    (bytes - (BLOCKS * SIZE) as f64).abs() <= 5.0 * error
}

/// The first row of a table of `go tool pprof -top` or of `google-pprof --text`: the flat value in
/// bytes, and the function.
pub fn first_row(table: &str) -> (f64, String) {
    let mut rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.len() >= 6 && row[1].ends_with('%') && row[0] != "Showing");
    let row = row.unwrap_or_else(|| panic!("there is a row in {table}"));
    let number = row[0].trim_end_matches(|c: char| c.is_alphabetic());
    let unit = match &row[0][number.len()..] {
        "B" => 1.0,
        "kB" => 1024.0,
        // google-pprof shows MiB, and does not say so.
        "MB" | "" => 1024.0 * 1024.0,
        "GB" => 1024.0 * 1024.0 * 1024.0,
        unit => panic!("{unit} is no unit that is known"),
    };
    (number.parse::<f64>().unwrap() * unit, row[5..].join(" "))
}

#[test]
fn go_tool_pprof_shows_a_leak_on_top() {
    let Some(go) = tool("go") else { return };
    let profile = profile();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("heap.pb.gz");
    profile.save(&file).unwrap();
    let top = go_pprof(&go, &["-sample_index=inuse_space", "-top"], &file).stdout;
    let (bytes, function) = first_row(&top);
    assert!(function.contains("leak::leaks"), "{top}");
    // The table shows two digits behind the point.
    assert!(is_leak(bytes), "{top}");
    let top = go_pprof(&go, &["-sample_index=alloc_space", "-top"], &file).stdout;
    assert!(first_row(&top).1.contains("leak::frees"), "{top}");
}

#[test]
fn google_pprof_reads_the_text_and_agrees() {
    let (Some(go), Some(google_pprof)) = (tool("go"), tool("google-pprof")) else {
        return;
    };
    let profile = profile();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("program.heap");
    profile.save(&file).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let head = text.lines().next().unwrap();
    assert!(head.ends_with(&format!("@ heap_v2/{INTERVAL}")), "{head}");
    let program = std::env::current_exe().unwrap();
    let google = |option: &str| {
        let mut command = Command::new(&google_pprof);
        command.args(["--text", option]).arg(&program).arg(&file);
        run(&mut command).stdout
    };
    let by_ours = |profile: &Profile, index: usize| profile.total(index) as f64;
    for (option, index) in [("--inuse_space", 3), ("--alloc_space", 1)] {
        let table = google(option);
        let total = table.lines().find_map(|line| line.strip_prefix("Total: "));
        let total = total.unwrap_or_else(|| panic!("{table}"));
        let total: f64 = total.split(' ').next().unwrap().parse().unwrap();
        // MiB with one digit behind the point.
        let expected = by_ours(&profile, index) / 1024.0 / 1024.0;
        assert!((total - expected).abs() <= 0.1, "{expected}: {table}");
    }
    // And Go's reader, what the other file says but for fractions, which the reader cuts off.
    let raw = |file: &Path| {
        let raw = go_pprof(&go, &["-raw"], file).stdout;
        let samples = raw
            .lines()
            .skip_while(|line| !line.starts_with("alloc_objects"));
        let samples = samples.take_while(|line| !line.starts_with("Locations"));
        let values = samples.filter_map(|line| {
            let values = line.split_once(": ")?.0.split_whitespace();
            values.map(|value| value.parse().ok()).collect()
        });
        let mut values: Vec<Vec<i64>> = values.collect();
        values.sort_by_key(|values| values[1]);
        values
    };
    let proto = directory.path().join("program.pb.gz");
    profile.save(&proto).unwrap();
    let (of_text, of_proto) = (raw(&file), raw(&proto));
    assert_eq!(of_text.len(), of_proto.len());
    for (fewer, values) in of_text.into_iter().zip(of_proto) {
        let is_near = |(fewer, value): (&i64, &i64)| (0..=1).contains(&(value - fewer));
        assert!(
            fewer.iter().zip(&values).all(is_near),
            "{fewer:?} {values:?}"
        );
    }
}

#[test]
fn stacks_lead_from_main_to_the_function_that_asks() {
    let profile = profile();
    let name = |id| {
        let lines = &profile.location(id).lines;
        let names = lines
            .iter()
            .map(|line| profile.string(profile.function(line.function).name));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let of_the_leak = profile
        .samples()
        .max_by_key(|sample| sample.values[3])
        .unwrap();
    let names: Vec<String> = of_the_leak.stack.iter().flat_map(|&id| name(id)).collect();
    let all = names.join("\n");
    assert!(names[0].contains("leaks"), "{all}");
    assert!(
        names.iter().any(|name| name.contains("stacks_lead_from")),
        "{all}"
    );
    assert!(
        !all.contains("__rust_alloc") && !all.contains("sigprof::heap"),
        "{all}"
    );
    assert!(!all.contains("[truncated"), "{all}");
}
