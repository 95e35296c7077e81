//! `CONTENTIONPROFILE`: the locks of programs that nobody here wrote, with the library preloaded.
#![cfg(feature = "contention")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use sigprof::Profile;

use crate::below::sums_below;
use crate::library::{compiled, library, plain, shared, try_compiled};
use crate::process::succeed;
use crate::support::{go_pprof, run, tool};

/// A program whose locks are watched, each wait, for the file `waits` in the directory where it
/// runs.
fn watched(program: &Path, directory: &Path) -> Command {
    let mut command = plain(program);
    command.current_dir(directory);
    command.env("LD_PRELOAD", library());
    command.env("CONTENTIONPROFILE", "waits");
    command.env("CONTENTIONPROFILE_SAMPLE_INTERVAL", "1");
    command
}

/// Connections of a server that wait for their answers together.
const CLIENTS: usize = 32;

/// Threads of the server's that read and write for them, with the main one.
const IO_THREADS: usize = 4;

/// A running server of Redis, which is killed where a test fails.
struct Redis {
    server: Child,
    socket: PathBuf,
}

impl Redis {
    /// Starts it with threads that read and write for its clients.
    fn start(command: &mut Command, socket: PathBuf) -> Self {
        command
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--io-threads", &IO_THREADS.to_string()])
            .args(["--io-threads-do-reads", "yes"])
            .args(["--port", "0", "--unixsocket"])
            .arg(&socket)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let server = command.spawn().unwrap();
        Self { server, socket }
    }

    fn connect(&mut self) -> UnixStream {
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => return stream,
                Err(_) => assert!(self.server.try_wait().unwrap().is_none(), "it has ended"),
            }
            std::thread::yield_now();
        }
    }

    /// Waits until so many threads whose names begin with `name` are in this state.
    fn wait_for(&self, threads: usize, name: &str, state: &str) {
        let directory = format!("/proc/{}/task", self.server.id());
        let is_there = |thread: &Path| {
            let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
            let (names, rest) = stat.rsplit_once(") ").unwrap_or_default();
            names.contains(&format!("({name}")) && rest.starts_with(state)
        };
        loop {
            let listed = fs::read_dir(&directory).unwrap();
            let all = listed.filter(|thread| is_there(&thread.as_ref().unwrap().path()));
            if all.count() >= threads {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has all clients' requests come while the server is stopped, so that it finds them at once
    /// and has its threads answer.
    fn is_asked_at_once(&mut self) {
        let pid = self.server.id() as i32;
        let mut clients: Vec<UnixStream> = (0..CLIENTS).map(|_| self.connect()).collect();
        let mut answer = [0; 7];
        // They look for work many times before they wait.
        self.wait_for(IO_THREADS - 1, "io_thd_", "S");
        for _ in 0..3 {
            // SAFETY: the process is a child that nobody has waited for.
            assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
            self.wait_for(1, "redis-server", "T");
            for client in &mut clients {
                client.write_all(b"PING\r\n").unwrap();
            }
            // SAFETY: as above.
            assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
            for client in &mut clients {
                client.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"+PONG\r\n");
            }
        }
    }

    /// Ends it as it wants to be ended; what it said on stderr.
    fn end(mut self) -> String {
        let mut client = self.connect();
        client.write_all(b"SHUTDOWN NOSAVE\r\n").unwrap();
        let mut said = String::new();
        let mut stderr = self.server.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut said).unwrap();
        assert!(self.server.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It has ended where nothing has failed.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Its main thread holds the lock of each thread that reads and writes for its clients, while there
/// is too little for them to do.
#[test]
fn locks_of_redis_are_on_top_and_its_entries_are_as_before() {
    // The same program under another name, in the package without a service.
    let Some(program) = tool("redis-check-rdb") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    symlink(program, path.join("redis-server")).unwrap();
    // Called first and last: what comes later in the list is loaded first.
    let [first, last] = ["asks", "entries"].map(|name| shared(name, path, &[]));
    let libraries = [&first, library(), &last].map(|file| file.display().to_string());

    let mut command = watched(&path.join("redis-server"), path);
    command.env("LD_PRELOAD", libraries.join(" "));
    command.env("LD_BIND_NOW", "1");
    command.env("CONTENTIONPROFILE_HOLDERS", "holders.contention");
    command.env("CONTENTIONPROFILE", "waits.pb.gz");
    let mut redis = Redis::start(&mut command, path.join("socket"));
    redis.is_asked_at_once();
    let said = redis.end();

    let lines: Vec<&str> = said.lines().filter(|l| l.contains("entries")).collect();
    let changed = |when: &str| -> u32 {
        let line = lines.iter().find(|line| line.starts_with(when));
        let number = line.and_then(|line| line.split(' ').nth(3));
        number.expect(&said).parse().unwrap()
    };
    assert!(changed("at the start") > 0, "{said}");
    assert_eq!(changed("at the exit"), 0, "{said}");

    let waits = Profile::open(path.join("waits.pb.gz")).unwrap();
    // Until there was something to do.
    assert!(waits.total(0) >= IO_THREADS as i64 - 1, "{}", waits.top(20));
    if let Some(go) = tool("go") {
        let top = go_pprof(&go, &["-top", "-nodecount=1"], &path.join("waits.pb.gz")).stdout;
        assert!(top.contains("IOThreadMain"), "{top}");
    }
    if let Some(google_pprof) = tool("google-pprof") {
        let mut command = Command::new(google_pprof);
        command.arg("--text").arg(path.join("redis-server"));
        let text = run(command.arg(path.join("holders.contention"))).stdout;
        assert!(text.contains("UsingThreads"), "{text}");
    }
}

/// What these programs do, and what they end with, is the same.
#[test]
fn programs_do_the_same_and_leave_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    for case in [
        "nothing",
        "closes_descriptors",
        "has_no_children",
        "writes_variables",
        "main_thread_ends",
        "another_thread_exits",
        "forks",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let output = succeed(watched(&program, directory.path()).arg(case));
        let waits = directory.path().join("waits");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{case}");
        assert!(waits.exists(), "{case}");
    }
}

#[test]
fn a_program_that_leaves_a_child_behind_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    let said = succeed(watched(&program, directory.path()).arg("daemonizes")).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("goes on without a profile"), "{said}");
}

