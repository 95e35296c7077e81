//! A program that does much with its memory, as compilers do: reads a large JSON file whole, and
//! builds and drops a B-tree.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;

use serde_json::Value;

use super::{clock, median};
use crate::options::Options;
use crate::{Result, Results};

/// Objects in the file, of some 250 bytes each.
const RECORDS: u32 = 40_000;

/// Keys of the tree.
const KEYS: u64 = 200_000;

/// What a round has at its end.
type Held = (Value, BTreeMap<u64, Box<[u8]>>);

pub fn run(options: &Options) -> Result<Results> {
    let path = std::env::temp_dir().join(format!("sigprof-churn-{}.json", std::process::id()));
    fs::write(&path, document()).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    let results = rounds(options, &path);
    // A file that stays behind is no reason to lose the figures.
    let _ = fs::remove_file(&path);
    results
}

fn rounds(options: &Options, path: &Path) -> Result<Results> {
    let mut round_ns = Vec::new();
    // One that does not count: it has the allocator take memory from the system.
    drop(round(path)?);
    for _ in 0..options.count {
        let begin_ns = clock::process_ns();
        drop(black_box(round(path)?));
        round_ns.push((clock::process_ns() - begin_ns) as f64);
    }
    #[cfg_attr(
        not(feature = "counted"),
        allow(unused_mut, reason = "there is nothing to add")
    )]
    let mut results = vec![("round_ns", median(&mut round_ns))];
    #[cfg(feature = "counted")]
    {
        let held = round(path)?;
        results.extend(crate::estimate::held_against_truth("serde_json")?);
        drop(black_box(held));
    }
    Ok(results)
}

fn round(path: &Path) -> Result<Held> {
    let document = serde_json::from_slice(&fs::read(path)?)?;
    Ok((document, tree()))
}

/// Blocks of 8 B to 1 KiB, most of them small, under keys in no order.
fn tree() -> BTreeMap<u64, Box<[u8]>> {
    let mut random = Random(1);
    (0..KEYS)
        .map(|_| {
            let key = random.next();
            let size = 8 << (random.next() % 64).trailing_zeros().min(7);
            (key, vec![0; size].into())
        })
        .collect()
}

fn document() -> String {
    let mut random = Random(2);
    let mut text = String::from("[");
    for id in 0..RECORDS {
        let separator = if id == 0 { "" } else { "," };
        let (key, price) = (random.next(), random.next() % 100_000);
        let tags: Vec<String> = (0..random.next() % 6)
            .map(|tag| format!("\"tag-{}\"", (key >> tag) % 1000))
            .collect();
        let words = "a word of many ".repeat((key % 8) as usize);
        // Writing to a text does not fail.
        let _ = write!(
            text,
            "{separator}{{\"id\":{id},\"key\":\"{key:016x}\",\"price\":{price}.25,\"tags\":[{}],\
             \"owner\":{{\"name\":\"user {}\",\"active\":{}}},\"description\":\"{words}\"}}",
            tags.join(","),
            key % 5000,
            key % 2 == 0,
        );
    }
    text.push(']');
    text
}

/// Marsaglia's xorshift64: the same numbers in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
