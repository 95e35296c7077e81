//! What programs do that know nothing of a profile, with the library preloaded: they do the same as
//! without, and the profile is there.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::legacy::Legacy;
use crate::library::{compiled, library, plain, program, try_compiled};
use crate::process::{output, skip, succeed};
use crate::support::{go_pprof, tool};

/// CPU time that a case works for at a time, in periods of the clock.
const WORK: u64 = 200;

/// A case of `moments.c` that has run.
struct Moment {
    /// Where it ran.
    directory: TempDir,
    stderr: String,
}

/// Runs a case of `moments.c`, recorded for the file `cpu` in a directory of its own.
fn run(case: &str) -> Moment {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    let output = succeed(recorded(&program, directory.path()).arg(case));
    Moment::new(directory, output)
}

/// A program that is recorded for the file `cpu` in a directory.
fn recorded(program: &Path, directory: &Path) -> Command {
    let mut command = plain(program);
    command.current_dir(directory);
    command.env("LD_PRELOAD", library());
    command.env("CPUPROFILE", "cpu");
    command.env("CPUPROFILE_FREQUENCY", "1000");
    command
}

impl Moment {
    fn new(directory: TempDir, output: Output) -> Self {
        let stderr = String::from_utf8(output.stderr).unwrap();
        Self { directory, stderr }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("cpu")
    }

    /// Asserts that the file has the work of so many times, and at least this part of it with
    /// stacks.
    fn has_work(&self, times: u64) -> &Self {
        let legacy = Legacy::read(&self.file());
        let counted = legacy.counted();
        assert!(
            counted >= times * WORK * 95 / 100,
            "{counted}: {}",
            self.stderr
        );
        self
    }

    /// What was said but gperftools' line, where there is a stderr to say it.
    fn said(&self) -> &str {
        let line = "PROFILE: interrupts/evictions/bytes = ";
        let (first, others) = self.stderr.split_once('\n').unwrap_or_default();
        assert!(first.starts_with(line), "{}", self.stderr);
        others
    }

    /// Asserts that nothing was said but that.
    fn is_quiet(&self) {
        assert_eq!(self.said(), "");
    }
}

#[test]
fn a_program_that_does_nothing_but_work() {
    run("nothing").has_work(1).is_quiet();
}

/// The kernel maps the main thread's stack as it grows: what was mapped when the recording began
/// is not all of it.
#[test]
fn a_program_whose_stack_grows() {
    let moment = run("grows_the_stack");
    moment.has_work(2).is_quiet();
    let file = std::fs::read(moment.file()).unwrap();
    let text = String::from_utf8_lossy(&file);
    assert!(!text.contains("[truncated:_unreadable]"), "{text}");
}

#[test]
fn a_program_that_closes_all_descriptors() {
    // There is no stderr to say anything on: what has its number is the program's.
    assert_eq!(run("closes_descriptors").has_work(2).stderr, "");
}

#[test]
fn a_program_that_blocks_all_signals() {
    run("blocks_signals").has_work(2).is_quiet();
}

#[test]
fn a_program_that_takes_the_signal() {
    run("uses_sigprof").has_work(2).is_quiet();
}

/// Timers send a signal that ends a program which has no handler for it.
#[test]
fn a_program_that_leaves_the_signal_to_the_system() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    for engine in ["thread_timer", "process_timer", "perf_event"] {
        let mut command = recorded(&program, directory.path());
        command.env("SIGPROF_ENGINE", engine);
        succeed(command.arg("leaves_sigprof_to_the_system"));
    }
}

#[test]
fn a_program_that_writes_into_its_variables() {
    run("writes_variables").has_work(1).is_quiet();
}

/// No file of ours has the number of a standard stream.
#[test]
fn a_program_that_has_no_standard_streams() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    let mut command = recorded(&program, directory.path());
    // SAFETY: system calls alone.
    unsafe {
        command.pre_exec(|| {
            (0..3).for_each(|fd| _ = libc::close(fd));
            Ok(())
        })
    };
    let output = succeed(command.arg("writes_to_closed_stderr"));
    Moment::new(directory, output).has_work(1);
}

