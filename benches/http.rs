//! What the pprof endpoints cost: while nobody asks; for symbols; for a window, beside a recording;
//! and what the host's own clients feel of strangers' abuse. Runs take turns; figures are medians.
//! Arguments choose: `idle`, `symbol`, `window`, `clients`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sigprof::cpu::Profiler;
use sigprof::{Format, Profile};

#[path = "../tests/http/abusers.rs"]
mod abusers;
#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../tests/http/client.rs"]
mod client;
#[path = "../examples/http_server.rs"]
#[allow(dead_code, reason = "its `main` is the example's")]
mod http_server;
#[path = "../tests/http/long_symbol.rs"]
mod long_symbol;
#[path = "../tests/support/process.rs"]
mod process;
#[path = "../tests/support/work.rs"]
mod work;

use client::ask;
use work::{StopOnDrop, process_cpu, thread_cpu};

/// How much is measured.
struct Amount {
    idle: Duration,
    processes: usize,
    windows: usize,
    rounds: usize,
    requests: usize,
}

const ALL: Amount = Amount {
    idle: Duration::from_secs(10),
    processes: 11,
    windows: 15,
    rounds: 11,
    requests: 2_000,
};
/// `cargo test` only wants to see that this works.
const LEAST: Amount = Amount {
    idle: Duration::from_millis(100),
    processes: 1,
    windows: 1,
    rounds: 1,
    requests: 20,
};

/// What is measured, by the argument that chooses it.
type Part = (&'static str, fn(&Amount));

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["symbols"] => return look_symbols_up(),
        ["host"] => return host(),
        ["abuse", address, long_symbol] => {
            return abuse(address.parse().unwrap(), long_symbol.parse().unwrap());
        }
        ["spin"] => loop {
            std::hint::spin_loop();
        },
        _ => {}
    }
    let amount = match arguments.contains(&"--bench") {
        true => ALL,
        false => LEAST,
    };
    let parts: [Part; 4] = [
        ("idle", while_nobody_asks),
        ("symbol", symbols),
        ("window", windows),
        ("clients", hosts_clients),
    ];
    let is_chosen = |name| arguments.contains(&name);
    let is_any_chosen = parts.iter().any(|(name, _)| is_chosen(*name));
    for (name, measure) in parts {
        if is_chosen(name) || !is_any_chosen {
            measure(&amount);
        }
    }
}

/// What the server's thread does for so long.
fn while_nobody_asks(amount: &Amount) {
    let server = sigprof::http::serve("127.0.0.1:0").unwrap();
    assert_eq!(
        ask(server.local_addr(), "GET", "/pprof/cmdline", b"").status,
        200
    );
    let thread = fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .find(|thread| {
            let name = fs::read_to_string(thread.path().join("comm"));
            name.is_ok_and(|name| name.starts_with("sigprof-http"))
        });
    let thread = thread.unwrap().path();
    // CPU time in nanoseconds, time in the run queue, and how often the thread has run.
    let figures = || {
        let text = fs::read_to_string(thread.join("schedstat")).unwrap();
        let mut figures = text
            .split_whitespace()
            .map(|figure| figure.parse::<u64>().unwrap());
        (figures.next().unwrap(), figures.nth(1).unwrap())
    };
    // The last connection is to be closed before.
    std::thread::sleep(Duration::from_millis(100));
    let before = figures();
    std::thread::sleep(amount.idle);
    let after = figures();
    println!(
        "while nobody asks, in {:?}: the server's thread has run {} times, for {} ns",
        amount.idle,
        after.1 - before.1,
        after.0 - before.0
    );
}

/// Symbols of 10,000 addresses in one request: a process's first, and a later one.
fn symbols(amount: &Amount) {
    let [mut first, mut later] = [const { Vec::new() }; 2];
    let mut found = 0;
    for _ in 0..amount.processes {
        let said = process::succeed(process::this_program().arg("symbols")).stdout;
        let said = String::from_utf8(said).unwrap();
        let figures: Vec<u64> = said
            .split_whitespace()
            .map(|f| f.parse().unwrap())
            .collect();
        first.push(Duration::from_nanos(figures[0]));
        later.push(Duration::from_nanos(figures[1]));
        found = figures[2];
    }
    println!(
        "symbols of 10000 addresses, {found} found: {:.1?} in a process's first request, {:.1?} later",
        median(first),
        median(later)
    );
}

