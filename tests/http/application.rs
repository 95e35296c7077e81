//! An application of axum's, asked by its own clients and by those that want profiles.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use sigprof::Profile;
use sigprof::http::Options;

use crate::client::ask;
use crate::http_server::{application, compress, sort};
use crate::support::{Output, run, tool};
use crate::work::{process_cpu, thread_cpu, thread_cpu_of};

/// The example's application, in this process.
pub struct Application {
    pub address: SocketAddr,
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    _runtime: tokio::runtime::Runtime,
}

impl Application {
    /// With clients that keep it at work.
    pub fn at_work() -> Self {
        let mut application = Self::at_rest();
        let (address, is_over) = (application.address, &application.is_over);
        let clients = [(); 2].map(|()| {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    for (function, times) in FUNCTIONS {
                        for _ in 0..times {
                            let answer = ask(address, "POST", &format!("/{function}"), &text());
                            assert_eq!(answer.status, 200, "{}", answer.text());
                        }
                    }
                    // Half of the time is left to who asks for profiles, and to other tests.
                    std::thread::sleep(begin.elapsed());
                }
            })
        });
        application.clients.extend(clients);
        application
    }

    /// Without clients.
    pub fn at_rest() -> Self {
        Self::of(application())
    }

    fn of(router: Router) -> Self {
        Self::with_workers(router, 2)
    }

    /// With so many threads that wait for nothing else than what there is to do.
    fn with_workers(router: Router, workers: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build()
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        runtime.spawn(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
        Self {
            address,
            is_over: Arc::default(),
            clients: Vec::new(),
            _runtime: runtime,
        }
    }

    /// Runs `go tool pprof` with these options on what a path answers.
    fn go_pprof(&self, go: &PathBuf, options: &[&str], path: &str) -> Output {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(go);
        command.args(["tool", "pprof"]).args(options);
        command.arg(format!("http://{}{path}", self.address));
        command.env("PPROF_TMPDIR", directory.path());
        command.env("TZ", "UTC").env("DEBUGINFOD_URLS", "");
        run(&mut command)
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().unwrap();
        }
    }
}

/// The application's functions, and how often a client has each called in turn: without
/// optimization, sorting takes several times as long.
const FUNCTIONS: [(&str, u32); 2] = [("compress", 4), ("sort", 1)];

/// What clients send: more than 1 MB, so that each call takes longer than the time between two of
/// the scheduler's ticks. Shorter ones have fewer of a timer's samples than is right.
fn text() -> Vec<u8> {
    include_bytes!("../../Cargo.lock").repeat(64)
}

/// Checks a client's table, whose columns are flat, flat%, sum%, cum, cum% and name and whose
/// values are samples: the application's two functions have the shares that they have by the
/// thread's clock, as far as chance lets so many samples tell.
fn check_shares(table: &Output) {
    let samples = FUNCTIONS.map(|(function, _)| {
        let function = format!("http_server::{function}");
        let row = table.stdout.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let name = fields.get(5)?;
            // Perl's client leaves the hash of Rust's names.
            let (_, after) = name.split_once(&function)?;
            let is_its = after.is_empty() || after.starts_with("::h") && after.len() == 19;
            is_its.then(|| fields[3].parse::<f64>())
        });
        let Some(Ok(samples)) = row else {
            panic!("no {function}:\n{}\n{}", table.stdout, table.stderr);
        };
        samples
    });
    let text = text();
    let mut times = [Duration::ZERO; 2];
    for _ in 0..3 {
        for (time, (function, (_, calls))) in
            times.iter_mut().zip([compress, sort].iter().zip(FUNCTIONS))
        {
            let begin = thread_cpu();
            for _ in 0..calls {
                std::hint::black_box(function(&text));
            }
            *time += thread_cpu() - begin;
        }
    }
    let times = times.map(|time| time.as_secs_f64());
    let [share, by_clock] = [samples, times].map(|[compress, sort]| compress / (compress + sort));
    let deviation = (by_clock * (1.0 - by_clock) / samples.iter().sum::<f64>()).sqrt();
    // The processor's caches are not the same in both measurements.
    let most = 4.0 * deviation + 0.04;
    assert!(
        (share - by_clock).abs() <= most,
        "{share} of the samples, {by_clock} by the clock:\n{}",
        table.stdout
    );
}

#[test]
fn go_names_what_an_application_does() {
    let Some(go) = tool("go") else { return };
    let application = Application::at_work();
    let options = ["-top", "-cum", "-sample_index=samples"];
    let path = "/debug/pprof/profile?seconds=2&hz=1000";
    let top = application.go_pprof(&go, &options, path);
    assert!(top.stdout.contains("Type: samples"), "{}", top.stdout);
    check_shares(&top);
    let raw = application.go_pprof(&go, &["-raw"], "/debug/pprof/profile?seconds=1");
    assert!(raw.stdout.contains("samples/count cpu/nanoseconds[dflt]"));
    assert!(
        raw.stdout.contains("tokio"),
        "threads' names: {}",
        raw.stdout
    );
}

