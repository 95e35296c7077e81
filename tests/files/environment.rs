//! `CPUPROFILE` and its relatives.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sigprof::from_env;

use crate::check::{assert_complete, assert_nothing_runs, is_root, names, work};
use crate::process::{all_or, child, skip, succeed};

/// Runs a program that calls `from_env`, with these variables alone of ours; what it says about it.
fn said(variables: &[(&str, &OsStr)]) -> String {
    let mut command = child("environment::child_of_the_environment");
    for name in ["CPUPROFILE", "CPUPROFILE_FREQUENCY"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    let output = succeed(&mut command);
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains("the program runs to its end"), "{output}");
    let said = output.lines().find_map(|line| line.strip_prefix("said: "));
    said.expect("the child says one of three things").to_owned()
}

#[test]
#[ignore = "a child process"]
fn child_of_the_environment() {
    match std::env::var("RIGHTS").as_deref() {
        // SAFETY: no pointers; the test is root and may do this.
        Ok("user") => assert_eq!(unsafe { libc::setresuid(65534, 0, 0) }, 0),
        // SAFETY: as above.
        Ok("group") => assert_eq!(unsafe { libc::setresgid(65534, 0, 0) }, 0),
        _ => {}
    }
    println!();
    match from_env() {
        Ok(Some(_profiling)) => {
            println!("said: started");
            work();
        }
        Ok(None) => println!("said: nothing"),
        Err(error) => println!("said: {error}"),
    }
    assert_nothing_runs();
    println!("the program runs to its end");
}

/// The period that a gperftools file says, in microseconds, and its format.
fn legacy_period_us(file: &Path) -> u64 {
    let bytes = fs::read(file).unwrap();
    let words: Vec<u64> = bytes[..40]
        .chunks(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(
        [words[0], words[1], words[2], words[4]],
        [0, 3, 0, 0],
        "the header of a gperftools file"
    );
    words[3]
}

#[test]
fn without_a_path_nothing_is_recorded() {
    assert_eq!(said(&[]), "nothing");
    assert_eq!(said(&[("CPUPROFILE", OsStr::new(""))]), "nothing");
    let frequency = ("CPUPROFILE_FREQUENCY", OsStr::new("100"));
    assert_eq!(said(&[frequency]), "nothing");
}

#[test]
fn an_extension_of_ours_picks_its_format_and_any_other_is_gperftools() {
    let directory = tempfile::tempdir().unwrap();
    for (name, is_legacy) in [
        ("cpu.pb.gz", false),
        ("cpu.prof", true),
        ("cpu", true),
        ("cpu.out", true),
        ("cpu.heap", true),
    ] {
        let path = directory.path().join(name);
        assert_eq!(said(&[("CPUPROFILE", path.as_os_str())]), "started");
        let profile = assert_complete(&path);
        assert_eq!(profile.period, 10_000_000, "100 Hz");
        assert_eq!(names(directory.path()), [name]);
        match is_legacy {
            true => assert_eq!(legacy_period_us(&path), 10_000),
            false => assert_eq!(fs::read(&path).unwrap()[..2], [0x1f, 0x8b]),
        }
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_frequency_that_makes_no_sense_is_100_and_the_most_is_4000() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.prof");
    // How the text is read, a test of the reader's own says of all of them.
    let cases: [(&[u8], u64); 9] = [
        (b"250", 4000),
        (b"5000", 250),
        (b"0", 10_000),
        (b"10000000000", 250),
        (b"-5", 10_000),
        (b"", 10_000),
        (b"often", 10_000),
        (b"1e3", 10_000),
        (b"\xff", 10_000),
    ];
    for &(frequency, period_us) in all_or(&cases[..3], &cases) {
        let frequency = OsStr::from_bytes(frequency);
        let variables = [
            ("CPUPROFILE", path.as_os_str()),
            ("CPUPROFILE_FREQUENCY", frequency),
        ];
        assert_eq!(said(&variables), "started");
        assert_eq!(legacy_period_us(&path), period_us, "{frequency:?}");
        assert_eq!(assert_complete(&path).period as u64, period_us * 1000);
    }
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_to_ignore() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["missing/cpu.prof", "missing/cpu", "."] {
        let path = directory.path().join(name);
        let error = said(&[("CPUPROFILE", path.as_os_str())]);
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_program_with_more_rights_than_its_user_ignores_it() {
    if !is_root() {
        return skip("it needs root to make such a program");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cpu.prof");
    for rights in ["user", "group"] {
        let variables = [
            ("CPUPROFILE", path.as_os_str()),
            ("RIGHTS", OsStr::new(rights)),
        ];
        assert_eq!(said(&variables), "nothing");
        assert!(names(directory.path()).is_empty());
    }
}
