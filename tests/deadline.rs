//! A test that hangs is killed and says what hangs, and where; whatever becomes of a test, the
//! others run and the failed ones are named.

#[path = "support/process.rs"]
mod process;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use process::{child, output, succeed, this_program};

/// What an ended command said, which has failed.
fn failure(command: &mut Command) -> String {
    let ended = output(command).unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(!ended.status.success(), "{said}");
    said
}

fn assert_contains(said: &str, expected: &[&str]) {
    for expected in expected {
        assert!(said.contains(expected), "no {expected:?} in:\n{said}");
    }
}

#[test]
fn what_hangs_is_killed_and_named() {
    let mut waiting = child("child_that_waits_for_one_that_hangs");
    let said = failure(waiting.env("SIGPROF_TEST_DEADLINE_S", "4"));
    assert_contains(
        &said,
        &[
            // The command of what hangs, and what this has printed.
            r#""child_that_hangs" "--exact""#,
            "has not ended after 4s and is killed. It waits in:",
            "SIGPROF_NAME=\"one that hangs\"",
            "printed before it hangs",
            // A line of each process and of each thread, whatever either does on this machine.
            "\nprocess ",
            "\n  thread ",
        ],
    );
}

#[test]
fn what_holds_the_output_of_one_that_has_ended_is_killed_and_named() {
    let mut waiting = child("child_that_waits_for_an_output_that_is_held");
    let said = failure(waiting.env("SIGPROF_TEST_DEADLINE_S", "4"));
    assert_contains(
        &said,
        &[
            "has ended (exit status: 0), and others hold its output open after 4s",
            "sleep 1000",
            "printed by the one that has ended",
        ],
    );
}

/// What `scripts/each` says of tests that these arguments select, and what it reports; with this
/// variable set.
fn each(report: &Path, variable: (&str, &str), arguments: &[&str]) -> (String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut each = Command::new(root.join("scripts/each"));
    each.current_dir(root)
        .arg(this_program().get_program())
        .args(arguments)
        .env("SIGPROF_REPORT", report)
        .env(variable.0, variable.1);
    let said = failure(&mut each);
    let failures = fs::read_to_string(report.join("failures")).unwrap();
    (said, failures)
}

#[test]
fn whatever_becomes_of_a_test_those_after_it_run() {
    others_run("1");
}

#[test]
fn whatever_becomes_of_a_test_those_beside_it_run() {
    others_run("3");
}

#[test]
fn a_test_that_shows_its_output_has_to_pass_by_itself() {
    let report = tempfile::tempdir().unwrap();
    let select = [
        "--ignored",
        "--nocapture",
        "--exact",
        "as_a_test::c_ends_the_process",
    ];
    let (said, _) = each(report.path(), ("SIGPROF_TEST_JOBS", "1"), &select);
    assert_contains(&said, &["test as_a_test::c_ends_the_process ... FAILED ("]);
}

#[test]
fn nothing_passes_where_the_output_of_tests_cannot_go() {
    let report = tempfile::tempdir().unwrap();
    let nowhere = ("TMPDIR", "/nonexistent");
    let (said, failures) = each(
        report.path(),
        nowhere,
        &["--ignored", "as_a_test::f_passes"],
    );
    assert_contains(&said, &["nothing can be written to /nonexistent"]);
    assert_contains(&failures, &["--test deadline\tno directory"]);
}

fn others_run(jobs: &str) {
    let report = tempfile::tempdir().unwrap();
    let variable = ("SIGPROF_TEST_JOBS", jobs);
    let (said, failures) = each(report.path(), variable, &["--ignored", "as_a_test"]);
    assert_contains(
        &said,
        &[
            "test as_a_test::a_aborts ... FAILED (",
            "test as_a_test::b_leaves_a_process_behind ... FAILED (",
            // What that has left.
            "sleep 1000",
            "test as_a_test::c_ends_the_process ... FAILED (",
            "test as_a_test::d_fails ... FAILED (",
            "test as_a_test::e_is_skipped ... ok (",
            "test as_a_test::f_passes ... ok (",
            "test as_a_test::g_kills_its_process_group ... FAILED (",
            "test as_a_test::h_passes ... ok (",
            "test result: FAILED. 3 passed; 5 failed; 0 ignored",
        ],
    );
    let expected = [
        "a_aborts\tended by SIGABRT",
        "b_leaves_a_process_behind\tleft processes behind",
        "c_ends_the_process\t",
        "d_fails\t",
        "g_kills_its_process_group\tended by SIGKILL",
    ];
    // In the order in which they ended.
    let mut failures: Vec<_> = failures.lines().collect();
    failures.sort_unstable();
    let expected =
        expected.map(|end| format!("--test deadline -- --ignored --exact as_a_test::{end}"));
    assert_eq!(failures, expected);
    let skips = fs::read_to_string(report.path().join("skips")).unwrap();
    assert_eq!(
        skips,
        "as_a_test::e_is_skipped: skipped: this machine has no such thing\n"
    );
}

#[test]
fn a_test_that_hangs_is_killed_and_named() {
    let report = tempfile::tempdir().unwrap();
    let select = ["--ignored", "--exact", "child_that_hangs"];
    let (said, failures) = each(report.path(), ("SIGPROF_TEST_SECONDS", "1"), &select);
    assert_contains(
        &said,
        &[
            "has not ended after 1 s and is killed: ",
            "\nprocess ",
            "\n  thread ",
            "test child_that_hangs ... FAILED (",
        ],
    );
    let expected = "--test deadline -- --ignored --exact child_that_hangs\tkilled after 1 s\n";
    assert_eq!(failures, expected);
}

mod as_a_test {
    use super::*;

    #[test]
    #[ignore = "fails by design"]
    fn a_aborts() {
        std::process::abort();
    }

    #[test]
    #[ignore = "fails by design"]
    #[expect(
        clippy::zombie_processes,
        reason = "nobody waits for what is left behind"
    )]
    fn b_leaves_a_process_behind() {
        let mut sleep = Command::new("setsid");
        sleep.args(["sleep", "1000"]).spawn().unwrap();
    }

    #[test]
    #[ignore = "fails by design"]
    fn c_ends_the_process() {
        std::process::exit(0);
    }

    #[test]
    #[ignore = "fails by design"]
    fn d_fails() {
        panic!("by design");
    }

    #[test]
    #[ignore = "a child process"]
    fn e_is_skipped() {
        process::skip("this machine has no such thing");
    }

    #[test]
    #[ignore = "a child process"]
    fn f_passes() {}

    #[test]
    #[ignore = "fails by design"]
    fn g_kills_its_process_group() {
        // SAFETY: a system call.
        unsafe { libc::kill(0, libc::SIGKILL) };
    }

    #[test]
    #[ignore = "a child process"]
    fn h_passes() {}
}

#[test]
#[ignore = "a child process"]
fn child_that_waits_for_one_that_hangs() {
    succeed(child("child_that_hangs").env("SIGPROF_NAME", "one that hangs"));
}

#[test]
#[ignore = "a child process"]
fn child_that_waits_for_an_output_that_is_held() {
    let mut shell = Command::new("sh");
    succeed(shell.args([
        "-c",
        "echo printed by the one that has ended; sleep 1000 & exit 0",
    ]));
}

#[test]
#[ignore = "hangs by design"]
fn child_that_hangs() {
    eprintln!("printed before it hangs");
    let (_sender, receiver) = mpsc::channel::<()>();
    let waiter = thread::Builder::new().name("stuck".into());
    let waiter = waiter.spawn(move || receiver.recv()).unwrap();
    waiter.join().unwrap().unwrap();
}
