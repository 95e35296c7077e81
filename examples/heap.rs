//! A heap profile: who allocated what is still in use. Run it; then, with the path that it prints:
//!
//!     cargo run --release --features heap --example heap
//!     go tool pprof -top heap.pb.gz

use std::collections::HashMap;
use std::hint::black_box;

#[global_allocator]
static ALLOCATOR: sigprof::heap::Allocator = sigprof::heap::Allocator::system();

/// Keeps 48 MiB.
fn fill_cache() -> HashMap<u64, Vec<u8>> {
    (0..48).map(|key| (key, vec![1; 1 << 20])).collect()
}

/// Allocates 160 MiB in small blocks, and frees all.
fn parse() {
    for _ in 0..10 {
        let words: Vec<String> = (0..100_000).map(|i| format!("{i:160}")).collect();
        black_box(words);
    }
}

fn main() -> sigprof::Result<()> {
    let cache = fill_cache();
    parse();
    let profile = sigprof::heap::profile()?;
    print!("{}", profile.top(5));
    let file = std::env::temp_dir().join("heap.pb.gz");
    profile.save(&file)?;
    println!("{}", file.display());
    black_box(cache);
    Ok(())
}
