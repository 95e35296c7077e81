//! What gperftools' own tests assert, asked of a C program that is linked with the library.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::legacy::Legacy;
use crate::library::{linked, plain, program, shared};
use crate::process::{output, succeed};

/// Runs a case of `calls.c` in a directory; the file that it was to write.
fn run(case: &str, directory: &Path) -> (PathBuf, Output) {
    let calls = program("cc", "calls.c", directory);
    if case == "stopped_by_library" {
        shared("stops", directory, &linked());
    }
    let file = directory.join("cpu.prof");
    let mut command = plain(&calls);
    command.current_dir(directory).arg(case).arg(&file);
    // So that few ticks come that the program did not ask for.
    command.env("CPUPROFILE_FREQUENCY", "1");
    let output = match case {
        "flushed" => output(&mut command).unwrap(),
        _ => succeed(&mut command),
    };
    (file, output)
}

fn record(case: &str) -> Legacy {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = run(case, directory.path());
    let legacy = Legacy::read(&file);
    assert_eq!(legacy.period_us, 1_000_000);
    legacy
}

/// The count of the stack that the program's own ticks have. The clock may have ticked once there.
fn ticks(legacy: &Legacy) -> u64 {
    let most = legacy.records.iter().max_by_key(|(count, _)| *count);
    let (count, pcs) = most.expect("the program has ticked");
    let same = legacy.records.iter().filter(|(_, other)| other == pcs);
    assert_eq!(same.count(), 1, "a stack has one record");
    *count
}

#[test]
fn stop_flush_and_ticks_while_nothing_is_recorded_change_nothing() {
    assert!((3..=4).contains(&ticks(&record("nothing_runs"))));
}

#[test]
fn a_start_while_a_profile_is_recorded_fails_and_leaves_it_alone() {
    assert!((5..=6).contains(&ticks(&record("running"))));
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_with_its_number() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = run("no_file", directory.path());
    assert!(!file.exists());
}

#[test]
fn an_empty_profile_is_header_trailer_and_mappings() {
    let empty = record("empty");
    assert_eq!(empty.records, []);
    assert_eq!(empty.bytes, 8 * (5 + 3));
    assert!(empty.text.contains("libsigprof.so"), "{}", empty.text);
}

#[test]
fn one_stack_twice_is_one_record() {
    assert!((2..=3).contains(&ticks(&record("one_stack"))));
}

#[test]
fn a_flushed_file_is_whole_and_counts_go_on() {
    assert!((2..=3).contains(&ticks(&record("flushed"))));
}

#[test]
fn a_profile_that_nobody_stops_is_written_at_the_exit() {
    assert!((3..=4).contains(&ticks(&record("not_stopped"))));
}

#[test]
fn a_stream_gets_one_profile() {
    let directory = tempfile::tempdir().unwrap();
    let calls = program("cc", "calls.c", directory.path());
    let mut command = plain(&calls);
    command.args(["flushed_to_stream", "/dev/stdout"]);
    command.env("CPUPROFILE_FREQUENCY", "1");
    let file = directory.path().join("stream");
    std::fs::write(&file, succeed(&mut command).stdout).unwrap();
    let legacy = Legacy::read(&file);
    assert!((3..=4).contains(&legacy.counted()));
    // Another profile behind it would look like text.
    assert!(legacy.text.lines().all(is_mapping), "{}", legacy.text);
}

#[test]
fn a_thread_that_blocks_all_signals_is_recorded_where_it_asks_for_that() {
    assert!((3..=4).contains(&ticks(&record("blocked"))));
}

#[test]
fn a_handler_that_exits_waits_until_a_flush_is_done() {
    for _ in 0..5 {
        assert!((3..=4).contains(&ticks(&record("exits_while_flushing"))));
    }
}

#[test]
fn a_stack_trace_leads_over_a_handlers_frame() {
    record("traced_in_handler");
}

#[test]
fn a_profile_after_another_is_clean() {
    assert!((2..=3).contains(&ticks(&record("restarted"))));
}

#[test]
fn ticks_that_the_filter_drops_are_not_counted() {
    assert!((2..=3).contains(&ticks(&record("filtered"))));
}

#[test]
fn the_live_count_is_behind_the_name() {
    assert!((4..=5).contains(&ticks(&record("counter"))));
}

#[test]
fn another_owner_of_the_signal_keeps_it() {
    assert!((2..=3).contains(&ticks(&record("foreign_owner"))));
}

#[test]
fn a_stop_at_the_exit_writes_the_file() {
    assert!((2..=3).contains(&ticks(&record("stopped_at_exit"))));
}

#[test]
fn a_stop_by_another_librarys_destructor_writes_the_file() {
    assert!((2..=3).contains(&ticks(&record("stopped_by_library"))));
}

#[test]
fn many_threads_start_and_stop() {
    assert!((2..=3).contains(&ticks(&record("many_start_and_stop"))));
}

#[test]
fn nothing_waits_for_a_thread_in_malloc() {
    record("while_others_allocate");
}

#[test]
fn a_stack_trace_is_never_longer_than_its_room() {
    record("stack_traces");
}

/// A line of `/proc/self/maps`, or of google/pprof's brief form.
fn is_mapping(line: &str) -> bool {
    let hex = |text: &str| u64::from_str_radix(text, 16).is_ok();
    let mut words = line.split_whitespace();
    let range = words.next().and_then(|range| range.split_once('-'));
    let is_range = range.is_some_and(|(start, end)| hex(start) && hex(end));
    let is_mode = |mode: &str| mode.len() == 4 && mode.chars().all(|c| "-rwxp".contains(c));
    is_range && words.next().is_some_and(is_mode)
}

#[test]
fn every_line_after_the_trailer_is_a_mapping() {
    let text = record("one_stack").text;
    for line in text.lines() {
        assert!(is_mapping(line), "{line}");
    }
    assert!(text.lines().count() > 3, "{text}");
}
