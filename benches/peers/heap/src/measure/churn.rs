//! A program that does much with its memory, as compilers do: parses a large JSON file whole, and
//! builds and drops a B-tree.

use std::collections::{BTreeMap, btree_map};
use std::fmt::Write as _;
use std::fs;
#[cfg(feature = "counted")]
use std::hint::black_box;
use std::mem;
use std::path::Path;

use serde_json::Value;

use super::clock;
use super::pairs::{Pairs, order};
use crate::options::Options;
use crate::switched::set_profiled;
use crate::{Result, Results};

/// Objects in the file, of some 250 bytes each.
const RECORDS: usize = 40_000;

/// Keys of the tree.
const KEYS: usize = 200_000;

/// Parts that each of the four phases of a round is done in.
const PARTS: usize = 100;

pub fn run(options: &Options) -> Result<Results> {
    let path = std::env::temp_dir().join(format!("sigprof-churn-{}.json", std::process::id()));
    fs::write(&path, document()).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    let results = rounds(options, &path);
    // A file that stays behind is no reason to lose the figures.
    let _ = fs::remove_file(&path);
    results
}

/// Two rounds at a time, one with the profiler and one without, in turn by a part each, of a
/// millisecond or so: both have as much memory in use, and what is compared is next to each other.
/// A pair is all parts of both: in most of them no sample is taken, which a median would be of.
fn rounds(options: &Options, path: &Path) -> Result<Results> {
    let mut pairs = Pairs::default();
    for count in 0..=options.count {
        let mut rounds = [Round::read(path)?, Round::read(path)?];
        let mut costs = [0.0; 2];
        for is_profiled in order(4 * PARTS as u32) {
            set_profiled(is_profiled);
            let begin_ns = clock::thread_ns();
            // Which of the two has the profiler takes turns, as their memory is not the same.
            let which = (u32::from(is_profiled) + count) % 2;
            rounds[which as usize].work()?;
            costs[usize::from(is_profiled)] += (clock::thread_ns() - begin_ns) as f64;
        }
        // The first round does not count: it has the allocator take memory from the system.
        if count > 0 {
            for is_profiled in [false, true] {
                let cost = costs[usize::from(is_profiled)] / f64::from(4 * PARTS as u32);
                pairs.push(is_profiled, cost);
            }
        }
    }
    set_profiled(true);
    #[cfg_attr(
        not(feature = "counted"),
        allow(unused_mut, reason = "there is nothing to add")
    )]
    let mut results = pairs.results("part_ns", "alone_ns");
    #[cfg(feature = "counted")]
    {
        let mut round = Round::read(path)?;
        // What it has allocated is in use.
        (0..2 * PARTS).try_for_each(|_| round.work())?;
        results.extend(crate::estimate::held_against_truth("serde_json")?);
        drop(black_box(round));
    }
    Ok(results)
}

/// Reads the file, builds the tree, and drops both.
struct Round {
    file: Vec<u8>,
    /// How much of it is parsed.
    parsed: usize,
    objects: Vec<Value>,
    random: Random,
    tree: BTreeMap<u64, Box<[u8]>>,
    /// The tree as it is dropped.
    dropped: btree_map::IntoIter<u64, Box<[u8]>>,
    parts: usize,
}

impl Round {
    fn read(path: &Path) -> Result<Self> {
        Ok(Self {
            file: fs::read(path)?,
            parsed: 0,
            objects: Vec::new(),
            random: Random(1),
            tree: BTreeMap::new(),
            dropped: BTreeMap::new().into_iter(),
            parts: 0,
        })
    }

    /// Does the next part.
    fn work(&mut self) -> Result<()> {
        const { assert!(RECORDS.is_multiple_of(PARTS) && KEYS.is_multiple_of(PARTS)) };
        match self.parts / PARTS {
            0 => {
                let rest = serde_json::Deserializer::from_slice(&self.file[self.parsed..]);
                let mut objects = rest.into_iter();
                for object in objects.by_ref().take(RECORDS / PARTS) {
                    self.objects.push(object?);
                }
                self.parsed += objects.byte_offset();
            }
            1 => self.grow(),
            2 => {
                let left = self.objects.len().saturating_sub(RECORDS / PARTS);
                self.objects.truncate(left);
            }
            _ => {
                if !self.tree.is_empty() {
                    self.dropped = mem::take(&mut self.tree).into_iter();
                }
                self.dropped.by_ref().take(KEYS / PARTS).for_each(drop);
            }
        }
        self.parts += 1;
        Ok(())
    }

    /// Blocks of 8 B to 1 KiB, most of them small, under keys in no order.
    fn grow(&mut self) {
        for _ in 0..KEYS / PARTS {
            let key = self.random.next();
            let size = 8 << (self.random.next() % 64).trailing_zeros().min(7);
            self.tree.insert(key, vec![0; size].into());
        }
    }
}

fn document() -> String {
    let mut random = Random(2);
    let mut text = String::new();
    for id in 0..RECORDS {
        let (key, price) = (random.next(), random.next() % 100_000);
        let tags: Vec<String> = (0..random.next() % 6)
            .map(|tag| format!("\"tag-{}\"", (key >> tag) % 1000))
            .collect();
        let words = "a word of many ".repeat((key % 8) as usize);
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "{{\"id\":{id},\"key\":\"{key:016x}\",\"price\":{price}.25,\"tags\":[{}],\
             \"owner\":{{\"name\":\"user {}\",\"active\":{}}},\"description\":\"{words}\"}}",
            tags.join(","),
            key % 5000,
            key % 2 == 0,
        );
    }
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
