//! An application of axum's, asked by its own clients and by those that want profiles.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use axum::Router;
use sigprof::Profile;
use sigprof::http::Options;

use crate::client::ask;
use crate::http_server::application;
use crate::support::{Output, run, tool};

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
        let clients = ["/compress", "/hash"].map(|path| {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                let text = include_bytes!("../../Cargo.lock").repeat(8);
                while !is_over.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    let answer = ask(address, "POST", path, &text);
                    assert_eq!(answer.status, 200, "{}", answer.text());
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
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
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

#[test]
fn go_names_what_an_application_does() {
    let Some(go) = tool("go") else { return };
    let application = Application::at_work();
    let top = application.go_pprof(&go, &["-top", "-cum"], "/debug/pprof/profile?seconds=2");
    assert!(
        top.stdout.contains("http_server::compress"),
        "{}",
        top.stdout
    );
    assert!(top.stdout.contains("Type: cpu"), "{}", top.stdout);
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
    let options = ["-symbolize=remote", "-top", "-cum"];
    let top = application.go_pprof(&go, &options, "/pprof/profile?seconds=2");
    assert!(
        top.stdout.contains("http_server::compress"),
        "{}\n{}",
        top.stdout,
        top.stderr
    );
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
        .args(["--text", "--cum", "--seconds=2"])
        .arg(application.address.to_string())
        .env("PPROF_TMPDIR", directory.path())
        .env("HOME", directory.path());
    let said = run(&mut command);
    assert!(
        said.stdout.contains("http_server::compress"),
        "{}\n{}",
        said.stdout,
        said.stderr
    );
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
