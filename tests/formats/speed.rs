//! How long a large profile takes. Run with
//! `cargo test --release --test formats -- --ignored --nocapture speed`.

use sigprof::{Format, Profile};

use crate::large::large;
use crate::work::thread_cpu;

/// The most memory that the process ever held, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

#[test]
#[ignore = "takes seconds and means something in a release build only"]
fn a_million_samples() {
    let profile = large(1_000_000, 100_000, 64);
    for format in [Format::Pprof, Format::PprofUncompressed, Format::CpuProfile] {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = peak_mib();
        let mut bytes = Vec::with_capacity(200 << 20); // its pages do not count until they are written
        let start = thread_cpu();
        profile.write(format, &mut bytes).unwrap();
        let written = thread_cpu() - start;
        let peak = peak_mib() - before - (bytes.len() >> 20) as u64;
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = peak_mib();
        let start = thread_cpu();
        let back = Profile::read(&bytes).unwrap();
        eprintln!(
            "{format:?}: {:.1} MB, written in {written:.2?} with {peak} MiB, read in {:.2?} with {} MiB",
            bytes.len() as f64 / 1e6,
            thread_cpu() - start,
            peak_mib() - before
        );
        assert_eq!(back.total(0), 1_000_000);
    }
}
