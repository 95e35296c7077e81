//! The endpoints, asked by the clients that people use.

use std::hint::black_box;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use sigprof::Profile;
use sigprof::http::{Server, serve};

use crate::client::{Answer, ask, send};
use crate::leak::{first_row, frees, is_leak, leaks};
use crate::support::{run, tool};

/// This process with its leak, and a server.
struct Leaking {
    server: Server,
    leaked: Vec<Vec<u8>>,
}

impl Leaking {
    fn new() -> Self {
        let leaked = leaks();
        frees();
        let server = serve("127.0.0.1:0").unwrap();
        Self { server, leaked }
    }

    fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    fn ask(&self, path: &str) -> Answer {
        let answer = ask(self.address(), "GET", path, b"");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer
    }
}

impl Drop for Leaking {
    fn drop(&mut self) {
        assert!(!self.leaked.is_empty());
    }
}

/// Runs a client on a path, in a directory of its own.
fn client(mut command: Command, url: String) -> String {
    let directory = tempfile::tempdir().unwrap();
    command.arg(url);
    command.env("PPROF_TMPDIR", directory.path());
    command.env("HOME", directory.path());
    command.env("DEBUGINFOD_URLS", "");
    run(&mut command).stdout
}

fn go(go: &Path, options: &[&str], url: String) -> String {
    let mut command = Command::new(go);
    command.args(["tool", "pprof"]).args(options);
    client(command, url)
}

#[test]
fn go_and_google_pprof_see_the_leak_of_a_running_program() {
    let (Some(go_tool), Some(google_pprof)) = (tool("go"), tool("google-pprof")) else {
        return;
    };
    let leaking = Leaking::new();
    let address = leaking.address();
    // Asked first: each answer's own allocations are in the answers after it.
    let top = go(
        &go_tool,
        &["-top"],
        format!("http://{address}/debug/pprof/allocs"),
    );
    assert!(top.contains("Type: alloc_space"), "{top}");
    assert!(first_row(&top).1.contains("frees"), "{top}");
    for (path, index) in [
        ("/debug/pprof/heap", "inuse_space"),
        ("/pprof/heap", "inuse_space"),
        ("/debug/pprof/peak", "inuse_space"),
        ("/debug/pprof/growth", "space"),
        ("/pprof/growth", "space"),
    ] {
        let url = format!("http://{address}{path}");
        let index = format!("-sample_index={index}");
        let options = ["-top", &index, "-symbolize=remote"];
        let top = go(&go_tool, &options, url);
        let (bytes, function) = first_row(&top);
        assert!(function.contains("leaks") && is_leak(bytes), "{top}");
    }
    // The server's allocations are shown where they are made, below all that std does in a thread.
    let url = format!("http://{address}/debug/pprof/allocs");
    let top = go(&go_tool, &["-top", "-nodecount=1000"], url);
    let of_thread: Vec<&str> = top
        .lines()
        .filter(|row| row.contains("catch_unwind"))
        .collect();
    let is_below = |row: &&str| row.trim_start().starts_with("0 ");
    assert!(
        !of_thread.is_empty() && of_thread.iter().all(is_below),
        "{top}"
    );
    if tool("curl").is_none() {
        return;
    }
    for path in ["/pprof/heap", "/pprof/growth"] {
        let mut command = Command::new(&google_pprof);
        command.args(["--text", "--inuse_space"]);
        let table = client(command, format!("{address}{path}"));
        let (bytes, function) = first_row(&table);
        // One digit behind the point, of MiB.
        assert!(function.contains("leaks") && is_leak(bytes), "{table}");
    }
}