/// Each at its own file, and neither in the other's.
#[test]
fn cpu_and_locks_together() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "works.c", directory.path(), &[]);
    let mut command = watched(&program, directory.path());
    command.env("CPUPROFILE", "cpu.pb.gz");
    command.env("CONTENTIONPROFILE", "waits.pb.gz");
    succeed(command.args(["1", "1"]));
    let kinds = ["cpu.pb.gz", "waits.pb.gz"].map(|file| {
        let profile = Profile::open(directory.path().join(file)).unwrap();
        profile.default_sample_type.clone()
    });
    assert_eq!(kinds, ["cpu", "delay"]);
}

#[test]
fn what_cannot_be_is_said_in_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "moments.c", directory.path(), &[]);
    for (name, value, line) in [
        (
            "CONTENTIONPROFILE_SAMPLE_INTERVAL",
            "1ms",
            "CONTENTIONPROFILE_SAMPLE_INTERVAL is `1ms`, which is no number of nanoseconds",
        ),
        ("CONTENTIONPROFILE", "missing/file", "missing/file"),
    ] {
        let mut command = watched(&program, directory.path());
        let said = succeed(command.env(name, value).arg("nothing")).stderr;
        let said = String::from_utf8(said).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.starts_with("sigprof: no profile was written: "),
            "{said}"
        );
        assert!(said.contains(line), "{said}");
    }
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(String::from).collect()
}

/// Also where a lock is used wrongly, or the thread that held it has ended.
#[test]
fn locks_answer_as_without_the_profiler() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled("cc", "answers.c", directory.path(), &[]);
    let alone = lines(&succeed(&mut plain(&program)));
    let beside = lines(&succeed(&mut watched(&program, directory.path())));
    assert!(alone.len() > 100, "{alone:#?}");
    assert_eq!(beside, alone);
}

