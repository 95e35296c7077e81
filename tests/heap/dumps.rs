//! Files that are written as the heap grows, in programs that the environment asks for them.

use std::fs;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sigprof::heap::{self, Dumper};
use sigprof::{ErrorKind, Profile};

use crate::leak::first_row;
use crate::process::{child, output, succeed};
use crate::support::{run, tool};

const MIB: u64 = 1 << 20;
/// What a child shall do, in its environment.
const WAY_OUT: &str = "SIGPROF_TEST_WAY_OUT";

/// A child that is to write files which begin so.
fn dumping(test: &str, prefix: &Path) -> Command {
    let mut command = child(test);
    command.env("HEAPPROFILE", prefix);
    // So that blocks of 1 MiB are all sampled.
    command.env("HEAP_PROFILE_SAMPLE_INTERVAL", "16384");
    command.env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0");
    command.env("HEAP_PROFILE_INUSE_INTERVAL", "0");
    command
}

/// All that is there, and is named as the first, the second and so on.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for (number, file) in (1..).zip(&files) {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.ends_with(&format!(".{number:04}.heap")), "{files:?}");
    }
    files
}

fn in_use(file: &Path) -> u64 {
    let profile = Profile::open(file).unwrap();
    // The text of a profile of which nothing was freed has nothing else.
    profile.total(profile.sample_types().len() - 1) as u64
}

/// Blocks of 1 MiB, which stay.
#[inline(never)]
fn grows(kept: &mut Vec<Vec<u8>>) {
    kept.push(black_box(vec![1; MIB as usize]));
}

#[inline(never)]
fn churns() {
    black_box(vec![1_u8; MIB as usize]);
}

/// Allocates until there are so many files.
fn until(count: usize, mut allocate: impl FnMut()) {
    let prefix = PathBuf::from(std::env::var_os("HEAPPROFILE").unwrap());
    let directory = prefix.parent().unwrap();
    let is_there = || {
        let name = format!("{}.{count:04}.heap", prefix.display());
        fs::exists(name).unwrap()
    };
    assert!(!is_there(), "{:?}", fs::read_dir(directory));
    for _ in 0..21 {
        allocate();
    }
    while !is_there() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_grows() {
    let dumps = heap::from_env().unwrap().expect("files are asked for");
    let mut kept = Vec::with_capacity(100);
    match std::env::var("HEAP_PROFILE_INUSE_INTERVAL")
        .unwrap()
        .as_str()
    {
        "0" => (1..=3).for_each(|count| until(count, churns)),
        _ => (1..=3).for_each(|count| until(count, || grows(&mut kept))),
    }
    match std::env::var(WAY_OUT).as_deref() {
        Ok("exit") => std::process::exit(0),
        Ok("abort") => std::process::abort(),
        Ok("fork") => {
            // SAFETY: the child allocates, as the C library lets it, and ends itself.
            match unsafe { libc::fork() } {
                0 => {
                    // SAFETY: it ends this process alone, and within a time.
                    unsafe { libc::alarm(60) };
                    (0..100).for_each(|_| grows(&mut kept));
                    drop(dumps);
                    std::process::exit(0)
                }
                pid => {
                    let mut status = 0;
                    // SAFETY: the place for the status outlives the call.
                    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
                    assert_eq!(status, 0);
                }
            }
        }
        _ => {}
    }
    drop(dumps);
}

#[test]
fn a_file_is_written_at_each_interval_and_at_the_end() {
    for way_out in ["drop", "exit", "fork", "abort"] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = dumping("dumps::child_that_grows", &directory.path().join("grown"));
        command.env("HEAP_PROFILE_INUSE_INTERVAL", (20 * MIB).to_string());
        command.env(WAY_OUT, way_out);
        let output = output(&mut command).unwrap();
        let is_end = match way_out {
            "abort" => output.status.signal() == Some(libc::SIGABRT),
            _ => output.status.success(),
        };
        assert!(is_end, "{way_out}: {output:?}");
        let files = files(directory.path());
        let in_use: Vec<u64> = files.iter().map(|file| in_use(file) / MIB).collect();
        assert_eq!(
            in_use.len(),
            if way_out == "abort" { 3 } else { 4 },
            "{way_out}: {in_use:?} MiB, {output:?}"
        );
        // A file is written when the interval is over, or a little later.
        for (count, in_use) in (1..=3).zip(&in_use) {
            assert!(
                (20 * count..=21 * count + 1).contains(in_use),
                "{way_out}: {in_use}"
            );
        }
        assert!(
            in_use[3..].iter().all(|last| (63..=64).contains(last)),
            "{in_use:?}"
        );
        if way_out == "exit"
            && let Some(google_pprof) = tool("google-pprof")
        {
            let mut command = Command::new(google_pprof);
            command.args(["--text", "--inuse_space"]);
            command.arg(std::env::current_exe().unwrap());
            command.arg(files.last().unwrap());
            let table = run(&mut command).stdout;
            assert!(first_row(&table).1.contains("grows"), "{table}");
        }
    }
}

