//! Paths that cannot be written: an error before the run where that can be known, else a sentence
//! at its end.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use sigprof::format::OutputFile;
use sigprof::{ErrorKind, profile_to};

use crate::check::{
    assert_complete, assert_nothing_runs, child_in, directory, is_root, names, profiler, work,
};
use crate::process::{output, skip, succeed, turn};

const NOBODY: libc::uid_t = 65534;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Takes root's rights from the process for good; others have none to lose.
fn lose_rights() {
    if is_root() {
        // SAFETY: no pointer but null, of length 0.
        unsafe {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setresgid(NOBODY, NOBODY, NOBODY), 0);
            assert_eq!(libc::setresuid(NOBODY, NOBODY, NOBODY), 0);
        }
    }
}

#[test]
fn an_unknown_extension_lists_the_known_ones_and_starts_nothing() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    for name in ["cpu", "cpu.txt", "cpu.gz", "cpu.PROF", "cpu.prof.bak"] {
        let path = directory.path().join(name);
        for refused in [profile_to(&path), profiler().start_to(&path)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let message = error.to_string();
            assert!(message.contains(path.to_str().unwrap()), "{message}");
            assert!(message.contains(".pb.gz, .pprof, .pb, .prof"), "{message}");
            assert_nothing_runs();
        }
    }
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_path_that_cannot_work_is_an_error_before_the_run() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("directory.pb")).unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let before = names(directory.path());
    for (name, expected) in [
        ("missing/cpu.pb.gz", "No such file or directory"),
        ("file/cpu.pb.gz", "Not a directory"),
        ("directory.pb", "it is a directory; give a file name in it"),
    ] {
        let path = directory.path().join(name);
        for refused in [profile_to(&path), profiler().start_to(&path)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            let message = error.to_string();
            assert!(message.contains(path.to_str().unwrap()), "{message}");
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains(".sigprof-"), "{message}");
            assert_nothing_runs();
        }
    }
    assert_eq!(names(directory.path()), before);
}

#[test]
fn a_name_of_a_profile_of_memory_or_locks_is_refused_before_a_recording_of_time() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    for name in ["x.heap", "x.growth", "x.contention"] {
        let path = directory.path().join(name);
        for refused in [profile_to(&path), profiler().start_to(&path)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let message = error.to_string();
            assert!(message.contains("of memory or of locks"), "{message}");
            assert_nothing_runs();
        }
    }
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn a_refused_start_leaves_the_file_and_the_running_recording_alone() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.pb.gz");
    let old = directory.path().join("old.pb.gz");
    fs::write(&old, "old").unwrap();
    let running = profiler().start_to(&path).unwrap();
    for refused in [
        profiler().start_to(&old),
        profiler().frequency_hz(0).start_to(&old),
    ] {
        let kind = refused.unwrap_err().kind();
        assert!(matches!(
            kind,
            ErrorKind::AlreadyRunning | ErrorKind::InvalidInput
        ));
        assert_eq!(fs::read(&old).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["old.pb.gz"]);
    }
    work();
    drop(running);
    assert_complete(&path);
}

/// A directory in which the rights of others end at different places.
fn places() -> tempfile::TempDir {
    let places = tempfile::tempdir().unwrap();
    set_mode(places.path(), 0o755);
    for name in ["open", "closed", "read_only"] {
        let place = places.path().join(name);
        fs::create_dir(&place).unwrap();
        fs::write(place.join("old.pb.gz"), "old").unwrap();
    }
    set_mode(&places.path().join("open/old.pb.gz"), 0o444);
    set_mode(&places.path().join("open"), 0o777);
    set_mode(&places.path().join("closed"), 0o000);
    set_mode(&places.path().join("read_only"), 0o555);
    places
}

/// So that whoever made the places can remove them.
fn give_back(places: &Path) {
    for name in ["open", "closed", "read_only"] {
        set_mode(&places.join(name), 0o755);
    }
}

#[test]
fn without_permission_it_is_an_error_before_the_run() {
    let places = places();
    let mut child = child_in(places.path(), "refusals::child_without_permission");
    let output = output(&mut child);
    give_back(places.path());
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    for name in ["open", "closed", "read_only"] {
        let place = places.path().join(name);
        assert_eq!(fs::read(place.join("old.pb.gz")).unwrap(), b"old");
        let expected: &[&str] = match name {
            "open" => &["new.pb.gz", "old.pb.gz"],
            _ => &["old.pb.gz"],
        };
        assert_eq!(names(&place), expected, "{name}");
    }
    assert_complete(&places.path().join("open/new.pb.gz"));
}