/// Prints what the first request took, what the third did, and how many symbols were found.
fn look_symbols_up() {
    let server = sigprof::http::serve("127.0.0.1:0").unwrap();
    let addresses = addresses(10_000);
    let addresses: Vec<String> = addresses.iter().map(|a| format!("{a:#x}")).collect();
    let body = addresses.join("+");
    let took = [(); 3].map(|()| {
        let begin = Instant::now();
        let answer = ask(
            server.local_addr(),
            "POST",
            "/pprof/symbol",
            body.as_bytes(),
        );
        (begin.elapsed().as_nanos(), answer.text().lines().count())
    });
    println!("{} {} {}", took[0].0, took[2].0, took[0].1);
}

/// So many addresses, evenly spread over the code that files were mapped for.
fn addresses(count: u64) -> Vec<u64> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let code = maps
        .lines()
        .filter(|line| line.contains(" r-xp ") && line.contains('/'));
    let code: Vec<(u64, u64)> = code
        .map(|line| {
            let (begin, rest) = line.split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            let number = |digits| u64::from_str_radix(digits, 16).unwrap();
            (number(begin), number(end))
        })
        .collect();
    let size: u64 = code.iter().map(|(begin, end)| end - begin).sum();
    let at = |mut offset| {
        for &(begin, end) in &code {
            if offset < end - begin {
                return begin + offset;
            }
            offset -= end - begin;
        }
        unreachable!("the offset is below the size")
    };
    (0..count).map(|i| at(size * i / count)).collect()
}

/// What 2 s at 1000 Hz of two busy threads cost, as a recording of the program's own and as a
/// window.
fn windows(amount: &Amount) {
    let server = sigprof::http::serve("127.0.0.1:0").unwrap();
    let busy = Busy::default();
    let [mut recording, mut window] = [const { Vec::new() }; 2];
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&busy.is_over);
        for index in 0..2 {
            let busy = &busy;
            scope.spawn(move || busy.work(index));
        }
        for _ in 0..amount.windows {
            recording.push(busy.cost(|| {
                let recording = Profiler::new().frequency_hz(1000).start().unwrap();
                std::thread::sleep(Duration::from_secs(2));
                let mut file = Vec::new();
                recording
                    .stop()
                    .unwrap()
                    .write(Format::Pprof, &mut file)
                    .unwrap();
                file
            }));
            window.push(busy.cost(|| {
                let path = "/debug/pprof/profile?seconds=2&hz=1000";
                ask(server.local_addr(), "GET", path, b"").body
            }));
        }
    });
    for (what, costs) in [("recording", recording), ("window", window)] {
        println!(
            "2 s of two busy threads at 1000 Hz as a {what}: {:.1?} of CPU time beside them, \
             who did {:.0} turns in a ms",
            median(costs.iter().map(|cost| cost.beside).collect()),
            median(
                costs
                    .iter()
                    .map(|cost| cost.turns_per_s)
                    .collect::<Vec<_>>()
            ) as f64
                / 1e3,
        );
    }
}

/// Threads that work, and count what they have done.
#[derive(Default)]
struct Busy {
    is_over: AtomicBool,
    turns: AtomicU64,
    cpu_ns: [AtomicU64; 2],
}

/// What a profile cost.
struct Cost {
    /// CPU time of all other threads.
    beside: Duration,
    /// What the working threads did in a second of their own CPU time.
    turns_per_s: u64,
}

impl Busy {
    fn work(&self, index: usize) {
        let mut x = 1u64;
        while !self.is_over.load(Ordering::Relaxed) {
            for _ in 0..10_000 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
            }
            std::hint::black_box(x);
            self.turns.fetch_add(1, Ordering::Relaxed);
            self.cpu_ns[index].store(thread_cpu().as_nanos() as u64, Ordering::Relaxed);
        }
    }

    fn figures(&self) -> (u64, Duration, Duration) {
        let cpu: u64 = self
            .cpu_ns
            .iter()
            .map(|cpu| cpu.load(Ordering::Relaxed))
            .sum();
        let turns = self.turns.load(Ordering::Relaxed);
        (turns, Duration::from_nanos(cpu), process_cpu())
    }

    fn cost(&self, record: impl FnOnce() -> Vec<u8>) -> Cost {
        let before = self.figures();
        let file = record();
        let after = self.figures();
        let profile = Profile::read(&file).unwrap();
        assert_eq!(profile.period, 1_000_000);
        let own = after.1 - before.1;
        Cost {
            beside: (after.2 - before.2).saturating_sub(own),
            turns_per_s: ((after.0 - before.0) as f64 / own.as_secs_f64()) as u64,
        }
    }
}