#[test]
fn what_is_freed_counts_where_allocations_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = dumping("dumps::child_that_grows", &directory.path().join("churned"));
    command.env("HEAP_PROFILE_ALLOCATION_INTERVAL", (20 * MIB).to_string());
    succeed(&mut command);
    let files = files(directory.path());
    assert_eq!(files.len(), 4);
    let allocated: Vec<u64> = (files.iter())
        .map(|file| Profile::open(file).unwrap().total(1) as u64 / MIB)
        .collect();
    assert!(allocated.is_sorted() && allocated[0] >= 20, "{allocated:?}");
    assert!(in_use(&files[3]) < 5 * MIB);
}

#[test]
#[ignore = "a child process"]
fn child_that_uses_up_its_memory() {
    let _dumps = heap::from_env().unwrap();
    let limit = libc::rlimit {
        rlim_cur: 512 * MIB,
        rlim_max: 512 * MIB,
    };
    // SAFETY: reads the limit.
    let refused = unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) };
    assert_eq!(refused, 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut kept = Vec::with_capacity(1000);
                loop {
                    grows(&mut kept);
                }
            });
        }
    });
}

#[test]
fn a_file_is_whole_before_the_memory_runs_out() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("last");
    let mut command = dumping("dumps::child_that_uses_up_its_memory", &prefix);
    command.env("HEAP_PROFILE_DUMP_AT", (100 * MIB).to_string());
    let output = output(&mut command).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("memory allocation of"), "{output:?}");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    let files = files(directory.path());
    assert_eq!(files.len(), 1);
    // Each thread may have one block more.
    let in_use = in_use(&files[0]);
    assert!((100 * MIB..=106 * MIB).contains(&in_use), "{in_use}");
}

#[test]
#[ignore = "a child process"]
fn child_whose_directory_goes() {
    let directory = PathBuf::from(std::env::var_os("HEAPPROFILE").unwrap());
    let directory = directory.parent().unwrap();
    let dumps = heap::from_env().unwrap();
    let mut kept = Vec::with_capacity(100);
    until(1, || grows(&mut kept));
    fs::remove_dir_all(directory).unwrap();
    (0..21).for_each(|_| grows(&mut kept));
    // The writer may not have looked yet: until it has, nothing more is due.
    drop(dumps);
    fs::create_dir(directory).unwrap();
    let _dumps = heap::from_env().unwrap();
    until(1, || grows(&mut kept));
}

#[test]
fn a_file_that_cannot_be_written_is_a_line_on_stderr() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("files").join("heap");
    fs::create_dir(prefix.parent().unwrap()).unwrap();
    let mut command = dumping("dumps::child_whose_directory_goes", &prefix);
    command.env("HEAP_PROFILE_INUSE_INTERVAL", (20 * MIB).to_string());
    let output = succeed(&mut command);
    let errors = String::from_utf8_lossy(&output.stderr);
    // The directory may go before the first file's name is synced, which is another line.
    let lines = errors.matches("sigprof: no heap profile was written: cannot write the file ");
    assert!((1..=2).contains(&lines.count()), "{errors}");
    assert_eq!(files(prefix.parent().unwrap()).len(), 2);
}

#[test]
#[ignore = "a child process"]
fn child_that_asks() {
    match heap::from_env() {
        Ok(dumps) => println!("{} {}", dumps.is_some(), heap::sample_interval()),
        Err(error) => println!("{error:?}"),
    }
}

