//! What makes the endpoints safe to leave on: who is answered, and how much at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use sigprof::http::{Options, Server, serve};
use sigprof::{ErrorKind, Profile};

use crate::client::{Answer, ask, open_window, send};
use crate::served::{is_recording, wait_until};
use crate::support::{run, tool};

const ANY_PORT: &str = "127.0.0.1:0";

#[test]
fn an_address_that_others_can_reach_needs_a_token_or_a_word() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = serve(address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        for way in ["token", "allow_remote", "127.0.0.1"] {
            assert!(refused.to_string().contains(way), "{refused}");
        }
    }
    let empty = Options::new().token("").serve(ANY_PORT).unwrap_err();
    assert!(empty.to_string().contains("the token is empty"), "{empty}");
    let none = serve(&[] as &[SocketAddr]).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
    for no_port in ["6060", ""] {
        let refused = serve(no_port).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("127.0.0.1:6060"), "{refused}");
    }
    let mapped = serve("[::ffff:127.0.0.1]:0").map_err(|error| error.kind());
    assert_ne!(mapped.err(), Some(ErrorKind::InvalidInput));
    let remote = Options::new().allow_remote().serve("0.0.0.0:0").unwrap();
    let port = remote.local_addr().port();
    assert_eq!(cmdline(([127, 0, 0, 1], port).into()).status, 200);
    drop(Options::new().token("s3cret").serve("0.0.0.0:0").unwrap());
}

#[test]
fn a_port_that_is_taken_is_an_error_that_names_it() {
    let server = serve(ANY_PORT).unwrap();
    let refused = serve(server.local_addr()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Os);
    let address = server.local_addr().to_string();
    assert!(refused.to_string().contains(&address), "{refused}");
}

#[test]
fn without_a_thread_there_is_no_server_but_an_error() {
    let few = libc::rlimit {
        rlim_cur: 1,
        rlim_max: 1,
    };
    // SAFETY: the limit is there, and the call reads it.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &few) }, 0);
    // SAFETY: has no preconditions. The limit is not one of root's; others cannot change and stay.
    unsafe { libc::setuid(65534) };
    if std::thread::Builder::new().spawn(|| ()).is_ok() {
        eprintln!("skipped: this user may have as many threads as there are");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let refused = runtime.unwrap().block_on(async { serve(ANY_PORT) });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Os);
}

#[test]
fn whoever_knows_the_token_is_answered() {
    let server = Options::new().token("s3cret").serve(ANY_PORT).unwrap();
    let refused = cmdline(server.local_addr());
    assert_eq!(refused.status, 401, "{}", refused.text());
    assert_eq!(refused.header("x-go-pprof"), Some("1"));
    assert_eq!(
        refused.header("www-authenticate"),
        Some("basic realm=\"profiles\"")
    );
    assert!(refused.text().contains("Bearer"), "{}", refused.text());
    for (token, status) in [
        ("s3cret", 200),
        ("S3cret", 401),
        ("s3cret0", 401),
        ("", 401),
    ] {
        let header = format!("Authorization: Bearer {token}");
        assert_eq!(with_header(&server, &header).status, status, "{token}");
    }
}

#[test]
fn go_and_curl_show_the_token_as_a_password() {
    let server = Options::new().token("s3cret").serve(ANY_PORT).unwrap();
    let url = |user: &str, path: &str| format!("http://{user}{}{path}", server.local_addr());
    if let Some(curl) = tool("curl") {
        let profile = url("", "/debug/pprof/goroutine?debug=1");
        let said = run(Command::new(curl).args(["-sS", "-u", "any:s3cret", &profile]));
        assert!(said.stdout.contains("threads"), "{}", said.stdout);
    }
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(go);
    command.args(["tool", "pprof", "-top"]);
    command.arg(url("any:s3cret@", "/debug/pprof/goroutine"));
    command.env("PPROF_TMPDIR", directory.path());
    command.env("TZ", "UTC").env("DEBUGINFOD_URLS", "");
    let said = run(&mut command);
    assert!(said.stdout.contains("Type: goroutine"), "{}", said.stdout);
}

