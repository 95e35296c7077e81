//! Guards that write files at their end.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::time::Duration;

use sigprof::{ErrorKind, Profile, contention};

use crate::below::sums_below;
use crate::locks::contend;
use crate::process::{child, output, succeed};

#[test]
fn a_guard_writes_who_waited_and_who_held() {
    let directory = tempfile::tempdir().unwrap();
    let [waits, holders] = ["waits.pb.gz", "holders.pb"].map(|name| directory.path().join(name));
    contention::set_sample_interval(Duration::from_nanos(1));
    let guard = contention::profile_to(&waits).unwrap();
    let guard = guard.and_holders_to(&holders).unwrap();
    contend(&Mutex::new(()), 3);
    guard.finish().unwrap();
    for (file, function) in [(&waits, "waits_for_lock"), (&holders, "holds_lock")] {
        let profile = Profile::open(file).unwrap();
        let [count, _] = sums_below(&profile, function);
        assert_eq!(count, 3, "{}", profile.top(30));
    }
}

#[test]
fn a_guard_that_is_dropped_writes_its_file_as_text() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("waits.contention");
    drop(contention::profile_to(&file).unwrap());
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.starts_with("--- contention:\n"), "{text}");
    // The watch has ended.
    drop(contention::watch_process().unwrap());
}

#[test]
fn a_file_that_cannot_be_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for (name, kind) in [
        ("cpu.prof", ErrorKind::InvalidInput),
        ("memory.heap", ErrorKind::InvalidInput),
        ("nothing", ErrorKind::InvalidInput),
        ("missing/waits.pb.gz", ErrorKind::Io),
    ] {
        let error = contention::profile_to(path(name)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let guard = contention::profile_to(path("waits.pb")).unwrap();
        let error = guard.and_holders_to(path(name)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_forked_child_writes_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("waits.pb");
    let guard = contention::profile_to(&file).unwrap();
    // SAFETY: the child drops a guard that is not its own, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(guard);
        // SAFETY: ends the child.
        unsafe { libc::_exit(file.exists().into()) };
    }
    let mut status = 0;
    // SAFETY: fills `status`.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0);
    drop(guard);
    assert!(file.exists());
}

#[test]
#[ignore = "a child process"]
fn exits_with_a_guard() {
    let guard = contention::profile_to("waits.pb.gz").unwrap();
    let guard = guard.and_holders_to("holders.pb.gz").unwrap();
    contention::set_sample_interval(Duration::from_nanos(1));
    contend(&Mutex::new(()), 3);
    std::mem::forget(guard);
    std::process::exit(7);
}

#[test]
#[ignore = "a child process"]
fn is_ended_with_a_guard() {
    let guard = contention::profile_to("waits.pb.gz").unwrap();
    let guard = guard.and_holders_to("holders.pb.gz").unwrap();
    let _guard = guard.write_on(&[libc::SIGTERM]).unwrap();
    contend(&Mutex::new(()), 3);
    // SAFETY: a signal to the calling thread.
    unsafe { libc::raise(libc::SIGTERM) };
    loop {
        std::thread::park();
    }
}

#[test]
fn the_files_of_a_guard_that_is_not_dropped_are_written_at_the_end() {
    type IsEnd = fn(ExitStatus) -> bool;
    let ends: [(_, IsEnd); 2] = [
        ("guards::exits_with_a_guard", |end| end.code() == Some(7)),
        ("guards::is_ended_with_a_guard", |end| {
            end.signal() == Some(libc::SIGTERM)
        }),
    ];
    for (test, is_end) in ends {
        let directory = tempfile::tempdir().unwrap();
        let output = output(child(test).current_dir(directory.path())).unwrap();
        assert!(is_end(output.status), "{output:?}");
        for (name, function) in [
            ("waits.pb.gz", "waits_for_lock"),
            ("holders.pb.gz", "holds_lock"),
        ] {
            let profile = Profile::open(directory.path().join(name)).unwrap();
            let [count, _] = sums_below(&profile, function);
            assert_eq!(count, 3, "{}", profile.top(30));
        }
    }
}

#[test]
#[ignore = "a child process"]
fn asks_the_environment() {
    let guard = contention::from_env().unwrap();
    assert_eq!(contention::sample_interval(), Duration::from_nanos(7));
    assert!(guard.is_some());
    contend(&Mutex::new(()), 3);
}

#[test]
fn an_environment_asks_for_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut command = child("guards::asks_the_environment");
    command
        .env("CONTENTIONPROFILE", path("waits.pb.gz"))
        .env("CONTENTIONPROFILE_HOLDERS", path("holders"))
        .env("CONTENTIONPROFILE_SAMPLE_INTERVAL", "7")
        .env("CONTENTIONPROFILE_USE_PID", "1");
    succeed(&mut command);
    let files = std::fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let [holders, waits] = names.try_into().unwrap();
    assert!(holders.starts_with("holders_") && waits.starts_with("waits_"));
    let text = std::fs::read_to_string(path(&holders)).unwrap();
    assert!(text.starts_with("--- contention:\n"), "{text}");
    assert!(Profile::open(path(&waits)).unwrap().total(0) > 0);
}