#[test]
fn the_environment_is_asked_and_what_is_wrong_there_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("heap");
    let prefix = prefix.to_str().unwrap();
    let missing = directory.path().join("missing").join("heap");
    let answer = |variables: &[(&str, &str)]| {
        let mut command = child("dumps::child_that_asks");
        command.envs(variables.iter().copied());
        String::from_utf8(succeed(&mut command).stdout).unwrap()
    };
    let profile = ("HEAPPROFILE", prefix);
    assert!(answer(&[]).contains("false 65536"));
    assert!(answer(&[("HEAPPROFILE", "")]).contains("false 65536"));
    assert!(answer(&[("HEAP_PROFILE_SAMPLE_INTERVAL", "0")]).contains("false 0"));
    assert!(files(directory.path()).is_empty());
    assert!(answer(&[profile]).contains("true 65536"));
    assert_eq!(files(directory.path()).len(), 1);
    let pid = answer(&[profile, ("HEAPPROFILE_USE_PID", "1")]);
    assert!(pid.contains("true 65536"));
    let entries = fs::read_dir(directory.path()).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.starts_with("heap_") && name.ends_with(".0001.heap")
    });
    assert_eq!(entries.filter(|&is_of_pid| is_of_pid).count(), 1);
    for (variable, value) in [
        ("HEAP_PROFILE_SAMPLE_INTERVAL", "often"),
        ("HEAP_PROFILE_ALLOCATION_INTERVAL", "-1"),
        ("HEAP_PROFILE_INUSE_INTERVAL", "1G"),
        ("HEAP_PROFILE_DUMP_AT", " "),
    ] {
        let answer = answer(&[profile, (variable, value)]);
        let sentence = format!("{variable} is `{value}`, which is no number of bytes");
        assert!(answer.contains(&sentence), "{answer}");
    }
    let answer = answer(&[("HEAPPROFILE", missing.to_str().unwrap())]);
    assert!(
        answer.contains("missing") && answer.contains("Io"),
        "{answer}"
    );
}

/// Asks the environment before `main`, where the process has one thread, if a test shall.
pub fn ask_before_main() {
    if std::env::var_os(ASKS_BEFORE_MAIN).is_some() {
        std::mem::forget(heap::from_env().unwrap());
    }
}

const ASKS_BEFORE_MAIN: &str = "SIGPROF_TEST_ASKS_BEFORE_MAIN";

#[test]
#[ignore = "a child process"]
fn child_that_executes_another() {
    black_box(vec![0_u8; 1 << 20]);
    succeed(&mut child("dumps::child_that_grows_a_little"));
}

#[test]
#[ignore = "a child process"]
fn child_that_grows_a_little() {
    black_box(vec![0_u8; 2 << 20]);
}

#[test]
fn a_program_that_another_one_executes_has_files_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("heap");
    let old = ["heap.0001.heap", "heap.0002.heap", "heap.12345.heap"];
    let others = [
        "heap.001.heap",
        "heap.0001.heap.gz",
        "heap2.0001.heap",
        "heap_1.0001.heap",
    ];
    for name in old.iter().chain(&others) {
        fs::write(directory.path().join(name), "").unwrap();
    }
    let mut command = dumping("dumps::child_that_executes_another", &prefix);
    succeed(command.env(ASKS_BEFORE_MAIN, "1"));
    let names = fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| !others.contains(&name.as_str()));
    names.sort();
    let [own, childs] = &names[..] else {
        panic!("{names:?}");
    };
    assert_eq!(own, "heap.0001.heap");
    assert!(
        childs.starts_with("heap_") && childs.ends_with(".0001.heap"),
        "{childs}"
    );
    let allocated = |name: &str| {
        let profile = Profile::open(directory.path().join(name)).unwrap();
        profile.total(1)
    };
    assert!(
        (1 << 20..2 << 20).contains(&allocated(own)),
        "{}",
        allocated(own)
    );
    assert!(allocated(childs) >= 2 << 20, "{}", allocated(childs));
}

#[test]
fn one_dumper_runs_at_a_time_and_another_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let first = Dumper::new(directory.path().join("first")).start().unwrap();
    let refused = Dumper::new(directory.path().join("second")).start();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyRunning);
    drop(first);
    drop(Dumper::new(directory.path().join("first")).start().unwrap());
    assert_eq!(files(directory.path()).len(), 1);
}
