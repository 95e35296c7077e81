//! gmon.out files of others: read, and written back as they were.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use sigprof::format::Gmon;
use sigprof::{ErrorKind, Format, Profile};

use crate::process::{output, skip};
use crate::support::{run, tool};

fn written(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write(format, &mut bytes).unwrap();
    bytes
}

/// Bytes before the records.
const HEADER: usize = 20;

/// A program that the C library profiles: what is called how often is known, and that it takes
/// long enough for some samples.
const PROGRAM: &str = r#"
#include <time.h>
static volatile unsigned long sink;
__attribute__((noinline)) void inner(long turns) {
  for (long turn = 0; turn < turns; turn++) sink += turn * sink;
}
__attribute__((noinline)) void outer(long turns) { inner(turns); inner(2 * turns); }
int main(void) {
  for (int i = 0; i < 7; i++) outer(1);
  /* Until the clock of the profile has ticked often enough. */
  while (clock() < CLOCKS_PER_SEC / 2) inner(100000);
  return 0;
}
"#;

/// How the program is made.
const FLAGS: [&str; 3] = ["-no-pie", "-pie", "-m32"];

/// The program, and the file that the C library has written for it; `None` where programs cannot be
/// made with that flag and run here.
fn profiled_by_the_c_library(
    gcc: &Path,
    directory: &Path,
    flag: &str,
) -> Option<(PathBuf, PathBuf)> {
    std::fs::write(directory.join("program.c"), PROGRAM).unwrap();
    let mut compile = Command::new(gcc);
    compile.args([
        "-pg",
        "-O1",
        "-g",
        "-Wl,--build-id",
        flag,
        "-o",
        "program",
        "program.c",
    ]);
    let program = directory.join("program");
    let succeeds = |command: &mut Command| {
        let output = output(command.current_dir(directory));
        output.is_ok_and(|output| output.status.success())
    };
    if flag != "-m32" {
        run(compile.current_dir(directory));
        run(Command::new(&program).current_dir(directory));
    } else if !succeeds(&mut compile) || !succeeds(&mut Command::new(&program)) {
        skip("programs of 32 bits cannot be made and run here");
        return None;
    }
    Some((program, directory.join("gmon.out")))
}

#[test]
fn a_file_of_the_c_library_and_one_of_gprof_are_written_back_byte_for_byte() {
    let (Some(gcc), Some(gprof)) = (tool("gcc"), tool("gprof")) else {
        return;
    };
    for flag in FLAGS {
        let directory = tempfile::tempdir().unwrap();
        let made = profiled_by_the_c_library(&gcc, directory.path(), flag);
        let Some((program, file)) = made else {
            continue;
        };
        let mut sum = Command::new(&gprof);
        sum.arg("-s").arg(&program).args([&file, &file]);
        run(sum.current_dir(directory.path()));
        for file in [file, directory.path().join("gmon.sum")] {
            let bytes = std::fs::read(&file).unwrap();
            for profile in [
                Profile::open(&file).unwrap(),
                Gmon::read(&bytes, &program).unwrap(),
            ] {
                assert!(profile.total(0) > 0 && profile.total(2) > 0, "{profile}");
                // profile.proto keeps what makes the records.
                let through = Profile::read(&written(&profile, Format::Pprof)).unwrap();
                for profile in [profile, through] {
                    let again = written(&profile, Format::Gmon);
                    assert_eq!(again[..HEADER], [&b"gmon\x01"[..], &[0; 15]].concat());
                    // gprof leaves what is spare in the header as its memory was.
                    let is_same = again[HEADER..] == bytes[HEADER..];
                    assert!(is_same, "{flag} {}", file.display());
                }
            }
        }
    }
}

