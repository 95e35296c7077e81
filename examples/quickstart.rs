//! Profiles itself at real work: threads with names compress this program's own executable, sort
//! the result, and hash that.
//!
//!     cargo run --release --example quickstart

use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use flate2::{Compression, write::GzEncoder};
use sigprof::cpu::Profiler;

fn main() -> Result<(), Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let directory = Path::new("target/quickstart");
    std::fs::create_dir_all(directory)?;

    let recording = Profiler::new().frequency_hz(1000).start()?;
    let hash = work(&std::fs::read(&program)?, Duration::from_secs(2))?;
    let profile = recording.stop()?;

    let (pprof, gperftools) = (directory.join("cpu.pb.gz"), directory.join("cpu.prof"));
    profile.save(&pprof)?;
    profile.save(&gperftools)?;

    println!("The hash is {hash:016x}. What it cost:\n");
    println!("{}", profile.top(12));
    println!("To look further, in a browser, by thread, or with gperftools' own reader:");
    println!("  go tool pprof -http=: {}", pprof.display());
    println!("  go tool pprof -tags {}", pprof.display());
    println!(
        "  google-pprof --text {} {}",
        program.display(),
        gperftools.display()
    );
    Ok(())
}

/// Works for about as long as `time` says: the pieces go from two threads that compress to one that
/// sorts to one that hashes.
fn work(program: &[u8], time: Duration) -> std::io::Result<u64> {
    let end = Instant::now() + time;
    let pieces = Mutex::new(program.chunks(64 * 1024).cycle());
    let next = || {
        let mut pieces = pieces
            .lock()
            .expect("a thread that takes a piece does not panic");
        pieces.next().filter(|_| Instant::now() < end)
    };
    let (compressed, to_sort) = sync_channel(1);
    let (sorted, to_hash) = sync_channel(1);

    let thread = |name: &str| thread::Builder::new().name(name.into());
    thread::scope(|scope| {
        for name in ["compress-1", "compress-2"] {
            let compressed = compressed.clone();
            thread(name).spawn_scoped(scope, move || compress(next, compressed))?;
        }
        drop(compressed);
        thread("sort").spawn_scoped(scope, move || sort(to_sort, sorted))?;
        let hash = thread("hash").spawn_scoped(scope, move || hash(to_hash))?;
        Ok(hash.join().expect("hashing does not panic"))
    })
}

fn compress<'p>(next: impl Fn() -> Option<&'p [u8]>, compressed: SyncSender<Vec<u8>>) {
    while let Some(piece) = next() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let written = encoder.write_all(piece).and_then(|()| encoder.finish());
        let bytes = written.expect("memory takes all that is written to it");
        if compressed.send(bytes).is_err() {
            return;
        }
    }
}

/// The places in the bytes, in the order of what begins there: a suffix array.
fn sort(compressed: Receiver<Vec<u8>>, sorted: SyncSender<Vec<usize>>) {
    for bytes in compressed {
        let mut suffixes: Vec<usize> = (0..bytes.len()).collect();
        suffixes.sort_unstable_by_key(|&start| &bytes[start..]);
        if sorted.send(suffixes).is_err() {
            return;
        }
    }
}

fn hash(sorted: Receiver<Vec<usize>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for suffixes in sorted {
        suffixes.hash(&mut hasher);
    }
    hasher.finish()
}
