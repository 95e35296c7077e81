//! `perf record` and the library watch the same program: both say where its time goes.
//!
//! Functions are told by their unwind tables, which a stripped library has, too: names, where one
//! reader finds them and the other does not, say nothing about samples.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::legacy::Legacy;
use crate::library::{library, plain};
use crate::process::{figure, output, skip, soak, succeed};
use crate::support::tool;

/// How far a function's shares may lie apart, in percent of the time.
const POINTS: f64 = 2.0;

/// Samples by code address, of code that lies in a file.
#[derive(Default)]
struct Samples {
    /// Range of addresses, offset in the file, file.
    mappings: Vec<(u64, u64, u64, PathBuf)>,
    addresses: Vec<(u64, u64)>,
}

impl Samples {
    /// What `perf script -F ip --show-mmap-events` prints.
    fn of_perf(text: &str) -> Self {
        let mut samples = Self::default();
        for line in text.lines() {
            if let Some((_, event)) = line.split_once("PERF_RECORD_MMAP2 ") {
                // `id/id: [0xSTART(0xLENGTH) @ 0xOFFSET device inode generation]: r-xp file`.
                let hex = |from: &str, to: &str| {
                    let number = event.split_once(from)?.1.split_once(to)?.0;
                    u64::from_str_radix(number.trim_start_matches("0x"), 16).ok()
                };
                let file = event
                    .rsplit_once("]: ")
                    .and_then(|(_, rest)| rest.split_once(' '));
                if let (Some(start), Some(length), Some((mode, file))) =
                    (hex("[", "("), hex("(", ")"), file)
                    && mode.contains('x')
                {
                    let offset = hex("@ ", " ").unwrap_or(0);
                    samples
                        .mappings
                        .push((start, start + length, offset, file.into()));
                }
            } else if let Some(ip) = line.split_whitespace().next() {
                let address = u64::from_str_radix(ip, 16).unwrap_or_else(|e| panic!("{line}: {e}"));
                samples.addresses.push((address, 1));
            }
        }
        samples
    }

    fn of_legacy(legacy: &Legacy) -> Self {
        let mut samples = Self::default();
        for line in legacy.text.lines() {
            // `start-end mode offset device inode file`.
            let words: Vec<&str> = line.split_whitespace().collect();
            let hex = |word: &str| u64::from_str_radix(word, 16).ok();
            if let [range, mode, offset, _, _, file] = words[..]
                && let Some((start, end)) = range.split_once('-')
                && let (Some(start), Some(end), Some(offset)) = (hex(start), hex(end), hex(offset))
                && mode.contains('x')
            {
                samples.mappings.push((start, end, offset, file.into()));
            }
        }
        let leaves = legacy.records.iter().map(|(count, pcs)| (pcs[0], *count));
        samples.addresses = leaves.collect();
        samples
    }

    /// The share of each function, in percent, by its file and where it begins there.
    fn shares(&self, functions: &mut Functions) -> BTreeMap<(PathBuf, u64), f64> {
        let mut counts = BTreeMap::new();
        let mut total = 0.0;
        for &(address, count) in &self.addresses {
            // The last one that was mapped there.
            let mut mappings = self.mappings.iter().rev();
            let mapping = mappings.find(|(start, end, ..)| (*start..*end).contains(&address));
            let Some((start, _, offset, file)) = mapping else {
                continue;
            };
            if !file.starts_with("/") || file.ends_with("libsigprof.so") {
                continue;
            }
            total += count as f64;
            let begin = functions.begin_of(file, address - start + offset);
            *counts.entry((file.clone(), begin)).or_insert(0.0) += count as f64;
        }
        counts
            .values_mut()
            .for_each(|count| *count *= 100.0 / total);
        counts
    }
}

/// Where functions begin, by their files.
struct Functions {
    readelf: PathBuf,
    files: BTreeMap<PathBuf, Vec<(u64, u64)>>,
}

impl Functions {
    /// The offset in a file at which the function begins that holds another offset; that one where
    /// nothing is known.
    fn begin_of(&mut self, file: &Path, offset: u64) -> u64 {
        let functions = match self.files.get(file) {
            Some(functions) => functions,
            None => {
                let functions = self.read(file);
                self.files.entry(file.into()).or_insert(functions)
            }
        };
        let after = functions.partition_point(|&(begin, _)| begin <= offset);
        let function = after.checked_sub(1).map(|before| functions[before]);
        match function {
            Some((begin, end)) if offset < end => begin,
            _ => offset,
        }
    }