#[test]
fn a_program_that_may_write_little() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    let mut command = recorded(&program, directory.path());
    let said = succeed(command.arg("may_write_little")).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(
        said.starts_with("sigprof: no profile was written: "),
        "{said}"
    );
    let files = std::fs::read_dir(directory.path()).unwrap();
    let names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    let is_temporary = |name: &String| name.starts_with(".sigprof-");
    assert!(!names.iter().any(is_temporary), "{names:?}");
}

#[test]
fn a_program_that_has_little_memory() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    let mut command = recorded(&program, directory.path());
    // The library, without optimization, takes 11 MiB of address space.
    let limit = libc::rlimit {
        rlim_cur: 32 << 20,
        rlim_max: 32 << 20,
    };
    // SAFETY: a system call alone.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let said = succeed(command.arg("nothing")).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("raise RLIMIT_AS (ulimit -v)"), "{said}");
}

#[test]
fn a_program_that_waits_for_any_child() {
    run("has_no_children").has_work(1).is_quiet();
}

#[test]
fn a_program_that_keeps_pointers_into_its_environment() {
    let moment = run("spawns_with_old_environment");
    moment.has_work(1);
}

#[test]
fn a_program_that_another_thread_ends() {
    run("another_thread_exits").has_work(1).is_quiet();
}

/// The C library ends a process with its last thread, and counts the profiler's threads, too.
#[test]
fn a_program_whose_last_thread_ends() {
    run("main_thread_ends").has_work(2).is_quiet();
}

#[test]
fn a_program_whose_last_thread_ends_while_a_signal_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    let mut command = recorded(&program, directory.path());
    let signal = libc::SIGUSR2.to_string();
    command
        .env("CPUPROFILESIGNAL", signal)
        .arg("main_thread_ends");
    let output = succeed(&mut command);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_program_that_has_children() {
    run("forks").has_work(1).is_quiet();
}

/// As servers do that go on in the background.
#[test]
fn a_program_that_leaves_a_child_behind() {
    names_a_child("daemonizes");
}

/// A child's child, which is another process's by then.
#[test]
fn a_program_that_leaves_a_childs_child_behind() {
    names_a_child("daemonizes_twice");
}

fn names_a_child(case: &str) {
    let moment = run(case);
    let said = moment.has_work(1).said();
    let words: Vec<&str> = said.split([' ', ',']).collect();
    assert_eq!(words[..2], ["sigprof:", "process"], "{said}");
    words[2].parse::<u32>().expect("the child's id");
    let tells = ", forked from this one, goes on without a profile";
    assert!(said.trim_end().ends_with(tells), "{said}");
}

#[test]
fn a_profile_tells_of_the_child_that_its_process_leaves_behind() {
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    let mut command = recorded(&program, directory.path());
    command.env("CPUPROFILE", "cpu.pb.gz").arg("daemonizes");
    succeed(&mut command);
    let file = directory.path().join("cpu.pb.gz");
    let comments = go_pprof(&go, &["-comments"], &file).stdout;
    assert!(comments.contains("goes on without a profile"), "{comments}");
    // The thread that stops the profile looks at itself with its signals blocked.
    assert!(!comments.contains("block the signal"), "{comments}");
}

/// A child of a program that waits for a signal to record itself has nobody that waits.
#[test]
fn a_child_that_gets_the_signal_of_its_parents_profiles() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    let mut command = recorded(&program, directory.path());
    let signal = libc::SIGUSR2.to_string();
    command.env("CPUPROFILESIGNAL", signal).arg("signals_child");
    let moment = Moment::new(directory, succeed(&mut command));
    assert_eq!(moment.stderr, "");
    assert!(!moment.file().exists());
}

