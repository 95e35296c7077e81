//! What becomes of the file when `main` is left with a guard alive. The harness of tests would
//! stand between a panic and the process's end, so this program has a `main` of its own: without
//! arguments of ours it runs itself once for each way out.

#[path = "support/process.rs"]
mod process;
mod support;

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Termination};
use std::sync::{OnceLock, mpsc};
use std::thread;

use sigprof::Profile;
use sigprof::cpu::{Guard, Profiler};
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
    /// A pipe that has taken nothing.
    Pipe,
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

const WAYS_OUT: [WayOut; 28] = [
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
    way("write_on", is_by_sigterm, Leaves::Profile),
    way("write_on, twice", is_by_sigterm, Leaves::Profile),
    way("write_on, others block", is_by_sigterm, Leaves::Profile),
    way("write_on, dropping", is_by_sigterm, Leaves::Profile),
    way("write_on, hanging", is_by_sigterm, Leaves::Pipe),
    way("write_on, refused", |end| end.success(), Leaves::Profile),
    way("write_on, dropped", is_by_sigterm, Leaves::FileOfProgram),
    way("write_on, ignored", |end| end.success(), Leaves::Profile),
    way(
        "write_on, a handler",
        |end| end.code() == Some(7),
        Leaves::Profile,
    ),
    way(
        "write_on, a handler later",
        |end| end.code() == Some(7),
        Leaves::Profile,
    ),
    way("write_on, child", |end| end.success(), Leaves::Profile),
    way(
        "write_on, first process",
        |end| end.success(),
        Leaves::Profile,
    ),
];

fn is_by_sigterm(end: ExitStatus) -> bool {
    end.signal() == Some(libc::SIGTERM)
}

fn main() -> ExitCode {
    if let Ok(way_out) = std::env::var(WAY_OUT) {
        return leave(&way_out).report();
    }
    // A harness that lists tests finds none here.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    for way_out in &WAYS_OUT {
        if !way_out.name.starts_with("write_on") {
            try_way_out(way_out, None);
        }
        try_way_out(way_out, Some(OLD));
        println!("main left by {}: ok", way_out.name);
    }
    ExitCode::SUCCESS
}

/// A program that is profiled and leaves `main`.
fn leave(way_out: &str) -> Result<(), String> {
    static GUARD: OnceLock<Guard> = OnceLock::new();
    if way_out == "write_on, hanging" {
        on_signal::make_full_pipe("cpu.pb.gz");
    }
    let profiler = Profiler::new();
    // Names take longest, and are the same for all ways.
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(way_out == "return");
    let profiling = profiler.start_to("cpu.pb.gz");
    let profiling = profiling.map_err(|e| e.to_string())?;
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
        "kill" => {
            // SAFETY: a signal to this process, whose default action ends it.
            unsafe { libc::raise(libc::SIGTERM) };
            Ok(())
        }
        way_out => on_signal::leave(profiling, way_out),
    }
}

/// Programs that have asked for the file where a signal is about to end them.
mod on_signal {
    use super::*;
    use sigprof::ErrorKind;
    use std::ffi::CString;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    const SIGNALS: [i32; 2] = [libc::SIGINT, libc::SIGTERM];

    pub fn leave(profiling: Guard, way_out: &str) -> Result<(), String> {
        let write_on = |profiling: Guard| profiling.write_on(&SIGNALS).map_err(|e| e.to_string());
        match way_out {
            "write_on" => {
                let _profiling = write_on(profiling)?;
                send_to_process(libc::SIGTERM);
                sleep_for_good()
            }
            "write_on, twice" => {
                let _profiling = write_on(profiling)?;
                for signal in [libc::SIGTERM, libc::SIGTERM, libc::SIGINT, libc::SIGTERM] {
                    send_to_process(signal);
                }
                sleep_for_good()
            }
            "write_on, others block" => {
                // Nobody but the thread that writes the file can be ended by the signal then.
                let _profiling = write_on(profiling)?;
                // SAFETY: a signal to the calling thread, and a set that is filled first.
                unsafe {
                    libc::raise(libc::SIGTERM);
                    let mut all: libc::sigset_t = std::mem::zeroed();
                    libc::sigfillset(&mut all);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
                }
                sleep_for_good()
            }
            "write_on, dropping" => {
                // The signal comes somewhere in the drop, or before or behind it.
                let profiling = write_on(profiling)?;
                thread::spawn(|| send_to_process(libc::SIGTERM));
                drop(profiling);
                sleep_for_good()
            }
            "write_on, hanging" => {
                let _profiling = write_on(profiling)?;
                loop {
                    send_to_process(libc::SIGTERM);
                    thread::sleep(Duration::from_millis(10));
                }
            }
            "write_on, refused" => {
                let refused = profiling.write_on(&[libc::SIGTERM, libc::SIGKILL]);
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
                assert_eq!(is_default(libc::SIGTERM), Some(true));
                Ok(())
            }
            "write_on, dropped" => {
                let threads = threads();
                let profiling = write_on(profiling)?;
                assert!(is_default(libc::SIGTERM) == Some(false));
                drop(profiling);
                assert!(is_default(libc::SIGTERM) == Some(true));
                assert!(self::threads() <= threads);
                fs::write("cpu.pb.gz", OF_PROGRAM).unwrap();
                send_to_process(libc::SIGTERM);
                sleep_for_good()
            }
            "write_on, ignored" => {
                // SAFETY: what nohup(1) does.
                unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
                let _profiling = write_on(profiling)?;
                send_to_process(libc::SIGTERM);
                Ok(())
            }
            "write_on, a handler" => {
                handle();
                let _profiling = write_on(profiling)?;
                expect_handled_and_written()
            }
            "write_on, a handler later" => {
                let _profiling = write_on(profiling)?;
                handle();
                expect_handled_and_written()
            }
            "write_on, child" => {
                let profiling = write_on(profiling)?;
                let ends = [expect_end_of_child(false), expect_end_of_child(true)];
                assert_eq!(ends, [libc::SIGTERM; 2]);
                assert!(!Path::new("cpu.pb.gz").exists() || is_old("cpu.pb.gz"));
                std::mem::forget(profiling);
                Ok(())
            }
            "write_on, first process" => {
                assert_eq!(std::process::id(), 1);
                let profiling = write_on(profiling)?;
                for _ in 0..2 {
                    let _ = fs::remove_file("cpu.pb.gz");
                    send_to_process(libc::SIGTERM);
                    wait_for_profile();
                }
                std::mem::forget(profiling);
                Ok(())
            }
            way_out => panic!("there is no way out {way_out:?}"),
        }
    }

