//! The endpoints, asked by the clients that people use.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, RwLock};
use std::time::Duration;

use sigprof::{Profile, contention, http};

use crate::below::sums_below;
use crate::client::ask;
use crate::locks::{ROUNDS, contend};
use crate::support::{run, tool};

/// What a client prints, in a directory of its own.
pub fn client(program: &Path, arguments: &[&str], url: String) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.args(arguments).arg(url);
    command.env("PPROF_TMPDIR", directory.path());
    command.env("HOME", directory.path());
    command.env("DEBUGINFOD_URLS", "");
    run(&mut command).stdout
}

/// The row of a function in a table of `-top`, by the last column.
fn row<'t>(table: &'t str, function: &str) -> &'t str {
    let row = table.lines().find(|row| row.contains(function));
    row.unwrap_or_else(|| panic!("{function} is not there: {table}"))
}

#[test]
fn go_and_google_pprof_see_who_waits_and_who_holds() {
    let (Some(go), Some(google_pprof), Some(_)) = (tool("go"), tool("google-pprof"), tool("curl"))
    else {
        return;
    };
    contention::set_sample_interval(Duration::from_nanos(1));
    let server = http::serve("127.0.0.1:0").unwrap();
    let address = server.local_addr();
    let absent = ask(address, "GET", "/pprof/contention", b"");
    assert_eq!(absent.status, 404);
    assert!(absent.text().contains("watch_process"), "{}", absent.text());
    let _watch = contention::watch_process().unwrap();
    contend(&Mutex::new(()), ROUNDS);
    for (path, function, other) in [
        ("/debug/pprof/block", "waits_for_lock", "holds_lock"),
        ("/debug/pprof/contention", "waits_for_lock", "holds_lock"),
        ("/debug/pprof/mutex", "holds_lock", "waits_for_lock"),
        ("/pprof/contention", "waits_for_lock", "holds_lock"),
    ] {
        let options = [
            "tool",
            "pprof",
            "-top",
            "-cum",
            "-sample_index=contentions",
            "-symbolize=remote",
        ];
        let table = client(&go, &options, format!("http://{address}{path}"));
        assert!(table.contains("Type: contentions"), "{table}");
        // Flat value, two shares, and the value with what it calls.
        let columns: Vec<&str> = row(&table, function).split_whitespace().collect();
        assert_eq!(columns[3], ROUNDS.to_string(), "{path}: {table}");
        assert!(!table.contains(other), "{path}: {table}");
    }
    let options = ["--text", "--cum", "--contentions"];
    let table = client(
        &google_pprof,
        &options,
        format!("{address}/pprof/contention"),
    );
    let columns: Vec<&str> = row(&table, "waits_for_lock").split_whitespace().collect();
    assert_eq!(columns[3], ROUNDS.to_string(), "{table}");
    // The way to the system call is no function of anybody's.
    let block = ask(address, "GET", "/debug/pprof/block", b"");
    let profile = Profile::read(&block.body).unwrap();
    assert_eq!(sums_below(&profile, "futex"), [0, 0]);
}

#[test]
fn a_window_has_what_is_waited_in_it() {
    contention::set_sample_interval(Duration::from_nanos(1));
    let server = http::serve("127.0.0.1:0").unwrap();
    let address = server.local_addr();
    let _watch = contention::watch_process().unwrap();
    // Before the window, by another lock.
    contend(&RwLock::new(()), ROUNDS);
    let (lock, mut waits) = (Mutex::new(()), 0);
    for (kind, function) in [("block", "waits_for_lock"), ("mutex", "holds_lock")] {
        let answer = std::thread::scope(|scope| {
            let path = format!("/debug/pprof/{kind}?seconds=1");
            let asked = scope.spawn(move || ask(address, "GET", &path, b""));
            while !asked.is_finished() {
                contend(&lock, ROUNDS);
                waits += ROUNDS as i64;
            }
            asked.join().unwrap()
        });
        assert_eq!(answer.status, 200, "{}", answer.text());
        let window = Profile::read(&answer.body).unwrap();
        assert!(window.duration_nanos >= 1_000_000_000);
        let [count, ns] = sums_below(&window, function);
        assert!((1..=waits).contains(&count) && ns > 0, "{kind}: {count}");
        assert_eq!(sums_below(&window, "RwLock<()> as"), [0, 0], "{kind}");
    }
    for query in ["seconds=0", "idle=2", "format=gmon"] {
        let answer = ask(address, "GET", &format!("/debug/pprof/block?{query}"), b"");
        assert_eq!(answer.status, 400, "{query}");
    }
    let all = ask(address, "GET", "/debug/pprof/block?idle=1&debug=1", b"");
    assert!(all.text().contains("waits_for_lock"), "{}", all.text());
}