/// How long the clients of an application's own wait: with nobody else there; while another process
/// keeps one CPU busy; while strangers abuse a server of the same kind that has no endpoints; and
/// while they abuse the endpoints.
fn hosts_clients(amount: &Amount) {
    let mut host = Role::start(&["host"]);
    let mut other = Role::start(&["host"]);
    let (application, endpoints, long_symbol) = host.addresses();
    let (stranger, _, long_symbol_there) = other.addresses();
    let (stranger, endpoints) = (stranger.to_string(), endpoints.to_string());
    let beside: [(&str, &[&str]); 4] = [
        ("with nobody else", &[]),
        ("while a process spins", &["spin"]),
        (
            "while a server without endpoints is abused",
            &["abuse", &stranger, &long_symbol_there],
        ),
        (
            "while the endpoints are abused",
            &["abuse", &endpoints, &long_symbol],
        ),
    ];
    let mut latencies = [const { Vec::new() }; 4];
    for _ in 0..amount.rounds {
        for ((_, role), latencies) in beside.iter().zip(&mut latencies) {
            let _beside = (!role.is_empty()).then(|| Role::start(role));
            let mut all: Vec<Duration> = (0..amount.requests)
                .map(|_| {
                    let begin = Instant::now();
                    assert_eq!(ask(application, "POST", "/sort", b"text").status, 200);
                    begin.elapsed()
                })
                .collect();
            all.sort_unstable();
            latencies.push((all[all.len() / 2], all[all.len() * 99 / 100]));
        }
    }
    for ((name, _), latencies) in beside.into_iter().zip(latencies) {
        let (medians, p99s) = latencies.into_iter().unzip();
        println!(
            "the application's clients wait {name}: {:.1?}, p99 {:.1?}",
            median(medians),
            median(p99s)
        );
    }
}

/// A process of this program, which ends with this.
struct Role(Child);

impl Role {
    fn start(arguments: &[&str]) -> Self {
        let mut command: Command = process::this_program();
        command.args(arguments).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Those of a host: of its application, of its endpoints, and of its function with a long symbol.
    fn addresses(&mut self) -> (SocketAddr, SocketAddr, String) {
        let mut line = String::new();
        let said = self.0.stdout.as_mut().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        let (application, endpoints) = line.trim().split_once(' ').unwrap();
        let (endpoints, long_symbol) = endpoints.split_once(' ').unwrap();
        let long_symbol = long_symbol.to_owned();
        let (application, endpoints) = (application.parse().unwrap(), endpoints.parse().unwrap());
        (application, endpoints, long_symbol)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// An application, and endpoints at another address, until it is killed.
fn host() {
    let server = sigprof::http::serve("127.0.0.1:0").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!(
            "{} {} {}",
            listener.local_addr().unwrap(),
            server.local_addr(),
            long_symbol::begin()
        );
        axum::serve(listener, http_server::application())
            .await
            .unwrap();
    });
}

/// Does all that strangers do, until it is killed.
fn abuse(address: SocketAddr, long_symbol: usize) {
    let huge_requests = |address| abusers::huge_requests(address, long_symbol, true);
    std::thread::scope(|scope| {
        let abuses: [&(dyn Fn(SocketAddr) + Sync); 4] = [
            &abusers::slow_clients,
            &huge_requests,
            &|address| abusers::malformed_requests(address, 300),
            &abusers::leaving_clients,
        ];
        for abuse in abuses {
            scope.spawn(move || {
                loop {
                    abuse(address);
                }
            });
        }
    });
}

fn median<T: Copy + Ord>(mut figures: Vec<T>) -> T {
    figures.sort_unstable();
    figures[figures.len() / 2]
}