#[test]
fn go_asks_the_program_for_names_that_a_file_has_not() {
    let Some(go) = tool("go") else { return };
    let application = Application::at_work();
    let options = ["-symbolize=remote", "-top", "-cum", "-sample_index=samples"];
    let path = "/pprof/profile?seconds=2&hz=1000";
    check_shares(&application.go_pprof(&go, &options, path));
}

#[test]
fn google_pprof_names_what_an_application_does() {
    let Some(pprof) = tool("google-pprof") else {
        return;
    };
    if tool("curl").is_none() {
        return;
    }
    let application = Application::at_work();
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(pprof);
    command
        .args(["--text", "--cum", "--seconds=3"])
        .arg(application.address.to_string())
        .env("PPROF_TMPDIR", directory.path())
        .env("HOME", directory.path());
    check_shares(&run(&mut command));
}

#[test]
fn go_shows_the_programs_threads() {
    let Some(go) = tool("go") else { return };
    let application = Application::at_work();
    for kind in ["goroutine", "threadcreate"] {
        let path = format!("/debug/pprof/{kind}");
        let answer = ask(application.address, "GET", &path, b"");
        let profile = Profile::read(&answer.body).unwrap();
        assert!(profile.duration_nanos > 0);
        let threads = profile.total(0);
        // The test's, two clients, two of the runtime's, and that which answers, at least.
        assert!(threads >= 6, "{threads} threads");
        let top = application.go_pprof(&go, &["-top"], &path);
        assert!(
            top.stdout.contains(&format!("Type: {kind}")),
            "{}",
            top.stdout
        );
        // Where those wait that have nothing to do.
        let places = ["futex", "epoll_wait", "syscall", "read", "poll"];
        assert!(
            places.iter().any(|place| top.stdout.contains(place)),
            "{}",
            top.stdout
        );
    }
    let text = ask(
        application.address,
        "GET",
        "/debug/pprof/goroutine?debug=1",
        b"",
    );
    let text = text.text();
    assert!(text.lines().any(|line| line.contains("tokio")), "{text}");
    assert!(
        text.lines().any(|line| line.contains(" sigprof-http ")),
        "{text}"
    );
}

#[test]
fn an_applications_own_threads_do_none_of_the_work_that_takes_time() {
    // SAFETY: has no preconditions.
    let worker = get(async || unsafe { libc::gettid() }.to_string());
    let router = Router::new().route("/worker", worker);
    let application = Application::with_workers(router.merge(sigprof::http::router()), 1);
    let worker = ask(application.address, "GET", "/worker", b"");
    let worker = worker.text().parse().unwrap();
    let begin = (thread_cpu_of(worker).unwrap(), process_cpu());
    let code = ask as fn(_, _, _, _) -> _ as usize;
    let addresses: Vec<String> = (0..10_000)
        .map(|i| format!("{:#x}", code + 16 * i))
        .collect();
    let addresses = addresses.join("+");
    let requests = [
        ("POST", "/pprof/symbol", addresses.as_str()),
        ("GET", "/debug/pprof/profile?seconds=1&format=top", ""),
        ("GET", "/debug/pprof/goroutine", ""),
    ];
    for (method, path, body) in requests {
        let answer = ask(application.address, method, path, body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(!answer.body.is_empty(), "{path}");
    }
    let worker = thread_cpu_of(worker).unwrap() - begin.0;
    let all = process_cpu() - begin.1;
    // It takes requests apart, and passes answers on.
    assert!(worker < all / 4, "{worker:?} of {all:?}");
}

#[test]
fn an_application_has_the_endpoints_below_a_path() {
    let application = Router::new().without_v07_checks();
    let nested = application.nest("/{tenant}", sigprof::http::router());
    let literal = ["/{internal}", "/:a/*b", "/my%20service"];
    let routers = literal.map(|prefix| Options::new().prefix(prefix).router());
    let application = Application::of(routers.into_iter().fold(nested, Router::merge));
    let ask = |path: &str| ask(application.address, "GET", path, b"");
    for above in [&["/acme"][..], &literal].concat() {
        let index = ask(&format!("{above}/debug/pprof/"));
        assert_eq!(index.status, 200, "{above}");
        let profile = format!("{}{above}/debug/pprof/profile", application.address);
        assert!(index.text().contains(&profile), "{}", index.text());
        let nothing = ask(&format!("{above}/debug/pprof/nothing"));
        let place = format!("; {above}/debug/pprof/ lists");
        assert!(nothing.text().contains(&place), "{}", nothing.text());
    }
    let absent = ask("/acme/pprof/heap");
    let place = "; /acme/debug/pprof/ lists";
    assert!(absent.text().contains(place), "{}", absent.text());
    assert_eq!(ask("/internal/more/debug/pprof/").status, 404);
}
