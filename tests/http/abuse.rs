//! What strangers send: the host's own endpoint goes on answering, and nothing of it stays.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::application::Application;
use crate::client::ask;
use crate::process::{child, figure, soak};
use crate::safe::open_window;
use crate::served::{is_recording, wait_until};

/// Clients of each bad kind.
const SLOW_CLIENTS: usize = 200;

#[test]
fn abuse_leaves_the_host_at_work_and_nothing_behind() {
    let mut host = Host::start();
    let (address, application) = (host.server, host.application);
    // What is made once for all time is made before.
    ask(address, "GET", "/debug/pprof/profile?seconds=1", b"");
    assert_eq!(ask(application, "POST", "/hash", b"text").status, 200);
    let (descriptors, memory) = (host.open_descriptors(), host.resident_bytes());

    let is_over = AtomicBool::new(false);
    let answers = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let answer = ask(application, "POST", "/hash", b"text");
                assert_eq!(answer.status, 200);
                answers.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let slow = scope.spawn(move || slow_clients(address));
        let huge = scope.spawn(move || huge_requests(address));
        let malformed = scope.spawn(move || malformed_requests(address));
        let leaving = scope.spawn(move || leaving_clients(address));
        for abuse in [slow, huge, malformed, leaving] {
            abuse.join().unwrap();
        }
        let before = answers.load(Ordering::Relaxed);
        wait_until(|| answers.load(Ordering::Relaxed) > before + 10);
        is_over.store(true, Ordering::Relaxed);
        client.join().unwrap();
    });
    // The server has not suffered.
    assert_eq!(ask(address, "GET", "/pprof/cmdline", b"").status, 200);
    wait_until(|| host.open_descriptors() <= descriptors);
    let more = host.resident_bytes().saturating_sub(memory);
    figure!(
        "{} answers of the host's own meanwhile, {} KiB more than before",
        answers.into_inner(),
        more >> 10
    );
    assert!(more <= 32 << 20, "{more} bytes");
    host.shut_down();
    assert!(host.open_descriptors() < descriptors);
    assert_eq!(ask(application, "POST", "/hash", b"text").status, 200);
}

/// A process with an application of its own, and the endpoints at another address.
struct Host {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
    application: SocketAddr,
    server: SocketAddr,
}

impl Host {
    fn start() -> Self {
        let mut command = child("abuse::host");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let addresses = said.find_map(|line| Some(line.unwrap().strip_prefix("at ")?.to_owned()));
        let addresses = addresses.unwrap();
        let (application, server) = addresses.split_once(' ').unwrap();
        Self {
            application: application.parse().unwrap(),
            server: server.parse().unwrap(),
            process,
            said,
        }
    }

    /// Ends the endpoints, with windows open.
    fn shut_down(&mut self) {
        let _windows = [open_window(self.server), open_window(self.server)];
        let stdin = self.process.stdin.as_mut().unwrap();
        stdin.write_all(b"shut down\n").unwrap();
        let said = self.said.next().unwrap().unwrap();
        assert_eq!(said, "nothing is recorded");
    }

    fn open_descriptors(&self) -> usize {
        let directory = format!("/proc/{}/fd", self.process.id());
        std::fs::read_dir(directory).unwrap().count()
    }

    fn resident_bytes(&self) -> u64 {
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", self.process.id())).unwrap();
        let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Its input ends, and so does the process.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "a child process"]
fn host() {
    let application = Application::at_rest();
    let server = sigprof::http::serve("127.0.0.1:0").unwrap();
    // The harness has begun a line.
    println!("\nat {} {}", application.address, server.local_addr());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    server.shutdown();
    wait_until(|| !is_recording());
    println!("nothing is recorded");
    std::io::stdin().read_line(&mut line).unwrap();
}

/// Clients that send a byte a second, until the server has had enough of each.
fn slow_clients(address: SocketAddr) {
    let mut clients: Vec<TcpStream> = (0..SLOW_CLIENTS)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut request = b"GET /pprof/profile?seconds=1 HTTP/1.1\r\n".iter().cycle();
    while !clients.is_empty() {
        let byte = [*request.next().unwrap()];
        let sent = Instant::now();
        clients.retain_mut(|client| {
            client.set_nonblocking(true).unwrap();
            let is_closed = matches!(client.read(&mut [0; 1024]), Ok(0));
            !is_closed && client.write_all(&byte).is_ok()
        });
        std::thread::sleep(Duration::from_secs(1).saturating_sub(sent.elapsed()));
    }
}

/// Heads of 10 MB, bodies of 100 MB, and requests whose answer nobody reads.
fn huge_requests(address: SocketAddr) {
    for _ in 0..3 {
        let line = format!("X-Filler: {}\r\n", "x".repeat(1000));
        let head = format!("GET /pprof/cmdline HTTP/1.1\r\n{}\r\n", line.repeat(10_000));
        let answer = send_and_hear(address, head.as_bytes());
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
            "{answer}"
        );
        let head =
            "POST /pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n";
        let body = [head.as_bytes(), &b"0x1000+".repeat(100_000_000 / 7)].concat();
        let answer = send_and_hear(address, &body);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
            "{answer}"
        );
        let chunk = format!(
            "POST /pprof/symbol HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(200)
        );
        let answer = send_and_hear(address, chunk.as_bytes());
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
            "{answer}"
        );
    }
    let addresses = vec![format!("{:#x}", huge_requests as *const () as usize); 100_000].join("+");
    let request = format!(
        "POST /pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{addresses}",
        addresses.len()
    );
    for _ in 0..10 {
        let mut client = TcpStream::connect(address).unwrap();
        // As much as it takes.
        let _ = client.write_all(request.as_bytes());
        if soak() > 1.0 {
            // Until the server gives up.
            wait_until(|| client.write_all(b"x").is_err());
        }
    }
}

/// Requests with bytes changed, left out and put in.
fn malformed_requests(address: SocketAddr) {
    let requests = [
        "GET /debug/pprof/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        // Not `GET`, whose windows would be of any length.
        "HEAD /pprof/profile?seconds=1&hz=100 HTTP/1.0\r\n\r\n",
        "POST /pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n0x1000+0x2000",
        "POST /pprof/symbol HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n0x1000\r\n0\r\n\r\n",
        "GET /debug/pprof/goroutine?debug=1 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n",
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..(300.0 * soak()) as u32 {
        let mut request = requests[random.below(requests.len())].as_bytes().to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(request.len());
            match random.below(4) {
                0 => request[at] = random.below(256) as u8,
                1 => request.insert(at, random.below(256) as u8),
                2 => request.truncate(at.max(1)),
                _ => {
                    let again = request[at..].to_vec();
                    request.extend_from_slice(&again);
                }
            }
        }
        let answer = send_and_hear(address, &request);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1."),
            "{answer} to {}",
            request.escape_ascii()
        );
    }
}

/// Clients that go away in the middle of their window.
fn leaving_clients(address: SocketAddr) {
    for _ in 0..20 {
        let client = open_window(address);
        std::thread::sleep(Duration::from_millis(20));
        drop(client);
    }
}

/// Sends what the server takes, and reads what it says, unless it takes its time.
fn send_and_hear(address: SocketAddr, request: &[u8]) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    let patience = Duration::from_millis(200);
    client.set_read_timeout(Some(patience)).unwrap();
    // The server need not take all of it.
    let _ = client.write_all(request);
    let _ = client.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    // Nor is it to read what it does not want, which resets the connection.
    let _ = client.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
