//! Files appear whole or not at all, and an error says what failed on which path.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use sigprof::format::OutputFile;
use sigprof::{ErrorKind, Profile};

use crate::process::succeed;

use super::samples::by_hand;

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_profile_is_saved_by_its_extension_and_opened_by_its_bytes() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.pb.gz", "a.pb", "a.pprof", "a.prof"] {
        let path = directory.path().join(name);
        by_hand().save(&path).unwrap();
        let renamed = directory.path().join("anything");
        fs::rename(&path, &renamed).unwrap();
        assert_eq!(
            Profile::open(&renamed).unwrap().total(0),
            by_hand().total(0)
        );
        assert_eq!(names(directory.path()), ["anything"]);
    }
}

#[test]
fn errors_name_the_path_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("regular"), "x").unwrap();
    fs::create_dir(at("directory.pb")).unwrap();
    symlink("loop.pb", at("loop.pb")).unwrap();
    let before = names(directory.path());
    let cases = [
        (
            "cpu.txt",
            ErrorKind::InvalidInput,
            ".pb.gz, .pprof, .pb, .prof",
        ),
        ("missing/cpu.pb", ErrorKind::Io, "No such file or directory"),
        ("regular/cpu.pb", ErrorKind::Io, "Not a directory"),
        ("directory.pb", ErrorKind::Io, "it is a directory"),
        ("loop.pb", ErrorKind::Io, "symbolic links"),
    ];
    for (name, kind, expected) in cases {
        let path = at(name);
        let error = by_hand().save(&path).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let message = error.to_string();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        assert!(message.contains(expected), "{message}");
        if kind == ErrorKind::Io {
            let probed = OutputFile::probe(&path).unwrap_err();
            assert_eq!(probed.to_string(), message, "a probe says the same before");
        }
    }
    for path in ["/proc/self/cpu.pb", "/sys/cpu.pb"] {
        assert_eq!(by_hand().save(path).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(OutputFile::probe(path).unwrap_err().kind(), ErrorKind::Io);
    }
    let error = Profile::open(at("nothing.pb")).unwrap_err();
    assert!(
        error.to_string().contains("nothing.pb`: No such file"),
        "{error}"
    );
    let error = Profile::open(at("regular")).unwrap_err();
    assert!(error.to_string().contains("regular"), "{error}");
    assert_eq!(names(directory.path()), before);
}

#[test]
fn a_probe_leaves_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    OutputFile::probe(directory.path().join("cpu.pb")).unwrap();
    assert!(names(directory.path()).is_empty());
    let old = directory.path().join("old.pb");
    fs::write(&old, "old").unwrap();
    OutputFile::probe(&old).unwrap();
    assert_eq!(fs::read(&old).unwrap(), b"old");
}

#[test]
fn an_old_file_stays_whole_until_the_new_one_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.prof");
    fs::write(&path, "old").unwrap();
    // The format cannot hold it.
    assert!(Profile::default().save(&path).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"old");
    // Dropped before it was complete.
    let mut file = OutputFile::create(&path).unwrap();
    file.write_all(b"half").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    drop(file);
    assert_eq!(names(directory.path()), ["cpu.prof"]);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    let mut file = OutputFile::create(&path).unwrap();
    file.write_all(b"new").unwrap();
    file.commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

#[test]
fn a_full_disk_is_an_error_that_leaves_the_link_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.pb.gz");
    symlink("/dev/full", &path).unwrap();
    OutputFile::probe(&path).unwrap();
    let error = by_hand().save(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let message = error.to_string();
    assert!(message.contains("No space left on device"), "{message}");
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert_eq!(fs::read_link(&path).unwrap(), Path::new("/dev/full"));
}

#[test]
fn permissions_follow_the_umask_and_those_of_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    fs::write(&plain, "").unwrap();
    let path = directory.path().join("cpu.pb");
    by_hand().save(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&path), mode(&plain), "as any other new file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    by_hand().save(&path).unwrap();
    assert_eq!(mode(&path), 0o640);
}

#[test]
fn a_link_is_written_through() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("real")).unwrap();
    symlink("real/cpu.pb", at("latest.pb")).unwrap();
    for _ in 0..2 {
        // First to a target that is not there yet, then to one that is.
        by_hand().save(at("latest.pb")).unwrap();
        assert_eq!(
            fs::read_link(at("latest.pb")).unwrap(),
            Path::new("real/cpu.pb")
        );
        assert!(fs::symlink_metadata(at("real/cpu.pb")).unwrap().is_file());
        assert!(Profile::open(at("latest.pb")).is_ok());
    }
    assert_eq!(names(&at("real")), ["cpu.pb"]);
}

#[test]
fn a_fifo_and_a_device_are_written_to_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("cpu.pb");
    succeed(std::process::Command::new("mkfifo").arg(&fifo));
    OutputFile::probe(&fifo).unwrap(); // does not wait for a reader
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || Profile::open(fifo).unwrap()
    });
    // Until the reader is there it is an error.
    while let Err(error) = by_hand().save(&fifo) {
        assert!(error.to_string().contains("nobody reads"), "{error}");
        std::thread::yield_now();
    }
    assert_eq!(reader.join().unwrap(), by_hand());

    let null = directory.path().join("null.pb");
    symlink("/dev/null", &null).unwrap();
    by_hand().save(&null).unwrap();
    assert!(fs::symlink_metadata(&null).unwrap().is_symlink());
}