#[test]
#[cfg(feature = "symbolize")]
fn names_come_from_the_executable_that_is_given() {
    let (Some(gcc), Some(gprof)) = (tool("gcc"), tool("gprof")) else {
        return;
    };
    for flag in FLAGS {
        let directory = tempfile::tempdir().unwrap();
        let made = profiled_by_the_c_library(&gcc, directory.path(), flag);
        let Some((program, file)) = made else {
            continue;
        };
        // As a person gives it, who is where the program is.
        std::env::set_current_dir(directory.path()).unwrap();
        let mut profile = Gmon::read(&std::fs::read(&file).unwrap(), "./program").unwrap();
        sigprof::symbolize::symbolize(&mut profile);
        let name = |id: &sigprof::profile::LocationId| {
            let line = profile.location(*id).lines.last();
            line.map_or("", |line| {
                profile.string(profile.function(line.function).name)
            })
        };
        // The calls that gprof counts.
        let calls_of = |callee: &str, caller: &str| -> i64 {
            let samples = profile.samples();
            let is_it = |stack: &[_]| match stack {
                [leaf, from] => name(leaf) == callee && name(from) == caller,
                _ => false,
            };
            samples
                .filter(|s| is_it(s.stack))
                .map(|s| s.values[2])
                .sum()
        };
        assert_eq!(calls_of("outer", "main"), 7, "{profile}");
        assert_eq!(calls_of("inner", "outer"), 14, "{profile}");
        // The function that all of the time is spent in: bins of four bytes begin in the function
        // before, at most.
        let samples = profile.samples().filter(|s| s.stack.len() == 1);
        let inner: i64 = samples
            .filter(|s| name(&s.stack[0]) == "inner")
            .map(|s| s.values[0])
            .sum();
        let text = run(Command::new(&gprof)
            .args(["-b", "-p"])
            .args([&program, &file]))
        .stdout;
        let row = text.lines().find(|line| line.ends_with(" inner")).unwrap();
        let seconds: f64 = row.split_whitespace().nth(2).unwrap().parse().unwrap();
        assert!(
            (inner as f64 / 100.0 - seconds).abs() < 0.05,
            "{inner}\n{text}"
        );
    }
}

#[test]
fn an_executable_that_is_none_is_an_error_that_names_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes = Records::default().bytes(NATIVE);
    let error = Gmon::read(&bytes, file.path()).unwrap_err();
    assert!(error.to_string().contains("no executable"), "{error}");
    let error = Gmon::read(&bytes, "/nowhere/program").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("/nowhere/program"), "{error}");
}

/// How numbers are stored: bytes of an address, and whether the highest byte comes first.
type Layout = (usize, bool);
const LAYOUTS: [Layout; 4] = [(8, false), (8, true), (4, false), (4, true)];
const NATIVE: Layout = (size_of::<usize>(), cfg!(target_endian = "big"));

/// A file by hand.
#[derive(Clone, Debug, Default)]
struct Records {
    /// First address, bytes of code of a bin, bins.
    histograms: Vec<(u32, u32, Vec<u16>)>,
    arcs: Vec<(u32, u32, u32)>,
    blocks: Option<Vec<(u32, u32)>>,
}

/// Numbers one after the other.
struct Numbers(Vec<u8>, Layout);

impl Numbers {
    fn put(&mut self, size: usize, number: u64) {
        let Self(bytes, (_, is_big_endian)) = self;
        match is_big_endian {
            true => bytes.extend_from_slice(&number.to_be_bytes()[8 - size..]),
            false => bytes.extend_from_slice(&number.to_le_bytes()[..size]),
        }
    }

    fn put_address(&mut self, address: u32) {
        self.put(self.1.0, address.into());
    }

    fn put_text(&mut self, text: &str, size: usize) {
        self.0.extend_from_slice(text.as_bytes());
        self.0.resize(self.0.len() + size - text.len(), 0);
    }
}

impl Records {
    fn bytes(&self, layout: Layout) -> Vec<u8> {
        let mut file = Numbers(Vec::new(), layout);
        file.put_text("gmon", 4);
        file.put(4, 1);
        file.put_text("", 12);
        for (low, width, bins) in &self.histograms {
            file.put(1, 0);
            file.put_address(*low);
            file.put_address(low + width * bins.len() as u32);
            file.put(4, bins.len() as u64);
            file.put(4, 100);
            file.put_text("seconds", 15);
            file.put_text("s", 1);
            bins.iter().for_each(|bin| file.put(2, (*bin).into()));
        }
        for &(from, to, count) in &self.arcs {
            file.put(1, 1);
            file.put_address(from);
            file.put_address(to);
            file.put(4, count.into());
        }
        if let Some(blocks) = &self.blocks {
            file.put(1, 2);
            file.put(4, blocks.len() as u64);
            for &(address, count) in blocks {
                file.put_address(address);
                file.put_address(count);
            }
        }
        file.0
    }

