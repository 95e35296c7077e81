//! What strangers send: the host's own endpoint goes on answering, and nothing of it stays.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::abusers;
use crate::application::Application;
use crate::client::{ask, open_window};
use crate::long_symbol;
use crate::process::{child, figure, soak};
use crate::served::{is_recording, wait_until};

#[test]
fn abuse_leaves_the_host_at_work_and_nothing_behind() {
    let mut host = Host::start();
    let (address, application) = (host.server, host.application);
    // What is made once for all time is made before.
    ask(address, "GET", "/debug/pprof/profile?seconds=1", b"");
    assert_eq!(ask(application, "POST", "/sort", b"text").status, 200);
    let (descriptors, memory) = (host.open_descriptors(), host.resident_bytes());
    let allocated = host.allocated_bytes();
    let long_symbol = host.long_symbol;

    let is_over = AtomicBool::new(false);
    let answers = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let answer = ask(application, "POST", "/sort", b"text");
                assert_eq!(answer.status, 200);
                answers.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let is_long = soak() > 1.0;
        let requests = (300.0 * soak()) as u32;
        let slow = scope.spawn(move || abusers::slow_clients(address));
        let huge = scope.spawn(move || abusers::huge_requests(address, long_symbol, is_long));
        let malformed = scope.spawn(move || abusers::malformed_requests(address, requests));
        let leaving = scope.spawn(move || abusers::leaving_clients(address));
        // Who is slow, or leaves unheard, is the application's to deal with where it has the
        // connections.
        let mounted = scope.spawn(move || {
            abusers::huge_requests(application, long_symbol, false);
            abusers::malformed_requests(application, requests);
            if is_long {
                abusers::stalled_clients(application, long_symbol);
            }
        });
        for abuse in [slow, huge, malformed, leaving, mounted] {
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
    // What was asked for by clients that have left may still be at work, whose memory is its own.
    let mut more = 0;
    wait_until(|| {
        more = host.allocated_bytes().saturating_sub(allocated);
        more <= 16 << 20
    });
    // What lies free in the heaps of the host's own threads is for its allocator to give back.
    figure!(
        "{} answers of the host's own meanwhile, {} KiB more allocated than before, {} KiB resident",
        answers.into_inner(),
        more >> 10,
        host.resident_bytes().saturating_sub(memory) >> 10
    );
    let most = host.most_resident_bytes().saturating_sub(memory);
    figure!("{} KiB more than before at most", most >> 10);
    assert!(most <= 96 << 20, "{most} bytes");
    host.shut_down();
    assert!(host.open_descriptors() < descriptors);
    assert_eq!(ask(application, "POST", "/sort", b"text").status, 200);
}

/// A process with an application of its own, and the endpoints at another address.
struct Host {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
    application: SocketAddr,
    server: SocketAddr,
    long_symbol: usize,
}

impl Host {
    fn start() -> Self {
        let mut command = child("abuse::host");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let addresses = said.find_map(|line| Some(line.unwrap().strip_prefix("at ")?.to_owned()));
        let addresses = addresses.unwrap();
        let [application, server, long_symbol] =
            addresses.split(' ').collect::<Vec<_>>().try_into().unwrap();
        Self {
            application: application.parse().unwrap(),
            server: server.parse().unwrap(),
            long_symbol: long_symbol.parse().unwrap(),
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

    /// What the process has allocated and not freed.
    fn allocated_bytes(&mut self) -> u64 {
        let stdin = self.process.stdin.as_mut().unwrap();
        stdin.write_all(b"allocated\n").unwrap();
        self.said.next().unwrap().unwrap().parse().unwrap()
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

    /// The most that there were at any time.
    fn most_resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
        kib.parse::<u64>().unwrap() << 10
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
    println!(
        "\nat {} {} {}",
        application.address,
        server.local_addr(),
        long_symbol::begin()
    );
    let mut server = Some(server);
    for line in std::io::stdin().lines() {
        if line.unwrap() == "allocated" {
            println!("{}", allocated_bytes());
            continue;
        }
        server.take().unwrap().shutdown();
        wait_until(|| !is_recording());
        println!("nothing is recorded");
    }
}

/// In all heaps of this process, and mapped for one block each.
#[cfg(target_env = "gnu")]
fn allocated_bytes() -> u32 {
    // SAFETY: it has no preconditions.
    let heaps = unsafe { libc::mallinfo() };
    // The C library counts modulo 2^32.
    (heaps.uordblks as u32).wrapping_add(heaps.hblkhd as u32)
}

/// Other allocators do not say.
#[cfg(not(target_env = "gnu"))]
fn allocated_bytes() -> u32 {
    0
}
