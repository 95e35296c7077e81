//! An application of axum's whose requests all need one lock.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract;
use axum::routing::get;
use sigprof::{Profile, contention};

use crate::below::sums_below;
use crate::client::ask;
use crate::endpoints::client;
use crate::locks::stays_on_the_stack;
use crate::modules::{assert_same, words};
use crate::process;
use crate::support::tool;

const WORKERS: usize = 4;
const CLIENTS: usize = 8;

/// How often the hot lock is found held before the profiles are asked for.
const CONTENDED: usize = 300;

/// What all requests change, and how often it was found held.
static VISITS: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());
static VISITS_HELD: AtomicUsize = AtomicUsize::new(0);

/// What only one in sixteen requests reads.
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

async fn visit(extract::Path(visitor): extract::Path<usize>) -> String {
    if visitor.is_multiple_of(16) {
        adds_name(visitor);
    }
    format!("{}\n", counts_visit(visitor))
}

#[inline(never)]
fn counts_visit(visitor: usize) -> u64 {
    if VISITS.try_lock().is_err() {
        VISITS_HELD.fetch_add(1, Ordering::Relaxed);
    }
    let mut visits = VISITS.lock().unwrap();
    // Far more than belongs below a lock.
    for nth in 0..2_000 {
        *visits.entry(black_box(nth)).or_default() += 1;
    }
    let count = visits.entry(visitor).or_default();
    *count += 1;
    let count = *count;
    drop(visits);
    stays_on_the_stack();
    count
}

#[inline(never)]
fn adds_name(visitor: usize) {
    NAMES.lock().unwrap().push(visitor.to_string());
    stays_on_the_stack();
}

/// Has the application answer requests until its lock was found held often enough, and calls a
/// function beside them.
fn under_load(then: impl FnOnce(SocketAddr)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let router = Router::new()
        .route("/visit/{visitor}", get(visit))
        .merge(sigprof::http::router());
    runtime.spawn(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        axum::serve(listener, router).await.unwrap();
    });
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                for visitor in client.. {
                    let answer = ask(address, "GET", &format!("/visit/{visitor}"), b"");
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    if VISITS_HELD.load(Ordering::Relaxed) >= CONTENDED {
                        break;
                    }
                }
            });
        }
    });
    then(address);
}

#[test]
fn the_hot_lock_of_an_application_is_on_top() {
    // With nothing that is looked up at its first call: that would change words, too.
    let mut child = process::child("application::child_with_a_hot_lock");
    process::succeed_and_show(child.env("LD_BIND_NOW", "1"));
}

#[test]
#[ignore = "a child process"]
fn child_with_a_hot_lock() {
    let before = words();
    let watch = contention::watch_process().unwrap();
    let during = words();
    under_load(|address| {
        for kind in ["block", "mutex", "contention"] {
            let path = format!("/debug/pprof/{kind}");
            let answer = ask(address, "GET", &path, b"");
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_on_top(&Profile::read(&answer.body).unwrap(), &path);
            if let Some(go) = tool("go") {
                assert_first_of_go(&go, &format!("http://{address}{path}"));
            }
        }
    });
    drop(watch);
    let after = words();
    assert_ne!(before, during);
    assert_same(&before, &after);
}

/// Most of what the default view shows is of the hot lock.
fn assert_on_top(profile: &Profile, path: &str) {
    let delay = |function| sums_below(profile, function)[1];
    let (hot, all) = (delay("counts_visit"), profile.total(1));
    process::figure!("{path}: {hot} ns of {all} ns");
    assert!(2 * hot > all, "{path}: {hot} of {all}\n{}", profile.top(20));
    assert!(delay("adds_name") < hot / 2, "{path}\n{}", profile.top(20));
}

/// Of the application's own functions, the first row of a table is that with the hot lock.
fn assert_first_of_go(go: &Path, url: &str) {
    let options = ["tool", "pprof", "-top", "-show=^contention::"];
    let table = client(go, &options, url.into());
    let mut rows = table.lines().skip_while(|row| !row.contains("flat%"));
    let first = rows.nth(1).unwrap_or_default();
    assert!(first.contains("counts_visit"), "{table}");
}
