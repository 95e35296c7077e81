//! A client that sends what it is told to, and reads the answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime};

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Before the request was sent.
    pub asked: SystemTime,
    /// When the answer's first byte was here.
    pub begun: SystemTime,
    pub status: u16,
    /// Lines of the head, in lower case.
    pub head: Vec<String>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.iter().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }
}

/// Asks by `method` for `path`, with a body, and reads until the server closes.
pub fn ask(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Answer {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    send(address, &[head.as_bytes(), body].concat())
}

/// A client that waits for a window of five minutes.
pub fn open_window(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    let request = "GET /pprof/profile?seconds=300 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.write_all(request.as_bytes()).unwrap();
    client
}

/// Sends these bytes, and reads until the server closes.
pub fn send(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let asked = SystemTime::now();
    stream.write_all(request).unwrap();
    let mut answer = vec![0];
    stream.read_exact(&mut answer).unwrap();
    let begun = SystemTime::now();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(&answer)));
    let head = str::from_utf8(&answer[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let mut ended = Answer {
        asked,
        begun,
        status: status.parse().unwrap(),
        head: lines.map(str::to_ascii_lowercase).collect(),
        body: answer[end + 4..].to_vec(),
    };
    if ended.header("transfer-encoding") == Some("chunked") {
        ended.body = joined(&ended.body);
    }
    ended
}

/// What these chunks hold (RFC 9112, 7.1), the last of which has to be there.
fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|bytes| bytes == b"\r\n");
        let size = str::from_utf8(&chunks[..end.unwrap()]).unwrap();
        let (begin, size) = (size.len() + 2, usize::from_str_radix(size, 16).unwrap());
        body.extend_from_slice(&chunks[begin..begin + size]);
        chunks = &chunks[begin + size + 2..];
        if size == 0 {
            return body;
        }
    }
}