    fn read(&self, file: &Path) -> Vec<(u64, u64)> {
        let readelf = |option: &str| {
            // Whose result says whether it has found a separate file of debug information, too.
            let mut readelf = Command::new(&self.readelf);
            let output = output(readelf.args(["--wide", option]).arg(file)).unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        // `LOAD offset address physical-address size-in-file …`.
        let segments: Vec<(u64, u64, u64)> = readelf("--segments")
            .lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                match words[..] {
                    ["LOAD", offset, address, _, size, ..] => {
                        Some((hex(offset)?, hex(address)?, hex(size)?))
                    }
                    _ => None,
                }
            })
            .collect();
        let offset_of = |address: u64| {
            let holds =
                |&&(_, start, size): &&(u64, u64, u64)| (start..start + size).contains(&address);
            let (offset, start, _) = segments.iter().find(holds)?;
            Some(address - start + offset)
        };
        // `… FDE cie=… pc=begin..end`.
        let mut functions: Vec<(u64, u64)> = readelf("--debug-dump=frames")
            .lines()
            .filter_map(|line| {
                let (begin, end) = line.split_once(" pc=")?.1.split_once("..")?;
                let (begin, end) = (hex(begin)?, hex(end.trim())?);
                let offset = offset_of(begin)?;
                Some((offset, offset + end - begin))
            })
            .collect();
        functions.sort_unstable();
        functions
    }
}

#[test]
fn perf_and_the_library_see_the_same_functions() {
    let (Some(xz), Some(readelf)) = (tool("xz"), tool("readelf")) else {
        return;
    };
    // Whose version is to be the kernel's, with some distributions: no tool that can be asked for.
    let perf = Path::new("perf");
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // Some seconds of work in a soak, so that chance moves a share by less than half a point.
    let numbers = (300_000.0 * soak() * soak()) as u32;
    let text: String = (0..numbers)
        .map(|i| format!("{} ", i.wrapping_mul(2_654_435_761) >> (i % 7)))
        .collect();
    std::fs::write(directory.join("input"), text).unwrap();
    let preload = format!("LD_PRELOAD={}", library().display());
    let mut record = plain(perf);
    record
        .args([
            "record",
            "-e",
            "task-clock:u",
            "-c",
            "1000000",
            "-o",
            "perf.data",
        ])
        .args(["--", "env", &preload, "CPUPROFILE=cpu.prof"])
        .arg("CPUPROFILE_FREQUENCY=1000")
        .arg(xz)
        .args(["-9", "-T2", "--block-size=4MiB", "--keep", "input"])
        .current_dir(directory);
    match output(&mut record) {
        Ok(recorded) if recorded.status.success() => {}
        Ok(recorded) => {
            let said = String::from_utf8_lossy(&recorded.stderr);
            return skip(&format!("perf cannot record here: {}", said.trim_end()));
        }
        Err(error) => return skip(&format!("perf cannot be run here: {error}")),
    }
    let mut script = plain(perf);
    script
        .args([
            "script",
            "-i",
            "perf.data",
            "--show-mmap-events",
            "-F",
            "ip",
        ])
        .current_dir(directory);
    let script = String::from_utf8(succeed(&mut script).stdout).unwrap();
    let legacy = Legacy::read(&directory.join("cpu.prof"));

    let mut functions = Functions {
        readelf,
        files: BTreeMap::new(),
    };
    let theirs = Samples::of_perf(&script).shares(&mut functions);
    let ours = Samples::of_legacy(&legacy).shares(&mut functions);
    let mut top: Vec<_> = theirs.iter().collect();
    top.sort_by(|a, b| b.1.total_cmp(a.1));
    let mut furthest = 0.0_f64;
    for (function, share) in top.into_iter().take(10) {
        let our_share = ours.get(function).copied().unwrap_or(0.0);
        let (file, begin) = function;
        figure!(
            "{share:.2} % by perf, {our_share:.2} % by sigprof: {}+{begin:#x}",
            file.display()
        );
        furthest = furthest.max((share - our_share).abs());
    }
    figure!(
        "{furthest:.2} points at most, of {} samples",
        legacy.counted()
    );
    // What few samples say is for whoever looks at the figures.
    if soak() > 1.0 {
        assert!(furthest <= POINTS, "{furthest} points apart");
    }
}