    /// Makes a pipe that is full, and that nobody will read.
    pub fn make_full_pipe(path: &str) {
        let _ = fs::remove_file(path);
        let name = CString::new(path).unwrap();
        // SAFETY: a string, and a mode.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true);
        let pipe = options.custom_flags(libc::O_NONBLOCK).open(path);
        let mut pipe = pipe.unwrap();
        while pipe.write_all(&[0; 4096]).is_ok() {}
        std::mem::forget(pipe);
    }

    fn send_to_process(signal: libc::c_int) {
        // SAFETY: sends a signal.
        unsafe { libc::kill(libc::getpid(), signal) };
    }

    /// Until the process ends.
    fn sleep_for_good() -> ! {
        loop {
            thread::park();
        }
    }

    fn threads() -> usize {
        fs::read_dir("/proc/self/task").unwrap().count()
    }

    /// Whether the signal's action is the default one, where it is known.
    fn is_default(signal: libc::c_int) -> Option<bool> {
        // SAFETY: only asks for the action, and a sigaction may be zero.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let asked = libc::sigaction(signal, std::ptr::null(), &mut action);
            (asked == 0).then_some(action.sa_sigaction == libc::SIG_DFL)
        }
    }

    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    static BEFORE: AtomicUsize = AtomicUsize::new(0);

    /// As libraries do that let others have the signal, too: the handler calls the one before it.
    fn handle() {
        extern "C" fn handler(
            signal: libc::c_int,
            info: *mut libc::siginfo_t,
            context: *mut libc::c_void,
        ) {
            HANDLED.fetch_add(1, Ordering::SeqCst);
            let before = BEFORE.load(Ordering::SeqCst);
            if ![libc::SIG_DFL, libc::SIG_IGN].contains(&before) {
                type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
                // SAFETY: a handler that was installed with SA_SIGINFO: there is no other here.
                let before: Handler = unsafe { std::mem::transmute(before) };
                before(signal, info, context);
            }
        }
        // SAFETY: the handler has the signature that the flag promises; a sigaction may be zero.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before = action;
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGTERM, &action, &mut before);
            BEFORE.store(before.sa_sigaction, Ordering::SeqCst);
        }
    }

    /// The signal is the program's, each time; the file has what was recorded so far.
    fn expect_handled_and_written() -> ! {
        for handled in 1..=3 {
            let _ = fs::remove_file("cpu.pb.gz");
            // SAFETY: a signal to the calling thread.
            unsafe { libc::raise(libc::SIGTERM) };
            assert_eq!(HANDLED.load(Ordering::SeqCst), handled);
            wait_for_profile();
        }
        // SAFETY: ends the process.
        unsafe { libc::_exit(7) }
    }

    /// Files come into their places whole.
    fn wait_for_profile() {
        while !Path::new("cpu.pb.gz").exists() || is_old("cpu.pb.gz") {
            thread::yield_now();
        }
    }

    /// The signal that a forked child ends by.
    fn expect_end_of_child(is_sent_by_parent: bool) -> libc::c_int {
        // SAFETY: the child makes system calls only; the parent waits for no other.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                if !is_sent_by_parent {
                    libc::raise(libc::SIGTERM);
                }
                loop {
                    libc::pause();
                }
            }
            if is_sent_by_parent {
                libc::kill(child, libc::SIGTERM);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert!(libc::WIFSIGNALED(status), "{status:#x}");
            libc::WTERMSIG(status)
        }
    }

    /// A command that runs this program as the first process of a PID namespace, where the system
    /// lets the test make one.
    pub fn first_process() -> Option<Command> {
        let program = process::this_program();
        let unshare = || {
            let mut unshare = Command::new("unshare");
            unshare.args(["-r", "--pid", "--fork", "--kill-child", "--mount-proc"]);
            unshare
        };
        let tried = process::output(unshare().arg("true")).ok()?;
        let mut command = unshare();
        command.arg(program.get_program()).args(program.get_args());
        tried.status.success().then_some(command)
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
    let mut command = match way_out.name {
        "write_on, first process" => match on_signal::first_process() {
            Some(command) => command,
            None => return process::skip("the system lets nobody make a PID namespace"),
        },
        _ => process::this_program(),
    };
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
        Leaves::Pipe => assert!(fs::metadata(&file).unwrap().file_type().is_fifo()),
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
