//! A test that hangs is killed and says what hangs, and where.

#[path = "support/process.rs"]
mod process;

use std::sync::mpsc;
use std::thread;

use process::{child, output, succeed};

#[test]
fn what_hangs_is_killed_and_named() {
    let mut waiting = child("child_that_waits_for_one_that_hangs");
    waiting.env("SIGPROF_TEST_DEADLINE_S", "1");
    let ended = output(&mut waiting).unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    for expected in [
        // The command of what hangs, and what this has printed.
        r#""child_that_hangs" "--exact""#,
        "has not ended after 1s and is killed. It waits in:",
        "SIGPROF_NAME=\"one that hangs\"",
        // A line of each process and of each thread, whatever either does on this machine.
        "\nprocess ",
        "\n  thread ",
    ] {
        assert!(said.contains(expected), "no {expected:?} in:\n{said}");
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_waits_for_one_that_hangs() {
    succeed(child("child_that_hangs").env("SIGPROF_NAME", "one that hangs"));
}

#[test]
#[ignore = "hangs by design"]
fn child_that_hangs() {
    let (_sender, receiver) = mpsc::channel::<()>();
    let waiter = thread::Builder::new().name("stuck".into());
    let waiter = waiter.spawn(move || receiver.recv()).unwrap();
    waiter.join().unwrap().unwrap();
}