/// The C library still has functions for what was linked with its first versions, whose objects
/// differ: those are left alone.
#[test]
fn functions_of_old_versions_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let Some(program) = try_compiled("cc", "old_versions.c", path, &[]) else {
        println!("skipped: this machine's C library has no versions as old as that");
        return;
    };
    let output = succeed(&mut watched(&program, path));
    assert_eq!(lines(&output), ["1000 rounds"]);
}

/// What stands in front of the C library's functions still sees each call.
#[test]
fn a_library_in_front_of_the_locks_stays_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let interposes = shared("interposes", path, &[]);
    let flags = [interposes.display().to_string()];
    let program = compiled("cc", "counted.c", path, &flags);
    let output = succeed(&mut watched(&program, path));
    let line = &lines(&output)[0];
    let counts = line.split(", ").map(|count| count.split(' ').next());
    for count in counts {
        // Others lock as well.
        assert!(count.unwrap().parse::<u32>().unwrap() >= 1000, "{line}");
    }
}

/// A case of `holders.c`: how long the waits took, and the profiles of waiters and holders.
fn holders(case: &str) -> (i64, [Profile; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let program = compiled("cc", "holders.c", path, &[]);
    let mut command = watched(&program, path);
    command.env("CONTENTIONPROFILE", "waits.pb.gz");
    command.env("CONTENTIONPROFILE_HOLDERS", "holders.pb.gz");
    let output = succeed(command.arg(case));
    let profiles = ["waits.pb.gz", "holders.pb.gz"].map(|file| {
        let profile = Profile::open(path.join(file)).unwrap();
        println!("{case}: {file}:\n{}", profile.top(20));
        profile
    });
    (lines(&output)[0].parse().unwrap(), profiles)
}

/// Those who let go of a lock that nobody can have after that are in no profile.
#[test]
fn who_only_seems_to_let_go_is_no_holder() {
    for (case, other) in [("holds_twice", "inner"), ("is_bystood", "bystander")] {
        let (waited, [waits, holders]) = holders(case);
        let [of_waits, of_holder, of_other] =
            [(&waits, "waits"), (&holders, case), (&holders, other)]
                .map(|(profile, function)| sums_below(profile, function));
        assert_eq!(of_waits[0], 1, "{case}");
        assert!(of_waits[1] <= waited, "{case}: {} of {waited}", of_waits[1]);
        // `inner` is called by the holder, which is below it.
        assert_eq!(of_other, [0, 0], "{case}");
        assert_eq!(of_holder[0], 1, "{case}");
        // Until the wait ends, or the holder has the waiter go.
        assert!(of_holder[1] <= of_waits[1], "{case}");
    }
}

/// Where more wait for a lock than can be told apart, the holders of the others are counted as
/// lost.
#[test]
fn a_crowd_is_waited_for_by_somebody() {
    let (waited, [waits, holders]) = holders("keeps_a_crowd");
    let waits = sums_below(&waits, "waits");
    assert_eq!(waits[0], 150);
    assert!(waits[1] <= waited, "{} of {waited}", waits[1]);
    // Each of those who had it before is one, and who has waited longest is first.
    let [of_first, of_others, lost] =
        ["keeps_a_crowd", "waits", "[lost]"].map(|function| sums_below(&holders, function));
    assert_eq!(of_first[0] + of_others[0] + lost[0], 150);
}

/// An allocator that locks is called by nobody who waits for its lock, or holds it.
#[test]
fn an_allocator_with_locks_of_the_c_library_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let program = compiled("cc", "own_malloc.c", path, &["-rdynamic".into()]);
    let mut command = watched(&program, path);
    command.env_remove("LD_PRELOAD");
    command.env("CONTENTIONPROFILE", "waits.pb.gz");
    let output = succeed(command.arg(library()));
    assert_eq!(lines(&output), ["done"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let waits = Profile::open(path.join("waits.pb.gz")).unwrap();
    // In each of the rounds.
    assert!(sums_below(&waits, "waits")[0] >= 20, "{}", waits.top(20));
}