    /// BSD's form: the first histogram and the arcs.
    fn bsd_bytes(&self, layout: Layout, has_rate: bool) -> Vec<u8> {
        let mut file = Numbers(Vec::new(), layout);
        let (low, width, bins) = &self.histograms[0];
        let header = 2 * layout.0 + if has_rate { 24 } else { 4 };
        file.put_address(*low);
        file.put_address(low + width * bins.len() as u32);
        file.put(4, (header + 2 * bins.len()) as u64);
        if has_rate {
            file.put(4, 0x51879);
            file.put(4, 50);
            file.put_text("", 12);
        }
        assert_eq!(file.0.len(), header);
        bins.iter().for_each(|bin| file.put(2, (*bin).into()));
        for &(from, to, count) in &self.arcs {
            file.put_address(from);
            file.put_address(to);
            file.put_address(count);
        }
        file.0
    }
}

fn by_hand() -> Records {
    Records {
        histograms: vec![(0x1000, 4, vec![0, 3, 0, 65_535]), (0x2000, 4, vec![0, 1])],
        arcs: vec![
            (0x1002, 0x1008, 5),
            (0x2001, 0x1008, u32::MAX),
            (0, 0x1000, 1),
        ],
        blocks: Some(vec![(0x1004, 9), (0x1008, 0)]),
    }
}

/// The same in several forms.
pub fn bytes_by_hand() -> Vec<Vec<u8>> {
    let records = by_hand();
    vec![
        records.bytes(NATIVE),
        records.bytes(LAYOUTS[3]),
        records.bsd_bytes(NATIVE, false),
        records.bsd_bytes(NATIVE, true),
    ]
}

/// Addresses of the stacks, leaf first, and the values.
fn samples(profile: &Profile) -> Vec<(Vec<u64>, Vec<i64>)> {
    let address = |id: &sigprof::profile::LocationId| profile.location(*id).address;
    let samples = profile.samples();
    samples
        .map(|s| (s.stack.iter().map(address).collect(), s.values.to_vec()))
        .collect()
}

