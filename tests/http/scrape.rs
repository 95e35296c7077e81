//! A scraper's loop: the paths that Parca and Grafana Alloy ask for unless they are told not to,
//! and what they check.
//!
//! Source: Parca, `pkg/config/config.go` and `pkg/scrape/`; Grafana Alloy,
//! `internal/component/pyroscope/scrape/`, which wants the content type.

use std::process::Command;
use std::time::{Duration, Instant};

use sigprof::Profile;

use crate::application::Application;
use crate::client::ask;
use crate::process::soak;
use crate::support::{run, tool};

/// How often a scraper asks, and how long its CPU profiles are.
const INTERVAL: Duration = Duration::from_secs(10);
/// How often it has asked when a test is over.
const SCRAPES: f64 = 3.0;

/// Path below `/debug/pprof/`, and the sample types that scrapers know such a profile by.
const PROFILES: [(&str, &[&str]); 5] = [
    ("profile?seconds=10", &["samples", "cpu"]),
    (
        "allocs",
        &[
            "alloc_objects",
            "alloc_space",
            "inuse_objects",
            "inuse_space",
        ],
    ),
    ("goroutine", &["goroutine"]),
    ("block", &["contentions", "delay"]),
    ("mutex", &["contentions", "delay"]),
];

#[test]
fn every_scrape_is_a_valid_profile() {
    let application = Application::at_work();
    std::thread::scope(|scope| {
        for (path, types) in PROFILES {
            let application = &application;
            scope.spawn(move || {
                let begin = Instant::now();
                for number in 0..(SCRAPES * soak()) as u32 {
                    std::thread::sleep((INTERVAL * number).saturating_sub(begin.elapsed()));
                    scrape(application, path, types);
                }
            });
        }
    });
}

/// Asks once, and checks what a scraper checks.
///
/// # Panics
///
/// If a scraper would take the target for broken.
fn scrape(application: &Application, path: &str, types: &[&str]) {
    let path = format!("/debug/pprof/{path}");
    let answer = ask(application.address, "GET", &path, b"");
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    let content_type = answer.header("content-type");
    assert_eq!(content_type, Some("application/octet-stream"), "{path}");
    assert_eq!(answer.body[..2], [0x1f, 0x8b], "{path}: gzip");
    let profile = Profile::read(&answer.body).unwrap();
    let found = profile.sample_types().iter().map(|t| t.r#type.as_ref());
    assert_eq!(found.collect::<Vec<_>>(), types, "{path}");
    assert!(profile.time_nanos > 0, "{path}");
    assert!(profile.duration_nanos > 0, "{path}");
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scrape.pb.gz");
    std::fs::write(&file, &answer.body).unwrap();
    let mut command = Command::new(go);
    command.args(["tool", "pprof", "-raw"]).arg(&file);
    command.env("PPROF_TMPDIR", directory.path());
    let raw = run(&mut command).stdout;
    assert!(raw.contains(types[0]), "{path}: {raw}");
    if path.contains("/profile") {
        assert!(profile.total(1) > 0, "{path}");
        assert!(raw.contains("http_server::compress"), "{raw}");
    }
}
