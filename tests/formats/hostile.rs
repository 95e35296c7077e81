//! Bytes from anywhere: an error or a profile, never a panic, and soon.

use std::io::Write;
use std::time::Duration;

use proptest::prelude::*;
use sigprof::profile::{Function, Label, LabelValue, Line, Location, Mapping, ValueType};
use sigprof::{ErrorKind, Format, Profile};

use super::samples::{any_profile, by_hand};
use crate::process::soak;
use crate::work::thread_cpu;

fn read(bytes: &[u8]) -> String {
    match Profile::read(bytes) {
        Ok(profile) => {
            // What was taken for a profile is one: it can be shown and written.
            let shown = format!("{profile}{}", profile.top(5));
            for format in [
                Format::Pprof,
                Format::CpuProfile,
                Format::Collapsed,
                Format::Gmon,
                Format::Heap,
                Format::Growth,
                Format::Contention,
            ] {
                let _ = profile.write(format, &mut std::io::sink());
            }
            shown
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            error.to_string()
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bytes_of(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write(format, &mut bytes).unwrap();
    bytes
}

/// A message field with a payload.
fn field(number: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2, payload.len() as u8];
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn each_thing_that_readers_refuse_is_refused_with_its_name() {
    let types = field(1, &[8, 1, 16, 2]);
    let strings = || [field(6, b""), field(6, b"a"), field(6, b"b")].concat();
    let valid = [types.clone(), strings()].concat();
    assert!(Profile::read(&valid).is_ok());
    let with = |extra: &[Vec<u8>]| [valid.clone(), extra.concat()].concat();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "empty"),
        (strings(), "no sample_type"),
        (types.clone(), "no string_table"),
        ([types.clone(), field(6, b"a")].concat(), "string_table[0]"),
        (with(&[field(2, &[0x12, 2, 1, 1])]), "sample[0]"),
        (with(&[field(2, &[])]), "sample[0]"),
        (with(&[field(2, &[0x12, 1, 1, 0x0a, 1, 9])]), "location 9"),
        (
            with(&[field(2, &[0x12, 1, 1, 0x0a, 1, 0])]),
            "location id 0",
        ),
        (with(&[field(3, &[])]), "mapping with the id 0"),
        (
            with(&[field(3, &[8, 1]), field(3, &[8, 1])]),
            "two mappings",
        ),
        (with(&[field(4, &[8, 1, 16, 7])]), "mapping 7"),
        (with(&[field(4, &[8, 1, 0x22, 0])]), "function 0"),
        (with(&[field(4, &[8, 1, 0x22, 2, 8, 3])]), "function 3"),
        (with(&[field(5, &[8, 1, 16, 9])]), "string 9"),
        (with(&[field(5, &[8, 1, 16, 9, 0x7f])]), "function[0]"),
        (
            with(&[vec![9 << 3, 1, 9 << 3, 2]]),
            "time_nanos comes twice",
        ),
        ([valid.clone(), valid.clone()].concat(), "concatenated"),
        (
            with(&[field(9, &[1])]),
            "time_nanos has the wrong wire type",
        ),
        (with(&[vec![0x0b]]), "wire type 3"),
        (with(&[vec![0x12, 5, 1]]), "ends inside"),
        ([gzip(&valid), b"x".to_vec()].concat(), "1 bytes follow"),
        ([gzip(&valid), gzip(&valid)].concat(), "several members"),
        (
            [gzip(&valid[..9]), gzip(&valid[9..])].concat(),
            "several members",
        ),
        (gzip(&valid)[..20].to_vec(), "cut off"),
        (gzip(&[]), "no string_table"),
    ];
    for (bytes, expected) in cases {
        let error = Profile::read(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(
            error.to_string().contains(expected),
            "expected `{expected}`, got: {error}"
        );
    }
}

#[test]
fn errors_of_a_proto_say_at_which_byte_of_it() {
    let types = field(1, &[8, 1, 16, 2]);
    for (damage, expected) in [
        (vec![0x0b], "wire type 3"),
        (vec![0x12, 5, 1], "ends inside"),
        (vec![0x80], "ends inside a number"),
        (field(2, &[0x12]), "sample[0]"),
        (types.clone(), "a sample_type comes twice"),
    ] {
        let bytes = [types.clone(), field(6, b""), damage].concat();
        for bytes in [gzip(&bytes), bytes] {
            let error = Profile::read(&bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected:?}: {error}");
            assert!(error.ends_with("(at byte 8, uncompressed)"), "{error}");
        }
    }
}

#[test]
fn errors_of_a_gperftools_file_say_where() {
    let bytes_of = |slots: &[u64], slot_size: usize, is_big_endian: bool| {
        let mut bytes = Vec::new();
        for slot in slots {
            match is_big_endian {
                true => bytes.extend_from_slice(&slot.to_be_bytes()[8 - slot_size..]),
                false => bytes.extend_from_slice(&slot.to_le_bytes()[..slot_size]),
            }
        }
        bytes
    };
    const HEADER: [u64; 5] = [0, 3, 0, 10_000, 0];
    let with = |slots: &[u64]| [&HEADER, slots].concat();
    // The slots, which of them is wrong, and how.
    let cases: [(Vec<u64>, usize, &str); 11] = [
        (vec![0, 3, 0], 3, "its end, inside the header"),
        (vec![0, 3, 0, 10_000], 4, "its end, inside the header"),
        (vec![0, 9, 0, 10_000, 0], 5, "its end, inside the header"),
        (vec![0, 3, 1, 10_000, 0], 2, "a Java program's"),
        (vec![0, 3, 7, 10_000, 0], 2, "the unknown version 7"),
        (vec![0, 3, 0, 0, 0], 3, "a sampling period of 0"),
        (with(&[1]), 5, "a record that ends too early"),
        (with(&[1, 2, 3]), 5, "a record that is longer"),
        (with(&[1, 1, 64, 0, 2, 64, 65]), 8, "has the count 0"),
        (with(&[1, 1, 64, 0, 1, 64]), 8, "has the count 0"),
        (with(&[1, 1, 64, 1, 0]), 8, "has no addresses"),
    ];
    for (slots, wrong, expected) in cases {
        for (slot_size, is_big_endian) in [(8, false), (8, true), (4, false), (4, true)] {
            let bytes = bytes_of(&slots, slot_size, is_big_endian);
            let error = Profile::read(&bytes).unwrap_err().to_string();
            let place = format!(" at byte {} ", wrong * slot_size);
            assert!(error.contains(&place), "{place:?}: {error}");
            assert!(error.contains(expected), "{expected:?}: {error}");
        }
    }
    let bytes = bytes_of(&with(&[1 << 63, 1, 64]), 8, false);
    let error = Profile::read(&bytes).unwrap_err().to_string();
    assert!(
        error.contains("at byte 40 a record that has a count out of range"),
        "{error}"
    );
}

#[test]
fn ids_need_not_be_in_order() {
    let big = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let bytes = [
        field(1, &[8, 1, 16, 2]),
        field(2, &[&[0x12, 1, 5, 0x0a, 11], big.as_slice(), &[9]].concat()),
        field(2, &[0x12, 1, 6, 0x08, 9, 0x08, 7]), // not packed
        field(4, &[8, 9, 24, 90]),
        field(4, &[[8].as_slice(), big, &[24, 91]].concat()),
        field(4, &[8, 7, 24, 92]),
        field(6, b""),
        field(6, b"samples"),
        field(6, b"count"),
    ];
    let profile = Profile::read(&bytes.concat()).unwrap();
    let stacks: Vec<Vec<u64>> = profile
        .samples()
        .map(|s| {
            s.stack
                .iter()
                .map(|l| profile.location(*l).address)
                .collect()
        })
        .collect();
    assert_eq!(stacks, [[91, 90], [90, 92]]);
}

#[test]
fn a_gzip_bomb_is_cut_off() {
    // 64 MiB of zeros as one comment, against a limit of 1 MiB.
    let len = [0x80, 0x80, 0x80, 0x20];
    let bomb = [[0x7a].as_slice(), &len, &vec![0; 64 << 20]].concat();
    let mut bomb = gzip(&bomb);
    // A reader that goes on past the limit meets the damage, which is another error.
    let half = bomb.len() / 2;
    bomb[half..].fill(0xff);
    let error = Profile::read_limited(&bomb, 1 << 20).unwrap_err();
    assert!(error.to_string().contains("1048576 bytes"), "{error}");
    let error = Profile::read_limited(&bomb, 1 << 30).unwrap_err();
    assert!(!error.to_string().contains("bytes"), "{error}");
}

#[test]
fn small_messages_do_not_become_much_memory() {
    // 50 lines in four bytes each, over and over: 24 bytes of memory each.
    let lines = field(4, &[0x22, 2, 8, 1].repeat(30));
    let bytes = lines.repeat(10_000);
    let error = Profile::read_limited(&bytes, 2 << 20).unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
}

#[test]
fn a_long_text_is_not_multiplied_by_small_messages() {
    // A string of 100 KB, which each of 1000 messages refers to: 200 MB.
    let text = vec![b'x'; 100_000];
    let strings = [&field(6, b"")[..], &[0x32, 0xa0, 0x8d, 6], &text].concat();
    let name_and_build_id = [0x28, 1, 0x30, 1];
    let mapping = |id: u8| field(3, &[&[8, id][..], &name_and_build_id].concat());
    let mappings: Vec<u8> = (1..=100).flat_map(mapping).collect();
    let types: Vec<u8> = (2..=100)
        .flat_map(|unit| field(1, &[8, 1, 0x10, unit]))
        .collect();
    let others: Vec<u8> = (2..=100).flat_map(|_| field(6, b"y")).collect();
    let sample_type = field(1, &[8, 1, 0x10, 1]);
    for bytes in [
        [sample_type.clone(), mappings, strings.clone()].concat(),
        [types, strings.clone(), others].concat(),
        [sample_type, field(13, &[1; 100]), strings].concat(),
    ] {
        Profile::read_limited(&bytes, 64 << 20).unwrap();
        let error = Profile::read_limited(&bytes, 4 << 20).unwrap_err();
        assert!(error.to_string().contains("memory"), "{error}");
    }
}

#[test]
fn many_sample_types_take_no_longer() {
    let types = |count: u32| -> Vec<u8> {
        let varint = |number: u32| {
            [
                number as u8 | 0x80,
                (number >> 7) as u8 | 0x80,
                (number >> 14) as u8,
            ]
        };
        let types = (0..count).flat_map(|unit| field(1, &[&[0x10][..], &varint(unit)].concat()));
        types.collect()
    };
    let time = |count| {
        let start = thread_cpu();
        assert!(Profile::read(&types(count)).is_err());
        thread_cpu() - start
    };
    let few = time(20_000);
    // Eight times as many; a quadratic reader takes 64 times as long.
    assert!(time(160_000) < 30 * few.max(Duration::from_millis(20)));
}

#[test]
fn a_text_that_is_no_profile_is_called_so() {
    for (text, expected) in [
        (
            "--- heapz 1 ---\nformat = java\n",
            "a text, and no profile of a known format",
        ),
        (
            "heap_v2/524288\n  t*: 1: 2 [0: 0]\n",
            "jemalloc's heap profile",
        ),
    ] {
        let error = Profile::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A gperftools file of records of two addresses each, all different, and a text.
fn cpu_profile(records: u64, text: &str) -> Vec<u8> {
    let mut slots: Vec<u64> = vec![0, 3, 0, 100, 0];
    for i in 0..records {
        slots.extend([1, 2, 0x1000 + 4 * i, 0x1002 + 4 * i]);
    }
    slots.extend([0, 1, 0]);
    let bytes = slots.iter().flat_map(|slot| slot.to_le_bytes());
    bytes.chain(text.bytes()).collect()
}

#[test]
fn a_gperftools_file_keeps_to_the_limit() {
    let mappings = "1-2 x\n".repeat(10_000);
    for bytes in [cpu_profile(10_000, ""), cpu_profile(1, &mappings)] {
        let error = Profile::read_limited(&bytes, 256 << 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("memory"), "{error}");
        assert!(Profile::read_limited(&bytes, 64 << 20).is_ok());
    }
}

#[test]
fn many_overlapping_mappings_take_no_longer() {
    let mut bytes: Vec<u8> = Vec::new();
    let mut slots: Vec<u64> = vec![0, 3, 0, 100, 0];
    for i in 0..100_000u64 {
        slots.extend([1, 1, 0x9000_0000_0000 + i]);
    }
    slots.extend([0, 1, 0]);
    for slot in slots {
        bytes.extend_from_slice(&slot.to_le_bytes());
    }
    for i in 0..100_000u64 {
        let line = format!(
            "{:x}-{:x} r-xp {:08x} 00:00 0 /x{i}\n",
            0x1000 + i,
            0x8000_0000 + i,
            i
        );
        bytes.extend_from_slice(line.as_bytes());
    }
    let start = thread_cpu();
    let profile = Profile::read(&bytes).unwrap();
    assert_eq!(profile.mappings().len(), 100_001);
    assert!(thread_cpu() - start < Duration::from_secs(20));
}

/// A profile of one stack, whose frames are all of one location.
pub fn one_stack(samples: usize, depth: usize, lines: usize) -> Profile {
    let mut profile = Profile::new(vec![ValueType::new("samples", "count")]);
    let line = |name: &str, profile: &mut Profile| {
        let name = profile.intern(name);
        let function = profile.push_function(Function {
            name,
            ..Function::default()
        });
        Line {
            function,
            line: 0,
            column: 0,
        }
    };
    let pair = [line("inner", &mut profile), line("outer", &mut profile)];
    let location = profile.push_location(Location {
        lines: pair.into_iter().cycle().take(lines).collect(),
        ..Location::default()
    });
    let stack = vec![location; depth];
    for _ in 0..samples {
        profile.push_sample(&stack, &[1], &[]);
    }
    profile
}

#[test]
fn the_top_of_a_small_file_does_not_take_long() {
    for (samples, depth, lines, outer) in [
        (1, 100_000, 100_000, " (inline)"),
        ((200.0 * soak()) as usize, 1_000_000, 2, ""),
    ] {
        let profile = one_stack(samples, depth, lines);
        let start = thread_cpu();
        let top = profile.top(0);
        assert!(thread_cpu() - start < Duration::from_secs(5));
        let rows: Vec<_> = top
            .rows()
            .iter()
            .map(|row| (row.name.as_str(), row.inline, row.flat, row.cum))
            .collect();
        let samples = samples as i64;
        assert_eq!(
            rows,
            [
                ("inner", " (inline)", samples, samples),
                ("outer", outer, 0, samples)
            ]
        );
    }
}

#[test]
fn shown_texts_cannot_command_a_terminal_or_forge_rows() {
    let evil = "\u{1b}[2J\n  1 row";
    let mut profile = Profile::new(vec![ValueType::new(evil, evil)]);
    profile.comments.push(evil.into());
    profile.period_type = ValueType::new(evil, evil);
    let name = profile.intern(evil);
    let function = profile.push_function(Function {
        name,
        filename: name,
        ..Function::default()
    });
    let mapping = profile.push_mapping(Mapping {
        filename: evil.into(),
        build_id: evil.into(),
        ..Mapping::default()
    });
    let line = Line {
        function,
        line: 0,
        column: 0,
    };
    let location = profile.push_location(Location {
        mapping: Some(mapping),
        lines: vec![line],
        ..Location::default()
    });
    let label = Label {
        key: name,
        value: LabelValue::Str(name),
    };
    profile.push_sample(&[location], &[1], &[label]);
    for shown in [profile.to_string(), profile.top(0).to_string()] {
        assert!(!shown.contains('\u{1b}'), "{shown}");
        assert!(!shown.contains("\n  1 row"), "{shown}");
        assert!(shown.contains("\\u{1b}[2J\\n  1 row"), "{shown}");
    }
    assert_eq!(profile.top(0).rows()[0].name, evil);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&bytes);
        read(&gzip(&bytes));
        read(&[[0; 8].as_slice(), &3u64.to_le_bytes(), &[0; 8], &bytes].concat());
    }
}

proptest! {
    // Files that only differ in their damage: `format/any.rs` has more of those.
    #![proptest_config(ProptestConfig::with_cases((128.0 * soak()) as u32))]

    #[test]
    fn damaged_files_do_not_panic(
        profile in any_profile(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let cpu = bytes_of(&by_hand(), Format::CpuProfile);
        let bare = bytes_of(&profile, Format::PprofUncompressed);
        let collapsed = bytes_of(&by_hand(), Format::Collapsed);
        let gmon = super::gmon::bytes_by_hand();
        let texts = super::legacy::texts().into_iter().map(String::into_bytes);
        let by_hand = bytes_of(&by_hand(), Format::PprofUncompressed);
        let all = [cpu, bare, by_hand, collapsed].into_iter().chain(gmon).chain(texts);
        for mut bytes in all {
            read(&bytes[..cut.index(bytes.len())]);
            for (position, byte) in &changes {
                let position = position.index(bytes.len());
                bytes[position] = *byte;
            }
            read(&bytes);
            read(&gzip(&bytes));
            let mut compressed = gzip(&bytes);
            let position = changes[0].0.index(compressed.len());
            compressed[position] ^= changes[0].1;
            read(&compressed);
        }
    }
}