/// Runs a case of `calls.c`, linked with the library, for the file `cpu`, by a user who is not the
/// one that its process belongs to, or is.
fn linked_by(user: Option<u32>, case: [&str; 2], variables: &[[&str; 2]]) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let calls = program("cc", "calls.c", directory.path());
    let mut command = plain(&calls);
    command.args(case).current_dir(directory.path());
    command.env("CPUPROFILE", "cpu");
    command.envs(variables.iter().map(|[name, value]| (name, value)));
    if let Some(user) = user {
        // SAFETY: a system call alone.
        unsafe {
            command.pre_exec(move || match libc::setresuid(user, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
    }
    let output = succeed(&mut command);
    (directory, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_program_with_the_rights_of_another_user() {
    let idle = ["idle", ""];
    let (directory, _) = linked_by(None, idle, &[]);
    assert!(directory.path().join("cpu").exists());
    if is_root() {
        let another = Some(65534);
        let (directory, said) = linked_by(another, idle, &[]);
        assert_eq!(said, "");
        assert!(!directory.path().join("cpu").exists());
        // Nor are the other variables for what the program starts by itself.
        let variables = [
            ["CPUPROFILE_FREQUENCY", "1000"],
            ["CPUPROFILE_TIMER_SIGNAL", "none"],
        ];
        let (directory, _) = linked_by(another, ["one_stack", "own"], &variables);
        let legacy = Legacy::read(&directory.path().join("own"));
        assert_eq!(legacy.period_us, 10_000);
    }
}

/// Runs `works.c`, made with a flag of the compiler's, in a directory of its own, and returns what
/// it said on stderr; `None` where it cannot be made or run here. It leaves no profile.
fn unprofiled(flag: &str) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let program = try_compiled("cc", "works.c", directory.path(), &[flag.into()]);
    let output = program.and_then(|program| {
        let mut command = recorded(&program, directory.path());
        output(command.args(["1", "1"])).ok()
    });
    let Some(output) = output else {
        skip(&format!("programs cannot be made with {flag} and run here"));
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    assert!(!directory.path().join("cpu").exists());
    Some(String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_program_that_is_linked_statically() {
    if let Some(said) = unprofiled("-static") {
        assert_eq!(said, "");
    }
}

#[test]
fn a_program_of_32_bits() {
    if let Some(said) = unprofiled("-m32") {
        let is_loaders = |line: &str| line.starts_with("ERROR: ld.so: ");
        assert!(said.lines().all(is_loaders) && !said.is_empty(), "{said}");
    }
}

/// Runs a shell's command with the library preloaded, recorded for the file `cpu` in a directory:
/// the names of the other files there, and what was printed.
fn shell(line: &str, signal: Option<i32>) -> (TempDir, Vec<String>, String) {
    let directory = tempfile::tempdir().unwrap();
    for source in ["works.c", "toggled.c"] {
        compiled("cc", source, directory.path(), &[]);
    }
    let mut command = recorded("/bin/sh".as_ref(), directory.path());
    command.args(["-c", line]);
    if let Some(signal) = signal {
        command.env("CPUPROFILESIGNAL", signal.to_string());
    }
    let output = succeed(&mut command);
    let files = std::fs::read_dir(directory.path()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("cpu_")).collect();
    names.sort();
    (directory, names, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_program_whose_output_another_one_reads() {
    let (directory, files, said) = shell("./works.c.cc 200 0 2>&1 | cat; true", None);
    let id = said.lines().next().expect("the program prints its id");
    let file = format!("cpu_{id}");
    assert!(files.contains(&file), "{files:?}: {said}");
    let counted = Legacy::read(&directory.path().join(file)).counted();
    assert!(counted >= 190, "{counted}");
    assert!(said.contains("PROFILE: "), "{said}");
}

#[test]
fn a_program_whose_output_another_one_reads_and_that_gets_signals() {
    let (directory, files, said) = shell("./toggled.c.cc 2>&1 | cat; true", Some(libc::SIGUSR2));
    assert_eq!(files.len(), 2, "{files:?}: {said}");
    for (file, end) in files.iter().zip([".0", ".1"]) {
        assert!(file.ends_with(end), "{files:?}");
        Legacy::read(&directory.path().join(file));
    }
    assert_eq!(said.matches("PROFILE: ").count(), 2, "{said}");
}

/// Whether this process may become any other.
fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    let is = unsafe { libc::geteuid() } == 0;
    if !is {
        skip("only root changes a process's root and user");
    }
    is
}

#[test]
fn a_program_that_changes_its_root() {
    if is_root() {
        run("changes_root").has_work(2).is_quiet();
    }
}

#[test]
fn a_program_that_changes_its_user() {
    if is_root() {
        run("changes_user").has_work(2).is_quiet();
    }
}
