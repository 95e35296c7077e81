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
use std::sync::{OnceLock, mpsc};
use std::thread;

use sigprof::Profile;
use sigprof::cpu::Guard;
use support::{go_pprof, tool};

/// What is in the file before.
const OLD: &str = "old";

/// The way out, in the environment of a child.
const WAY_OUT: &str = "SIGPROF_TEST_WAY_OUT";

/// A way out of `main`, how the process then ends, and what is in the file.
struct WayOut {
    name: &'static str,
    is_end: fn(ExitStatus) -> bool,
    leaves: Leaves,
}

/// What is in the file at the end.
#[derive(Clone, Copy)]
enum Leaves {
    /// A whole profile.
    Profile,
    /// What was there before.
    OldFile,
    /// What the program has put in the profile's place.
    FileOfProgram,
}

/// What a program puts in the place of a profile.
const OF_PROGRAM: &str = "written by the program";

const fn way(name: &'static str, is_end: fn(ExitStatus) -> bool, leaves: Leaves) -> WayOut {
    WayOut {
        name,
        is_end,
        leaves,
    }
}

const WAYS_OUT: [WayOut; 16] = [
    way("return", |end| end.success(), Leaves::Profile),
    way("error", |end| end.code() == Some(1), Leaves::Profile),
    way("panic", |end| end.code() == Some(101), Leaves::Profile),
    way("static", |end| end.success(), Leaves::Profile),
    way("leak", |end| end.success(), Leaves::Profile),
    way("exit", |end| end.code() == Some(7), Leaves::Profile),
    way("thread", |end| end.code() == Some(7), Leaves::Profile),
    way("handler", |end| end.code() == Some(7), Leaves::Profile),
    way("finishing", |end| end.success(), Leaves::Profile),
    way("child", |end| end.success(), Leaves::Profile),
    way("directory", |end| end.success(), Leaves::Profile),
    way(
        "dropped",
        |end| end.code() == Some(7),
        Leaves::FileOfProgram,
    ),
    way("_exit", |end| end.code() == Some(7), Leaves::OldFile),
    way("stopped", |end| end.success(), Leaves::OldFile),
    way(
        "abort",
        |end| end.signal() == Some(libc::SIGABRT),
        Leaves::OldFile,
    ),
    way(
        "kill",
        |end| end.signal() == Some(libc::SIGTERM),
        Leaves::OldFile,
    ),
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
        for old in [None, Some(OLD)] {
            try_way_out(way_out, old);
        }
        println!("main left by {}: ok", way_out.name);
    }
    ExitCode::SUCCESS
}

/// A program that is profiled and leaves `main`.
fn leave(way_out: &str) -> Result<(), String> {
    static GUARD: OnceLock<Guard> = OnceLock::new();
    let profiling = sigprof::profile_to("cpu.pb.gz").map_err(|e| e.to_string())?;
    for _ in 0..20 {
        // SAFETY: a signal to the calling thread.
        unsafe { libc::raise(libc::SIGPROF) };
    }
    match way_out {
        "return" => Ok(()),
        "error" => Err("an error of the test's".into()),
        "panic" => panic!("a panic of the test's"),
        "static" => {
            GUARD.set(profiling).unwrap();
            Ok(())
        }
        "leak" => {
            std::mem::forget(profiling);
            Ok(())
        }
        "exit" => std::process::exit(7),
        "thread" => {
            thread::spawn(|| std::process::exit(7));
            loop {
                thread::park();
            }
        }
        "handler" => exit_in_a_handler_on_a_small_stack(),
        "finishing" => {
            // The thread is somewhere in `finish` when the process ends, or before or behind it.
            let (sender, receiver) = mpsc::channel();
            thread::spawn(move || {
                sender.send(()).unwrap();
                profiling.finish()
            });
            receiver.recv().unwrap();
            Ok(())
        }
        "child" => {
            // SAFETY: the child ends at once, and the parent waits for no other.
            unsafe {
                match libc::fork() {
                    0 => std::process::exit(3),
                    child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
                }
            }
            assert!(!Path::new("cpu.pb.gz").exists() || is_old("cpu.pb.gz"));
            std::mem::forget(profiling);
            Ok(())
        }
        "directory" => {
            std::mem::forget(profiling);
            std::env::set_current_dir("/").map_err(|e| e.to_string())
        }
        "dropped" => {
            drop(profiling);
            fs::write("cpu.pb.gz", OF_PROGRAM).unwrap();
            std::process::exit(7)
        }
        // SAFETY: ends the process.
        "_exit" => unsafe { libc::_exit(7) },
        "stopped" => {
            // Whoever stops the recording has its profile, and nothing is left for the file.
            profiling.recording().stop().unwrap();
            std::mem::forget(profiling);
            Ok(())
        }
        "abort" => std::process::abort(),
        _ => {
            // SAFETY: a signal to this process, whose default action ends it.
            unsafe { libc::raise(libc::SIGTERM) };
            Ok(())
        }
    }
}

fn is_old(file: &str) -> bool {
    fs::read(file).unwrap() == OLD.as_bytes()
}

/// As programs in C do, though `exit` is not for handlers: on a stack for two handlers and no more.
fn exit_in_a_handler_on_a_small_stack() -> ! {
    extern "C" fn exit(_: libc::c_int) {
        std::process::exit(7)
    }
    // SAFETY: the alternate stack is never freed; the handler does not return.
    unsafe {
        let frame = (libc::getauxval(libc::AT_MINSIGSTKSZ) as usize).max(libc::MINSIGSTKSZ);
        let size = 2 * frame + 8192;
        let stack = libc::stack_t {
            ss_sp: vec![0_u8; size].leak().as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: size,
        };
        assert_eq!(libc::sigaltstack(&stack, std::ptr::null_mut()), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = exit as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        libc::raise(libc::SIGUSR1);
    }
    unreachable!("the handler ends the process")
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_without_profile = stderr.contains("sigprof: no profile was written: ");
    assert_eq!(is_without_profile, name == "stopped", "{name}: {output:?}");
    let entries = fs::read_dir(directory.path()).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    if let (Leaves::OldFile, None) = (way_out.leaves, old) {
        assert!(names.is_empty(), "{name}: {names:?}");
        return;
    }
    assert_eq!(names, ["cpu.pb.gz"], "{name}");
    let is_text = |text: &str| assert_eq!(fs::read(&file).unwrap(), text.as_bytes(), "{name}");
    match way_out.leaves {
        Leaves::Profile => assert_complete(&file),
        Leaves::OldFile => is_text(OLD),
        Leaves::FileOfProgram => is_text(OF_PROGRAM),
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