#[test]
#[ignore = "a child process"]
fn child_without_permission() {
    lose_rights();
    for name in [
        "open/old.pb.gz",
        "closed/old.pb.gz",
        "closed/new.pb.gz",
        "read_only/old.pb.gz",
        "read_only/new.pb.gz",
    ] {
        let path = directory().join(name);
        let error = profiler().start_to(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let message = error.to_string();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        assert!(message.contains("Permission denied"), "{message}");
        assert_nothing_runs();
    }
    // It is the path, not the user, that does not work.
    let guard = profiler()
        .start_to(directory().join("open/new.pb.gz"))
        .unwrap();
    work();
    guard.finish().unwrap();
}

#[test]
fn another_users_file_in_a_sticky_directory_is_an_error_before_the_run() {
    if !is_root() {
        return skip("it needs two users");
    }
    let directory = tempfile::tempdir().unwrap();
    set_mode(directory.path(), 0o1777);
    for name in ["old.pb.gz", "own.pb.gz"] {
        fs::write(directory.path().join(name), "old").unwrap();
        set_mode(&directory.path().join(name), 0o666);
    }
    let own = directory.path().join("own.pb.gz");
    chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    succeed(&mut child_in(
        directory.path(),
        "refusals::child_in_a_sticky_directory",
    ));
    assert_eq!(names(directory.path()), ["old.pb.gz", "own.pb.gz"]);
    let old = fs::read(directory.path().join("old.pb.gz")).unwrap();
    assert_eq!(old, b"old");
    assert_complete(&own);
    // Root may replace all files.
    chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    OutputFile::create(own).unwrap().commit().unwrap();
}

#[test]
#[ignore = "a child process"]
fn child_in_a_sticky_directory() {
    lose_rights();
    let path = directory().join("old.pb.gz");
    let error = profiler().start_to(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert!(message.contains("sticky directory"), "{message}");
    assert_nothing_runs();
    let own = directory().join("own.pb.gz");
    let guard = profiler().start_to(own).unwrap();
    work();
    guard.finish().unwrap();
}

#[test]
fn a_path_that_ends_in_a_slash_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("link.pb.gz");
    symlink("missing/", &link).unwrap();
    for path in [
        directory.path().join("new/"),
        directory.path().join("new/."),
        link,
    ] {
        let error = OutputFile::probe(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("ends in `/`"), "{error}");
    }
    assert_eq!(names(directory.path()), ["link.pb.gz"]);
}

#[test]
fn a_fifo_without_a_reader_does_not_hold_up_the_host() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.pb.gz");
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a string that lives until the call returns.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
    let guard = profiler().start_to(&path).unwrap();
    work();
    let error = guard.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert!(message.contains("nobody reads the FIFO"), "{message}");

    // A reader that is slow is waited for.
    let reader = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut file = File::open(path).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(200));
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            bytes
        }
    });
    let mut file = loop {
        match OutputFile::create(&path) {
            Ok(file) => break file,
            Err(_) => std::thread::yield_now(),
        }
    };
    file.write_all(&[7; 1 << 20]).unwrap(); // more than a pipe holds
    file.commit().unwrap();
    assert_eq!(reader.join().unwrap().len(), 1 << 20);
}

#[test]
fn a_descriptor_is_written_to_and_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let open = File::create(&path).unwrap();
    let fd = open.as_raw_fd();
    let pid = std::process::id();
    let ways = [
        format!("/proc/self/fd/{fd}"),
        format!("/proc/thread-self/fd/{fd}"),
        format!("/proc/{pid}/fd/{fd}"),
        format!("/proc/{pid}/task/{pid}/fd/{fd}"),
    ];
    for (i, way) in ways.iter().enumerate() {
        let mut file = OutputFile::create(way).unwrap();
        file.write_all(b"x").unwrap();
        file.commit().unwrap();
        assert_eq!(open.metadata().unwrap().len(), i as u64 + 1, "{way}");
    }
}

