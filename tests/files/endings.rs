//! When the file is written: by a guard that is finished or dropped, however that comes about.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sigprof::{Format, profile_to};

use crate::check::{
    assert_complete, assert_nothing_runs, child_in, directory, names, profiler, work,
};
use crate::process::{succeed, turn};

#[test]
fn a_guard_that_drops_writes_the_file() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    for name in ["cpu.pb.gz", "cpu.pb", "cpu.pprof", "cpu.prof"] {
        let path = directory.path().join(name);
        let guard = profile_to(&path).unwrap();
        assert!(names(directory.path()).is_empty(), "nothing before the end");
        work();
        drop(guard);
        assert_complete(&path);
        assert_eq!(names(directory.path()), [name]);
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn finish_returns_what_it_wrote() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.pb.gz");
    let guard = profile_to(&path).unwrap();
    work();
    let so_far = guard.recording().snapshot().unwrap();
    let profile = guard.finish().unwrap();
    assert!(so_far.total(0) <= profile.total(0));
    assert_eq!(assert_complete(&path), profile);
    assert_eq!(names(directory.path()), ["cpu.pb.gz"]);
}

#[test]
fn one_profile_after_the_other() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    for name in ["first.pb.gz", "second.pb.gz", "first.pb.gz"] {
        let guard = profiler().start_to(directory.path().join(name)).unwrap();
        work();
        drop(guard);
    }
    for name in ["first.pb.gz", "second.pb.gz"] {
        assert_complete(&directory.path().join(name));
    }
    assert_eq!(names(directory.path()), ["first.pb.gz", "second.pb.gz"]);
}

#[test]
fn a_panic_that_drops_the_guard_writes_the_file() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.pb.gz");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _profiling = profile_to(&path).unwrap();
        work();
        panic!("with a guard alive (this panic is part of the test)");
    }));
    assert!(panicked.is_err());
    assert_complete(&path);
    assert_eq!(names(directory.path()), ["cpu.pb.gz"]);
}

#[test]
fn a_recording_that_was_stopped_by_hand_cannot_be_written() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let guard = profiler()
        .start_to(directory.path().join("cpu.pb.gz"))
        .unwrap();
    guard.recording().stop().unwrap();
    let error = guard.finish().unwrap_err();
    assert!(error.to_string().contains("stopped before"), "{error}");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_relative_path_is_one_of_the_directory_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("elsewhere")).unwrap();
    succeed(&mut child_in(
        directory.path(),
        "endings::child_that_changes_its_directory",
    ));
    assert_complete(&directory.path().join("cpu.pb.gz"));
    assert_eq!(names(directory.path()), ["cpu.pb.gz", "elsewhere"]);
    assert!(names(&directory.path().join("elsewhere")).is_empty());
}

#[test]
#[ignore = "a child process"]
fn child_that_changes_its_directory() {
    std::env::set_current_dir(directory()).unwrap();
    let guard = profiler().start_to("cpu.pb.gz").unwrap();
    std::env::set_current_dir("elsewhere").unwrap();
    work();
    guard.finish().unwrap();
}

#[test]
fn a_drop_that_cannot_write_is_one_line_on_stderr() {
    for (how, expected) in [
        ("missing", "No such file or directory"),
        ("full", "No space left on device"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let output =
            succeed(child_in(directory.path(), "endings::child_that_cannot_write").env("HOW", how));
        let line = String::from_utf8(output.stderr).unwrap();
        let path = directory.path().join("place/cpu.pb.gz");
        assert!(
            line.starts_with("sigprof: no profile was written: "),
            "{line:?}"
        );
        assert!(line.contains(path.to_str().unwrap()), "{line:?}");
        assert!(line.ends_with(&format!("{expected} (os error {})\n", os_error(expected))));
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
    }
}

fn os_error(text: &str) -> i32 {
    match text {
        "No such file or directory" => libc::ENOENT,
        _ => libc::ENOSPC,
    }
}

#[test]
fn a_line_that_stderr_does_not_take_harms_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let closed = || {
        // A pipe whose reader is gone.
        let (_, writer) = std::io::pipe().unwrap();
        File::from(std::os::fd::OwnedFd::from(writer))
    };
    for stderr in [full(), closed()] {
        succeed(
            child_in(directory.path(), "endings::child_that_cannot_write")
                .env("HOW", "missing")
                .stderr(stderr),
        );
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_cannot_write() {
    let place = directory().join("place");
    let path = place.join("cpu.pb.gz");
    fs::create_dir(&place).unwrap();
    let how = std::env::var("HOW").unwrap();
    if how == "full" {
        symlink("/dev/full", &path).unwrap();
    }
    let guard = profiler().start_to(&path).unwrap();
    work();
    if how == "missing" {
        fs::remove_dir(&place).unwrap();
    }
    drop(guard);
    assert_nothing_runs();
}

#[test]
fn a_name_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let path = directory
        .path()
        .join(std::ffi::OsStr::from_bytes(b"\xff\xfe.prof"));
    let guard = profiler().start_to(&path).unwrap();
    work();
    drop(guard);
    assert_complete(&path);
    assert_eq!(Format::from_path(&path).unwrap(), Format::CpuProfile);
}
