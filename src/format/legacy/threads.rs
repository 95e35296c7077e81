//! Thread profiles: the stack of each thread below a head of its own.
//!
//! ```text
//! --- threadz 1 ---
//!
//! --- Thread 7f794ab90940 (name: main/14748) stack: ---
//!   PC: 0x00bc8f1c: helper(arg *)
//!   creator: 0x0040be31 0x0040c213
//! ```
//!
//! Each hexadecimal number is an address, whatever stands around it.

use super::samples::Samples;
use super::scan::Scan;
use super::{Lines, Text, frames, is_before_mappings};
use crate::Result;
use crate::profile::{Profile, ValueType};

/// What errors call such a file.
const WHAT: &str = "thread profile";

pub(super) fn is_head(line: Text<'_>) -> bool {
    is_start(line) || is_thread(line)
}

/// `--- threadz N ---`
fn is_start(line: Text<'_>) -> bool {
    let mut scan = Scan::new(line, WHAT);
    scan.take("--- threadz ") && scan.number().is_ok() && scan.take("---")
}

/// `--- Thread HEX (name: NAME/N) stack: ---`
fn is_thread(line: Text<'_>) -> bool {
    let mut scan = Scan::new(line, WHAT);
    scan.take("--- Thread ")
        && !scan.word(|byte| byte.is_ascii_hexdigit()).is_empty()
        && scan.take("(name:")
        && line.bytes.ends_with(b") stack: ---")
}

pub(super) fn read(head: Text<'_>, mut lines: Lines<'_>, memory: u64) -> Result<Profile> {
    let mut profile = Profile::new(vec![ValueType::new("thread", "count")]);
    profile.period_type = ValueType::new("thread", "count");
    profile.period = 1;
    let mut samples = Samples::new(profile, memory);
    let mut next = Some(head);
    if is_start(head) {
        next = lines.find(|line| line.bytes.starts_with(b"-") || is_before_mappings(line.bytes));
    }
    // Threads that have the stack of the sample being read.
    let mut threads = 0;
    let mut addresses = Vec::new();
    while let Some(line) = next.filter(|line| !is_end(*line)) {
        if !is_thread(line) {
            return Err(line.refuse(WHAT, "is not the head of a thread"));
        }
        addresses.clear();
        next = read_addresses(&mut lines, &mut addresses)?;
        if addresses.is_empty() {
            threads += i64::from(threads > 0);
            continue;
        }
        if threads > 0 {
            samples.push(&[threads], &[])?;
        }
        threads = 1;
        for (depth, address) in addresses.iter().enumerate() {
            samples.push_address(*address, depth > 0)?;
        }
        // What took the stack may have seen the leaf in the thread's registers and on its stack.
        if let [leaf, second, ..] = addresses[..]
            && leaf == second
        {
            samples.stack.remove(1);
        }
    }
    if threads > 0 {
        samples.push(&[threads], &[])?;
    }
    let last = next.map_or(&[][..], |line| line.bytes);
    samples.finish(last, lines, frames::CPU_PROFILER)
}

/// Whether a line ends the threads.
fn is_end(line: Text<'_>) -> bool {
    is_before_mappings(line.bytes) || line.bytes.starts_with(b"---- no stack trace for")
}

/// Reads the addresses of a thread, none if they are those of the thread before, and returns the
/// line that follows them.
fn read_addresses<'t>(lines: &mut Lines<'t>, addresses: &mut Vec<u64>) -> Result<Option<Text<'t>>> {
    let mut is_same = false;
    let next = loop {
        let Some(line) = lines.next() else { break None };
        if line.bytes.starts_with(b"---") || is_before_mappings(line.bytes) {
            break Some(line);
        }
        let mut scan = Scan::new(line, WHAT);
        if scan.skip_past("same as previous thread") {
            is_same = true;
            continue;
        }
        while let Some(address) = scan.address()? {
            addresses.push(address);
        }
    };
    if is_same {
        addresses.clear();
    }
    Ok(next)
}