#[test]
fn a_page_of_the_web_is_not_answered() {
    let server = serve(ANY_PORT).unwrap();
    let refused = with_header(&server, "Host: evil.example");
    assert_eq!(refused.status, 403, "{}", refused.text());
    for part in ["`evil.example`", "allow_host"] {
        assert!(refused.text().contains(part), "{}", refused.text());
    }
    let port = server.local_addr().port();
    let own = format!("Host: localhost:{port}");
    assert_eq!(with_header(&server, &own).status, 200);
    let options = Options::new().allow_host("profiles.example");
    let server = options.serve(ANY_PORT).unwrap();
    assert_eq!(with_header(&server, "Host: profiles.example").status, 200);
}

#[test]
fn endpoints_are_below_a_prefix() {
    let server = Options::new().prefix("internal/").serve(ANY_PORT).unwrap();
    let address = server.local_addr();
    let index = ask(address, "GET", "/internal/debug/pprof/", b"");
    assert_eq!(index.status, 200);
    let without = ask(address, "GET", "/debug/pprof/", b"");
    assert_eq!(without.status, 404);
    let place = "/internal/debug/pprof/ lists";
    assert!(without.text().contains(place), "{}", without.text());
}

#[test]
fn more_windows_than_may_be_open_are_refused() {
    let server = Options::new().max_windows(2).serve(ANY_PORT).unwrap();
    let address = server.local_addr();
    let one_more = || ask(address, "GET", "/pprof/profile?seconds=1", b"");
    let windows = [open_window(address), open_window(address)];
    // The windows are open as soon as the server has read of them.
    wait_until(|| one_more().status == 503);
    let refused = one_more();
    assert_eq!(refused.header("retry-after"), Some("10"));
    assert!(
        refused.text().contains("windows are open"),
        "{}",
        refused.text()
    );
    // All else is answered.
    assert_eq!(cmdline(address).status, 200);
    let [one, another] = windows;
    drop(one);
    wait_until(|| one_more().status == 200);
    drop(another);
    wait_until(|| !is_recording());
}

/// Clients give up where no head comes, which for a short time is soon: `pprof` after 1.5 times the
/// time and 5 s. On a crowded machine a large program's names take longer.
#[test]
fn the_head_of_a_profile_is_there_when_its_time_begins() {
    let server = serve(ANY_PORT).unwrap();
    let mut client = BufReader::new(open_window(server.local_addr()));
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert_ne!(client.read_until(b'\n', &mut head).unwrap(), 0);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"));
    wait_until(is_recording);
}

#[test]
fn a_client_of_http_1_0_is_told_how_long_the_profile_is() {
    let server = serve(ANY_PORT).unwrap();
    let request = b"GET /pprof/profile?seconds=1 HTTP/1.0\r\n\r\n";
    let answer = send(server.local_addr(), request);
    assert_eq!(answer.status, 200);
    let length = answer.header("content-length").unwrap();
    assert_eq!(length, answer.body.len().to_string());
    Profile::read(&answer.body).unwrap();
}

#[test]
fn a_client_that_sends_nothing_more_reads_the_answer() {
    let server = serve(ANY_PORT).unwrap();
    let mut client = TcpStream::connect(server.local_addr()).unwrap();
    let request = b"GET /pprof/cmdline HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.write_all(request).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

/// As many as are let in ask again and again.
#[test]
fn connections_that_are_kept_make_room() {
    let server = serve(ANY_PORT).unwrap();
    let address = server.local_addr();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients = (0..256).map(|_| {
            let mut client = TcpStream::connect(address).unwrap();
            ask_again(&mut client).unwrap();
            client
        });
        let mut clients: Vec<TcpStream> = clients.collect();
        let newcomer = scope.spawn(|| {
            let answer = cmdline(address);
            is_over.store(true, Ordering::Relaxed);
            answer
        });
        while !is_over.load(Ordering::Relaxed) {
            for client in &mut clients {
                let _ = ask_again(client);
            }
        }
        assert_eq!(newcomer.join().unwrap().status, 200);
    });
}