/// Lets the command run where this file is mounted over itself, which nobody else sees.
fn with_a_mounted(command: &mut Command, file: &Path) {
    let file = CString::new(file.to_str().unwrap()).unwrap();
    let mount = move || {
        let none = std::ptr::null();
        let (root, file) = (c"/".as_ptr(), file.as_ptr());
        // SAFETY: system calls alone, with strings that live until they return.
        let results = unsafe {
            [
                libc::unshare(libc::CLONE_NEWNS),
                libc::mount(
                    none,
                    root,
                    none,
                    libc::MS_REC | libc::MS_PRIVATE,
                    none.cast(),
                ),
                libc::mount(file, file, none, libc::MS_BIND, none.cast()),
            ]
        };
        match results {
            [0, 0, 0] => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the function makes three system calls and allocates nothing.
    unsafe { command.pre_exec(mount) };
}

#[test]
fn a_mounted_file_is_an_error_that_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.pb.gz");
    fs::write(&path, "old").unwrap();
    let mut trial = Command::new("true");
    with_a_mounted(&mut trial, &path);
    if let Err(error) = output(&mut trial) {
        return skip(&format!("it needs the right to mount a file: {error}"));
    }
    let mut command = child_in(directory.path(), "refusals::child_with_a_mounted_file");
    with_a_mounted(&mut command, &path);
    succeed(&mut command);
    assert_eq!(fs::read(path).unwrap(), b"old");
    assert_eq!(names(directory.path()), ["cpu.pb.gz"]);
}

#[test]
#[ignore = "a child process"]
fn child_with_a_mounted_file() {
    let path = directory().join("cpu.pb.gz");
    let file = OutputFile::create(path).unwrap();
    let message = file.commit().unwrap_err().to_string();
    assert!(message.contains("a file is mounted there"), "{message}");
}

#[test]
fn a_program_may_give_up_its_rights_while_it_is_recorded() {
    let places = tempfile::tempdir().unwrap();
    set_mode(places.path(), 0o755);
    fs::write(places.path().join("cpu.pb.gz"), "old").unwrap();
    let mut child = child_in(places.path(), "refusals::child_that_loses_its_rights");
    let output = output(&mut child);
    set_mode(places.path(), 0o755);
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(names(places.path()), ["cpu.pb.gz"]);
    assert_eq!(fs::read(places.path().join("cpu.pb.gz")).unwrap(), b"old");
}

#[test]
#[ignore = "a child process"]
fn child_that_loses_its_rights() {
    let path = directory().join("cpu.pb.gz");
    let guard = profiler().start_to(&path).unwrap();
    set_mode(&directory(), 0o555);
    lose_rights();
    work();
    let error = guard.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert!(message.contains("Permission denied"), "{message}");
    assert_nothing_runs();
}

#[test]
fn a_device_that_is_full_is_an_error_that_names_the_path() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.pb.gz");
    symlink("/dev/full", &path).unwrap();
    let guard = profiler().start_to(&path).unwrap();
    work();
    let error = guard.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert!(message.contains("No space left on device"), "{message}");
    assert_nothing_runs();
    assert_eq!(names(directory.path()), ["cpu.pb.gz"]);
}

/// Lets the command run with a small file system of its own at `directory`, which nobody else sees.
fn on_a_small_disk(command: &mut Command, directory: &Path) {
    let target = CString::new(directory.to_str().unwrap()).unwrap();
    let mount = move || {
        let none = std::ptr::null();
        // SAFETY: system calls alone, with strings that live until they return.
        let results = unsafe {
            [
                libc::unshare(libc::CLONE_NEWNS),
                libc::mount(
                    none,
                    c"/".as_ptr(),
                    none,
                    libc::MS_REC | libc::MS_PRIVATE,
                    none.cast(),
                ),
                libc::mount(
                    c"tmpfs".as_ptr(),
                    target.as_ptr(),
                    c"tmpfs".as_ptr(),
                    0,
                    c"size=256k,nr_inodes=20".as_ptr().cast(),
                ),
            ]
        };
        match results {
            [0, 0, 0] => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the function makes three system calls and allocates nothing.
    unsafe { command.pre_exec(mount) };
}

#[test]
fn a_full_disk_leaves_the_old_file_whole() {
    let directory = tempfile::tempdir().unwrap();
    let mut trial = Command::new("true");
    on_a_small_disk(&mut trial, directory.path());
    if let Err(error) = output(&mut trial) {
        return skip(&format!(
            "it needs the right to mount a file system: {error}"
        ));
    }
    let mut command = child_in(directory.path(), "refusals::child_on_a_full_disk");
    on_a_small_disk(&mut command, directory.path());
    succeed(&mut command);
    assert!(names(directory.path()).is_empty(), "it was a disk apart");
}

#[test]
#[ignore = "a child process"]
fn child_on_a_full_disk() {
    let at = |name: &str| directory().join(name);
    fs::write(at("cpu.pb.gz"), "old").unwrap();
    let full = |error: sigprof::Error| {
        assert_eq!(error.kind(), ErrorKind::Io);
        let message = error.to_string();
        assert!(
            message.contains(at("cpu.pb.gz").to_str().unwrap()),
            "{message}"
        );
        assert!(message.contains("No space left on device"), "{message}");
        assert!(!message.contains(".sigprof-"), "{message}");
        assert_eq!(fs::read(at("cpu.pb.gz")).unwrap(), b"old");
        assert_nothing_runs();
    };

    // It fills up during the run.
    let guard = profiler().start_to(at("cpu.pb.gz")).unwrap();
    let mut filler = File::create(at("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    drop(filler);
    work();
    full(guard.finish().unwrap_err());
    assert_eq!(names(&directory()), ["cpu.pb.gz", "filler"]);

    // Not one more file has a place: that is known before.
    fs::remove_file(at("filler")).unwrap();
    let mut number = 0;
    while File::create(at(&format!("filler{number}"))).is_ok() {
        number += 1;
    }
    full(profiler().start_to(at("cpu.pb.gz")).unwrap_err());
    assert_eq!(names(&directory()).len(), number + 1);

    // With room again it works.
    fs::remove_file(at("filler0")).unwrap();
    let guard = profiler().start_to(at("cpu.pb.gz")).unwrap();
    work();
    guard.finish().unwrap();
    assert_complete(&at("cpu.pb.gz"));
    assert_eq!(names(&directory()).len(), number);
}