#[test]
fn people_get_a_table_and_whoever_asks_another_form() {
    let leaking = Leaking::new();
    // Asked first: each answer's own allocations are in the answers after it.
    let allocs = leaking.ask("/debug/pprof/allocs?debug=1");
    assert!(first_row(allocs.text()).1.contains("frees"));
    let heap = leaking.ask("/debug/pprof/heap?debug=1");
    let (bytes, function) = first_row(heap.text());
    assert!(
        function.contains("leaks") && is_leak(bytes),
        "{}",
        heap.text()
    );
    let folded = leaking.ask("/debug/pprof/heap?format=folded");
    assert!(
        folded
            .text()
            .lines()
            .any(|line| line.contains("leak::leaks"))
    );
    for path in ["/pprof/heap", "/debug/pprof/allocs?format=legacy"] {
        let text = leaking.ask(path);
        let is_text = text.header("content-type") == Some("text/plain; charset=utf-8");
        assert!(is_text, "{path}");
        assert!(text.text().starts_with("heap profile: "), "{path}");
        let profile = Profile::read(&text.body).unwrap();
        let inuse = profile.samples().map(|sample| sample.values[3]);
        assert!(is_leak(inuse.max().unwrap() as f64), "{path}");
    }
    let growth = leaking.ask("/pprof/growth");
    let head = growth.text().lines().next().unwrap();
    assert!(head.ends_with("] @ growth"), "{head}");
    let nothing = leaking.ask("/debug/pprof/growth?seconds=1&debug=1");
    assert!(!nothing.text().contains("leaks"), "{}", nothing.text());
    let proto = leaking.ask("/pprof/heap?format=proto");
    assert_eq!(proto.body[..2], [0x1f, 0x8b], "gzip");
    let index = leaking.ask("/debug/pprof/");
    for link in ["\"heap\"", "\"heap?debug=1\"", "\"../../pprof/heap\""] {
        assert!(index.text().contains(link), "{link}: {}", index.text());
    }
    let address = leaking.address();
    let lifetimes = leaking.ask("/debug/pprof/lifetimes?debug=1");
    let (_, function) = first_row(lifetimes.text());
    assert!(function.contains("frees"), "{}", lifetimes.text());
    let head = ask(address, "HEAD", "/debug/pprof/heap?seconds=300", b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    for path in [
        "/debug/pprof/heap?seconds=0",
        "/debug/pprof/heap?format=gmon",
        "/debug/pprof/peak?seconds=1",
        "/debug/pprof/lifetimes?seconds=1",
        "/debug/pprof/lifetimes?format=legacy",
        "/pprof/lifetimes",
        "/pprof/allocs",
        "/pprof/peak",
    ] {
        let refused = ask(address, "GET", path, b"");
        assert!([400, 404].contains(&refused.status), "{path}");
        assert_eq!(refused.header("x-go-pprof"), Some("1"), "{path}");
    }
}

/// Allocates 128 MiB, and frees all.
#[inline(never)]
fn allocates_within_the_window() {
    for _ in 0..128 {
        black_box(vec![1_u8; 1 << 20]);
    }
}

#[test]
fn a_window_has_what_is_allocated_in_it_and_all_that_is_in_use() {
    let leaking = Leaking::new();
    let address = leaking.address();
    for version in ["1.0", "1.1"] {
        let path = "/debug/pprof/allocs?seconds=1";
        let request =
            format!("GET {path} HTTP/{version}\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let answer = thread::scope(|scope| {
            let asked = scope.spawn(|| send(address, request.as_bytes()));
            while !asked.is_finished() {
                allocates_within_the_window();
                thread::sleep(Duration::from_millis(50));
            }
            asked.join().unwrap()
        });
        assert_eq!(answer.status, 200);
        let mut profile = Profile::read(&answer.body).unwrap();
        assert!(profile.duration_nanos >= 1_000_000_000, "{version}");
        let top = profile.top(0).to_string();
        assert!(
            first_row(&top).1.contains("allocates_within_the_window"),
            "{top}"
        );
        assert!(!top.contains("leak::"), "{top}");
        profile.default_sample_type = "inuse_space".into();
        let top = profile.top(0).to_string();
        let (bytes, function) = first_row(&top);
        assert!(function.contains("leaks") && is_leak(bytes), "{top}");
    }
}