/// Asks, and reads the answer, which leaves the connection open.
fn ask_again(client: &mut TcpStream) -> std::io::Result<()> {
    client.write_all(b"HEAD /pprof/symbol HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(())
}

#[test]
fn an_application_that_ends_when_all_is_answered_has_its_windows_end() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let profiles = Options::new().endpoints();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let served = runtime.spawn({
        let profiles = profiles.clone();
        async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let application = axum::Router::new().merge(profiles.router());
            let ending = async { drop(ended.await) };
            let server = axum::serve(listener, application);
            server.with_graceful_shutdown(ending).await
        }
    });
    let old = std::thread::spawn(move || {
        let request = b"GET /pprof/profile?seconds=300 HTTP/1.0\r\n\r\n";
        send(address, request)
    });
    let mut new = open_window(address);
    let mut head = [0; 15];
    new.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    wait_until(is_recording);
    profiles.shutdown();
    let answer = old.join().unwrap();
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains("shut down"), "{}", answer.text());
    let refused = ask(address, "GET", "/pprof/profile?seconds=300", b"");
    assert_eq!(refused.status, 503);
    assert_eq!(cmdline(address).status, 200);
    end.send(()).unwrap();
    runtime.block_on(served).unwrap().unwrap();
    wait_until(|| !is_recording());
}

#[test]
fn a_window_ends_when_its_client_goes() {
    let server = serve(ANY_PORT).unwrap();
    let client = open_window(server.local_addr());
    wait_until(is_recording);
    drop(client);
    wait_until(|| !is_recording());
}

#[test]
fn a_server_that_is_shut_down_ends_its_windows_and_frees_its_port() {
    let server = serve(ANY_PORT).unwrap();
    let address = server.local_addr();
    let mut client = open_window(address);
    wait_until(is_recording);
    server.shutdown();
    wait_until(|| !is_recording());
    // Reset or closed: either way nothing comes but a head.
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.ends_with(b"\r\n\r\n"));
    let again = serve(address).unwrap();
    assert_eq!(again.local_addr(), address);
}

/// The child has the descriptors of the listener and of the connections.
#[test]
fn a_server_is_shut_down_whatever_the_program_has_forked() {
    let server = serve(ANY_PORT).unwrap();
    let address = server.local_addr();
    let mut client = open_window(address);
    wait_until(is_recording);
    // SAFETY: the child makes system calls alone.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: both calls take no pointer; the child ends with its parent.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
    }
    assert!(child > 0);
    server.shutdown();
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    assert_eq!(
        serve(address).map(|again| again.local_addr()).ok(),
        Some(address)
    );
    // SAFETY: the child is this process's, and nothing waits for it elsewhere.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

fn cmdline(address: SocketAddr) -> Answer {
    ask(address, "GET", "/pprof/cmdline", b"")
}

fn with_header(server: &Server, header: &str) -> Answer {
    let request = format!("GET /pprof/cmdline HTTP/1.0\r\n{header}\r\n\r\n");
    send(server.local_addr(), request.as_bytes())
}

#[test]
fn the_threads_of_requests_hear_the_signals_of_profilers_alone() {
    let server = serve(ANY_PORT).unwrap();
    let _client = open_window(server.local_addr());
    wait_until(is_recording);
    // The server's, and the request's, which blocks all signals at moments of the recording's start.
    wait_until(|| {
        let blocked = blocked_by_http_threads();
        blocked == [[false, false, true]; 2]
    });
}

/// Whether the threads of the server and of requests block `SIGPROF`, `SIGURG` and `SIGTERM`.
fn blocked_by_http_threads() -> Vec<[bool; 3]> {
    let mut all = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path().join("status");
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        if field("Name:\t") == Some("sigprof-http") {
            let blocked = u64::from_str_radix(field("SigBlk:\t").unwrap(), 16).unwrap();
            let is_blocked = |signal: i32| blocked & 1 << (signal - 1) != 0;
            all.push([libc::SIGPROF, libc::SIGURG, libc::SIGTERM].map(is_blocked));
        }
    }
    all
}
