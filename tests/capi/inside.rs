//! A program in Rust that has the crate inside, and the library preloaded as well.

use std::time::Duration;

use crate::legacy::Legacy;
use crate::library::library;
use crate::process::{child, succeed};
use crate::work::thread_cpu;

#[test]
fn one_of_two_profilers_records_and_the_other_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cpu");
    let mut command = child("inside::child_asks_for_a_profile_too");
    command.env("LD_PRELOAD", library());
    command.env("CPUPROFILE", &file);
    command.env("CPUPROFILE_FREQUENCY", "1000");
    succeed(&mut command);
    let counted = Legacy::read(&file).counted();
    assert!(counted >= 95, "{counted}");
}

#[test]
#[ignore = "a child process"]
fn child_asks_for_a_profile_too() {
    let error = sigprof::from_env().expect_err("the library records");
    assert_eq!(error.kind(), sigprof::ErrorKind::SignalInUse);
    let said = error.to_string();
    assert!(said.contains("another profiler"), "{said}");
    let begun = thread_cpu();
    let mut sum = 0_u64;
    while thread_cpu() - begun < Duration::from_millis(100) {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
    }
}