#[test]
fn each_record_becomes_samples_of_its_own_type() {
    let profile = Profile::read(&by_hand().bytes(NATIVE)).unwrap();
    let types: Vec<String> = profile
        .sample_types()
        .iter()
        .map(|t| format!("{}/{}", t.r#type, t.unit))
        .collect();
    assert_eq!(
        types,
        [
            "samples/count",
            "cpu/nanoseconds",
            "calls/count",
            "blocks/count"
        ]
    );
    assert_eq!(profile.default_sample_type, "cpu");
    assert_eq!(profile.period, 10_000_000);
    const TICK: i64 = 10_000_000;
    let expected: [(&[u64], [i64; 4]); 8] = [
        (&[0x1004], [3, 3 * TICK, 0, 0]),
        (&[0x100c], [65_535, 65_535 * TICK, 0, 0]),
        (&[0x2004], [1, TICK, 0, 0]),
        (&[0x1008, 0x1002], [0, 0, 5, 0]),
        (&[0x1008, 0x2001], [0, 0, u32::MAX.into(), 0]),
        (&[0x1000, 0], [0, 0, 1, 0]),
        (&[0x1004], [0, 0, 0, 9]),
        (&[0x1008], [0, 0, 0, 0]),
    ];
    let expected = expected.map(|(stack, values)| (stack.to_vec(), values.to_vec()));
    assert_eq!(samples(&profile), expected);
    assert_eq!(written(&profile, Format::Gmon), by_hand().bytes(NATIVE));
}

/// A profile of a file of this layout, without the comment that says so, by which it is written
/// back in the same.
fn read_in(layout: Layout, bytes: &[u8]) -> Profile {
    let mut profile = Profile::read(bytes).unwrap();
    let is_of_layout = |comment: &String| comment.starts_with("gmon.out words: ");
    let has_comment = profile.comments.iter().any(is_of_layout);
    assert_eq!(has_comment, layout != NATIVE, "{layout:?}");
    profile.comments.retain(|comment| !is_of_layout(comment));
    profile
}

#[test]
fn all_word_sizes_and_orders_of_bytes_read_the_same_and_are_written_back_as_they_were() {
    let expected = Profile::read(&by_hand().bytes(NATIVE)).unwrap();
    for layout in LAYOUTS {
        let bytes = by_hand().bytes(layout);
        assert_eq!(read_in(layout, &bytes), expected, "{layout:?}");
        // gprof takes the version 0, too.
        let version_0 = [&bytes[..4], &[0; 4], &bytes[8..]].concat();
        assert_eq!(read_in(layout, &version_0), expected, "{layout:?}");
        let profile = Profile::read(&bytes).unwrap();
        let through = Profile::read(&written(&profile, Format::Pprof)).unwrap();
        assert!(written(&through, Format::Gmon) == bytes, "{layout:?}");
    }
}

#[test]
fn the_forms_of_bsd_are_read() {
    let records = Records {
        histograms: vec![(0x1000, 4, vec![0, 3, 0, 65_535])],
        arcs: vec![(0x1002, 0x1008, 5), (0, 0x1000, 1)],
        blocks: None,
    };
    let expected = Profile::read(&records.bytes(NATIVE)).unwrap();
    for layout in LAYOUTS {
        let old = read_in(layout, &records.bsd_bytes(layout, false));
        assert_eq!(old, expected, "{layout:?}");
        let with_rate = Profile::read(&records.bsd_bytes(layout, true)).unwrap();
        assert_eq!(with_rate.period, 20_000_000, "{layout:?}");
        let values = |profile| {
            samples(profile)
                .into_iter()
                .map(|(stack, v)| (stack, v[0], v[2]))
        };
        assert!(values(&with_rate).eq(values(&expected)), "{layout:?}");
    }
}

#[test]
fn records_come_in_any_order_and_number() {
    let bytes = by_hand().bytes(NATIVE);
    let only = |histograms: Range<usize>, arcs: Range<usize>, blocks: Range<usize>| {
        let mut records = by_hand();
        records.histograms = records.histograms[histograms].to_vec();
        records.arcs = records.arcs[arcs].to_vec();
        records.blocks = records.blocks.map(|b| b[blocks].to_vec());
        let mut bytes = records.bytes(NATIVE);
        bytes.drain(..HEADER);
        bytes
    };
    let mut parts = [
        bytes[..HEADER].to_vec(),
        only(0..0, 0..1, 0..1),
        only(0..1, 1..2, 1..2),
        only(1..2, 2..3, 0..0),
    ];
    let expected = Profile::read(&bytes).unwrap();
    assert_eq!(Profile::read(&parts.concat()).unwrap(), expected);
    // Equal ranges add up: as histograms, where a bin has more than one holds.
    parts[1] = only(0..1, 0..1, 0..1);
    let twice = Profile::read(&parts.concat()).unwrap();
    assert_eq!(
        samples(&twice)[..2].iter().map(|(_, v)| v[0]).sum::<i64>(),
        2 * (65_535 + 3)
    );
    assert_eq!(
        Profile::read(&written(&twice, Format::Gmon)).unwrap(),
        twice
    );
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let bytes = by_hand().bytes(NATIVE);
    let with = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let overlapping = Records {
        histograms: vec![(0x1000, 4, vec![0; 4]), (0x100c, 4, vec![1, 2])],
        ..Records::default()
    };
    let cases = [
        (bytes[..10].to_vec(), "byte 4 "),
        (with(4, &[9, 0, 0, 0]), "unknown version 9"),
        (with(20, &[7]), "at byte 20 a record of the unknown kind 7"),
        (
            bytes[..bytes.len() - 1].to_vec(),
            "basic blocks that is not whole",
        ),
        (
            bytes[..60].to_vec(),
            "at byte 20 begins a histogram that is not whole",
        ),
        (with(45, &[1]), "dimension is no text"),
        (with(45 + 49, b"bytes"), "in bytesds, after one in seconds"),
        (
            overlapping.bytes(NATIVE),
            "overlap: 0x1000 to 0x1010, and 0x100c to 0x1014",
        ),
    ];
    for (bytes, expected) in cases {
        let error = Profile::read(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(
            error.to_string().contains(expected),
            "`{expected}` in: {error}"
        );
    }
}

#[test]
fn records_without_a_histogram_are_read_in_each_layout() {
    let all = by_hand();
    let arcs = Records {
        arcs: all.arcs.clone(),
        ..Records::default()
    };
    let blocks = Records {
        blocks: all.blocks.clone(),
        ..Records::default()
    };
    let both = Records {
        histograms: Vec::new(),
        ..all
    };
    for records in [arcs, blocks, both] {
        let expected = Profile::read(&records.bytes(NATIVE)).unwrap();
        for layout in LAYOUTS {
            let read = read_in(layout, &records.bytes(layout));
            assert_eq!(read, expected, "{layout:?} of {records:?}");
        }
    }
}

#[test]
fn a_profile_that_says_it_has_bins_beyond_measure_is_written_without_them() {
    for comment in [
        "gmon.out histogram: 0x0 to 0xffffffffffffffff in 4294967295 bins",
        "gmon.out histogram: 0x10 to 0x1 in 0 bins",
        "gmon.out histogram: 0x1 to 0x2",
    ] {
        let mut profile = Profile::read(&by_hand().bytes(NATIVE)).unwrap();
        profile.comments[1] = comment.into();
        let bytes = written(&profile, Format::Gmon);
        assert!(bytes.len() < 10_000, "{comment}: {}", bytes.len());
        Profile::read(&bytes).unwrap();
    }
}

#[test]
fn values_that_would_make_an_endless_file_are_refused() {
    let mut profile = Profile::read(&by_hand().bytes(NATIVE)).unwrap();
    profile.default_sample_type = "samples".into();
    let stack = profile.samples().next().unwrap().stack.to_vec();
    profile.push_sample(&stack, &[1 << 60, 0, 0, 0], &[]);
    let error = profile.write(Format::Gmon, &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("bins of 16 bits"), "{error}");
}

/// A profile that was made of several files has arcs and blocks of none of them alone.
#[test]
fn arcs_and_blocks_of_several_files_are_added() {
    let once = Profile::read(&by_hand().bytes(NATIVE)).unwrap();
    let mut twice = once.clone();
    // Bins of another file, which lie over these.
    twice
        .comments
        .push("gmon.out histogram: 0x1002 to 0x1012 in 4 bins".into());
    for sample in once.samples() {
        twice.push_sample(sample.stack, sample.values, &[]);
    }
    let again = Profile::read(&written(&twice, Format::Gmon)).unwrap();
    let sum_of = |profile: &Profile, index| profile.total(index);
    for index in 0..4 {
        assert_eq!(
            sum_of(&again, index),
            2 * sum_of(&once, index),
            "{index}\n{again}"
        );
    }
}

#[test]
fn a_dimension_may_be_called_as_other_records_are() {
    for name in ["calls", "blocks", "samples"] {
        let mut bytes = by_hand().bytes(NATIVE);
        let word = "seconds".as_bytes();
        for at in (0..bytes.len() - 16).rev() {
            if bytes[at..].starts_with(word) {
                bytes[at..at + 15].fill(0);
                bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
                // A rate of 1.
                bytes[at - 4..at].copy_from_slice(&1_u32.to_ne_bytes());
            }
        }
        let profile = Profile::read(&bytes).unwrap();
        let through = Profile::read(&written(&profile, Format::Pprof)).unwrap();
        assert!(written(&through, Format::Gmon) == bytes, "{profile}");
        assert_eq!(profile.total(1), 5 + i64::from(u32::MAX) + 1, "{profile}");
    }
}

#[test]
fn arcs_that_would_make_an_endless_file_are_refused() {
    let mut bytes = by_hand().bsd_bytes(NATIVE, false);
    // The count of the last arc is a word of 64 bits.
    let count = bytes.len() - 8..;
    bytes[count].copy_from_slice(&(1_u64 << 56).to_ne_bytes());
    let profile = Profile::read(&bytes).unwrap();
    let error = profile.write(Format::Gmon, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("arcs of 32"), "{error}");
}

/// Bins, arcs and blocks of profiles whose samples lie in other places of the same functions.
#[test]
fn gprof_sums_files_of_other_samples() {
    let (Some(gcc), Some(gprof)) = (tool("gcc"), tool("gprof")) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let made = profiled_by_the_c_library(&gcc, directory.path(), "-no-pie");
    let (program, file) = made.unwrap();
    let like = Gmon::read(&std::fs::read(&file).unwrap(), &program).unwrap();
    let first = like.locations()[0].address;
    let save = |name: &str, samples: &[(u64, i64)]| {
        let mut profile = Profile::new(like.sample_types()[..2].to_vec());
        for mapping in like.mappings() {
            profile.push_mapping(mapping.clone());
        }
        for &(into, count) in samples {
            let location = profile.push_location(sigprof::profile::Location {
                address: first + into,
                ..like.locations()[0].clone()
            });
            profile.push_sample(&[location], &[count, count * 10_000_000], &[]);
        }
        profile.period_type = like.period_type.clone();
        profile.period = like.period;
        let path = directory.path().join(name);
        profile.save(&path).unwrap();
        path
    };
    let small = [
        save("a.gmon", &[(0, 100), (6, 7)]),
        save("b.gmon", &[(2, 100), (4, 3000)]),
        save("c.gmon", &[(0, 1000)]),
    ];
    let mut sum = Command::new(&gprof);
    sum.arg("-s").arg(&program).args(&small);
    run(sum.current_dir(directory.path()));
    let sum = Profile::open(directory.path().join("gmon.sum")).unwrap();
    assert_eq!(sum.total(0), 100 + 7 + 100 + 3000 + 1000);
    // What a bin does not hold is lost in the file that gprof writes, and not in its table.
    let large = [
        save("d.gmon", &[(0, 70_000)]),
        save("e.gmon", &[(2, 100), (0, 300)]),
    ];
    let mut table = Command::new(&gprof);
    table
        .args(["-b", "-p"])
        .arg(&program)
        .args(&small[..1])
        .args(&large);
    let table = run(&mut table).stdout;
    let rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let seconds = rows.filter_map(|row| row.get(2)?.parse::<f64>().ok());
    let expected = (100 + 7 + 70_000 + 100 + 300) as f64 / 100.0;
    assert!((seconds.sum::<f64>() - expected).abs() < 0.05, "{table}");
}

fn any_records() -> impl Strategy<Value = Records> {
    let bin = prop_oneof![Just(0u16), any::<u16>()];
    let histogram = (2u32..9, prop::collection::vec(bin, 0..20));
    let histograms = prop::collection::vec(histogram, 0..4).prop_map(|histograms| {
        let at = |(i, (width, bins))| (0x1000 * (i as u32 + 1), width, bins);
        histograms.into_iter().enumerate().map(at).collect()
    });
    let arcs = prop::collection::vec(any::<(u32, u32, u32)>(), 0..5);
    let blocks = prop::option::of(prop::collection::vec(any::<(u32, u32)>(), 0..5));
    (histograms, arcs, blocks).prop_map(|(histograms, arcs, blocks)| Records {
        histograms,
        arcs,
        blocks,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_records_are_written_back_as_they_were(records in any_records()) {
        let bytes = records.bytes(NATIVE);
        let profile = Profile::read(&bytes).unwrap();
        prop_assert_eq!(&written(&profile, Format::Gmon), &bytes);
        // Without a histogram, whose dimension is a text, one file in some 50,000 is records by
        // this machine's layout and by another one's.
        let layouts = LAYOUTS.into_iter().filter(|_| !records.histograms.is_empty());
        for layout in layouts {
            let bytes = records.bytes(layout);
            prop_assert_eq!(&read_in(layout, &bytes), &profile);
            let again = written(&Profile::read(&bytes).unwrap(), Format::Gmon);
            prop_assert_eq!(&again, &bytes);
        }
        let through = Profile::read(&written(&profile, Format::Pprof)).unwrap();
        prop_assert_eq!(&written(&through, Format::Gmon), &bytes);
    }
}
