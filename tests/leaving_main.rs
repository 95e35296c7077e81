//! What becomes of the file when `main` is left with a guard alive. The harness of tests would
//! stand between a panic and the process's end, so this program has a `main` of its own: without
//! arguments of ours it runs itself once for each way out.

#[path = "support/process.rs"]
mod process;
mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Termination};

use sigprof::Profile;
use support::{go_pprof, tool};

/// The way out, in the environment of a child.
const WAY_OUT: &str = "SIGPROF_TEST_WAY_OUT";

/// A way out of `main`, how the process then ends, and whether there is a file.
struct WayOut {
    name: &'static str,
    is_end: fn(ExitStatus) -> bool,
    writes: bool,
}

const WAYS_OUT: [WayOut; 6] = [
    WayOut {
        name: "return",
        is_end: |status| status.success(),
        writes: true,
    },
    WayOut {
        name: "error",
        is_end: |status| status.code() == Some(1),
        writes: true,
    },
    WayOut {
        name: "panic",
        is_end: |status| status.code() == Some(101),
        writes: true,
    },
    WayOut {
        name: "exit",
        is_end: |status| status.code() == Some(7),
        writes: false,
    },
    WayOut {
        name: "abort",
        is_end: |status| status.signal() == Some(libc::SIGABRT),
        writes: false,
    },
    WayOut {
        name: "kill",
        is_end: |status| status.signal() == Some(libc::SIGTERM),
        writes: false,
    },
];

fn main() -> ExitCode {
    if let Ok(way_out) = std::env::var(WAY_OUT) {
        return leave(&way_out).report();
    }
    // A harness that lists tests finds none here.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    for way_out in &WAYS_OUT {
        for old in [None, Some("old")] {
            try_way_out(way_out, old);
        }
        println!("main left by {}: ok", way_out.name);
    }
    ExitCode::SUCCESS
}

/// A program that is profiled and leaves `main`.
fn leave(way_out: &str) -> Result<(), String> {
    let _profiling = sigprof::profile_to("cpu.pb.gz").map_err(|e| e.to_string())?;
    for _ in 0..20 {
        // SAFETY: a signal to the calling thread.
        unsafe { libc::raise(libc::SIGPROF) };
    }
    match way_out {
        "return" => Ok(()),
        "error" => Err("an error of the test's".into()),
        "panic" => panic!("a panic of the test's"),
        "exit" => std::process::exit(7),
        "abort" => std::process::abort(),
        _ => {
            // SAFETY: a signal to this process, whose default action ends it.
            unsafe { libc::raise(libc::SIGTERM) };
            Ok(())
        }
    }
}

fn try_way_out(way_out: &WayOut, old: Option<&str>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cpu.pb.gz");
    if let Some(old) = old {
        fs::write(&file, old).unwrap();
    }
    let mut command = process::this_program();
    command
        .current_dir(directory.path())
        .env(WAY_OUT, way_out.name);
    let output = process::output(&mut command).unwrap();
    let name = way_out.name;
    assert!((way_out.is_end)(output.status), "{name}: {output:?}");
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("sigprof:"),
        "{name}: {output:?}"
    );
    let entries = fs::read_dir(directory.path()).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    match (way_out.writes, old) {
        (true, _) => {
            assert_eq!(names, ["cpu.pb.gz"], "{name}");
            assert_complete(&file);
        }
        (false, Some(old)) => {
            assert_eq!(names, ["cpu.pb.gz"], "{name}");
            assert_eq!(fs::read_to_string(&file).unwrap(), old, "{name}");
        }
        (false, None) => assert!(names.is_empty(), "{name}: {names:?}"),
    }
}

fn assert_complete(file: &Path) {
    assert!(Profile::open(file).unwrap().total(0) >= 20);
    if let Some(go) = tool("go") {
        let raw = go_pprof(&go, &["-raw", "-symbolize=none"], file);
        assert_eq!(raw.stderr, "");
        assert!(raw.stdout.contains("Samples:"), "{}", raw.stdout);
    }
}
