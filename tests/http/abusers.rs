//! What strangers send to endpoints. Each function ends when the server has had enough of all.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::client::ask;

/// What a server says that has no endpoints, and is abused for comparison.
const NOTHING_THERE: u16 = 404;
/// How many clients send slowly.
const SLOW_CLIENTS: usize = 200;

/// Clients that send a byte a second, until the server has had enough of each.
pub fn slow_clients(address: SocketAddr) {
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

/// Heads of 10 MB, bodies of 100 MB, and requests whose answer nobody reads, the latter until the
/// server gives up where it `waits`. At `long_symbol` the process has a function of that kind.
pub fn huge_requests(address: SocketAddr, long_symbol: usize, waits: bool) {
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
            answer.is_empty() || is_one_of(&answer, &[413, NOTHING_THERE]),
            "{answer}"
        );
        let chunk = format!(
            "POST /pprof/symbol HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(200)
        );
        let answer = send_and_hear(address, chunk.as_bytes());
        assert!(
            answer.is_empty() || is_one_of(&answer, &[413, NOTHING_THERE]),
            "{answer}"
        );
    }
    // One address again and again, and each of a function with a long name: a few bytes that stand
    // for thousands.
    let mut clients = Vec::new();
    for nth in 0..10 {
        let addresses = (0..100_000).map(|i| match nth % 2 {
            0 => long_symbol,
            _ => long_symbol + i % 40_000,
        });
        let addresses = addresses.map(|address| format!("{address:x}"));
        let addresses = addresses.collect::<Vec<String>>().join("+");
        let request = format!(
            "POST /pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{addresses}",
            addresses.len()
        );
        let mut client = TcpStream::connect(address).unwrap();
        // As much as it takes.
        let _ = client.write_all(request.as_bytes());
        let mut head = [0; 12];
        client.read_exact(&mut head).unwrap();
        let head = str::from_utf8(&head).unwrap();
        assert!(is_one_of(head, &[200, 503, NOTHING_THERE]), "{head}");
        clients.push(client);
    }
    for mut client in clients {
        while waits && client.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Clients that send as much as may be sent at once, and read nothing, until another client is
/// answered all the same.
#[allow(dead_code, reason = "the benchmark has no time for them")]
pub fn stalled_clients(address: SocketAddr, long_symbol: usize) {
    const LONGEST: usize = 4 << 20;
    let clients: Vec<TcpStream> = (0..4)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            socket.connect(&address.into()).unwrap();
            let mut client = TcpStream::from(socket);
            let addresses = (0..40_000).map(|i| format!("{:x}", long_symbol + i));
            let mut body = addresses.collect::<Vec<String>>().join("+");
            body.extend(std::iter::repeat_n('+', LONGEST - body.len()));
            let head = "POST /pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length";
            let request = format!("{head}: {LONGEST}\r\n\r\n{body}");
            client.write_all(request.as_bytes()).unwrap();
            client.read_exact(&mut [0; 12]).unwrap();
            client
        })
        .collect();
    while ask(address, "GET", "/debug/pprof/goroutine", b"").status != 200 {
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(clients);
}

/// So many requests with bytes changed, left out and put in.
pub fn malformed_requests(address: SocketAddr, count: u32) {
    let requests = [
        "GET /debug/pprof/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        // Not `GET`, whose windows would be of any length.
        "HEAD /pprof/profile?seconds=1&hz=100 HTTP/1.0\r\n\r\n",
        "POST /pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n0x1000+0x2000",
        "POST /pprof/symbol HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n0x1000\r\n0\r\n\r\n",
        "GET /debug/pprof/goroutine?debug=1 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n",
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..count {
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

/// Clients that go away in the middle of their window, some of them with something left that the
/// server has no reason to read.
pub fn leaving_clients(address: SocketAddr) {
    const WINDOW: &str = "GET /pprof/profile?seconds=300 HTTP/1.1\r\nHost: localhost\r\n";
    let rests = [
        "\r\n",
        "\r\n\r\n",
        "\r\nG",
        "\r\nGET /pprof/cmdline HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "Content-Length: 5\r\n\r\n",
        "Content-Length: 5\r\n\r\nhello",
        "Content-Length: 500000\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    ];
    for rest in rests {
        for _ in 0..2 {
            let mut client = TcpStream::connect(address).unwrap();
            let request = format!("{WINDOW}{rest}");
            client.write_all(request.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // There is room again for whoever stays.
    loop {
        let answer = ask(address, "GET", "/pprof/profile?seconds=1", b"");
        if [200, NOTHING_THERE].contains(&answer.status) {
            break;
        }
        assert_eq!(answer.status, 503, "{}", answer.text());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether an answer has one of these statuses.
fn is_one_of(answer: &str, statuses: &[u16]) -> bool {
    let mut statuses = statuses.iter();
    statuses.any(|status| answer.starts_with(&format!("HTTP/1.1 {status}")))
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
