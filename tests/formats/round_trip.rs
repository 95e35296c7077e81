//! What our readers read is what our writers wrote.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;
use sigprof::profile::{Function, Line, Location, LocationId, Mapping, ValueType};
use sigprof::{ErrorKind, Format, Profile};

use super::samples::{any_profile, any_profile_with, by_hand};
use crate::large::large;

fn write(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write(format, &mut bytes).unwrap();
    bytes
}

fn through(profile: &Profile, format: Format) -> Profile {
    Profile::read(&write(profile, format)).unwrap()
}

/// Everything a profile says, whatever its tables' order of strings.
fn said(profile: &Profile) -> String {
    let mut text = format!(
        "{profile}{:?} {} {} {} {}\n",
        profile.default_sample_type,
        profile.drop_frames,
        profile.keep_frames,
        profile.doc_url,
        profile.duration_nanos
    );
    for sample in profile.samples() {
        for label in sample.labels {
            let value = match label.value {
                sigprof::profile::LabelValue::Str(s) => format!("{:?}", profile.string(s)),
                sigprof::profile::LabelValue::Num { value, unit } => {
                    format!("{value} {:?}", profile.string(unit))
                }
            };
            text.push_str(&format!("{:?}={value};", profile.string(label.key)));
        }
        text.push('\n');
    }
    for location in profile.locations() {
        text.push_str(&format!("{location:?}\n"));
    }
    text
}

#[test]
fn a_profile_by_hand_is_equal_after_profile_proto() {
    let profile = by_hand();
    for format in [Format::Pprof, Format::PprofUncompressed] {
        let back = through(&profile, format);
        assert_eq!(back, profile);
        assert_eq!(back.to_string(), profile.to_string());
    }
}

#[test]
fn a_file_larger_than_gzips_window_has_the_same_samples() {
    let profile = large(5_000, 500, 20);
    let mut seen: [BTreeMap<String, i64>; 2] = Default::default();
    for (seen, profile) in seen
        .iter_mut()
        .zip([&profile, &through(&profile, Format::Pprof)])
    {
        for sample in profile.samples() {
            let stack: Vec<_> = sample
                .stack
                .iter()
                .map(|l| profile.location(*l).address)
                .collect();
            let labels = format!("{:?}{:?}", stack, sample.labels);
            *seen.entry(labels).or_default() += sample.values[0];
        }
    }
    assert_eq!(seen[0], seen[1]);
}

/// What a gperftools file can say: stacks of addresses or of names without code, their counts, the
/// mappings.
fn counts(profile: &Profile, index: usize) -> BTreeMap<Vec<String>, i64> {
    let mut counts = BTreeMap::new();
    for sample in profile.samples() {
        let frame = |(depth, l): (usize, &sigprof::profile::LocationId)| {
            let location = profile.location(*l);
            let name = location
                .lines
                .last()
                .map(|l| profile.string(profile.function(l.function).name));
            match (location.address, name) {
                (0, Some(name)) if name.starts_with('[') => name.to_owned(),
                (0, _) => "[no-address]".to_owned(),
                (u64::MAX, _) if depth > 0 => "[no-address]".to_owned(),
                (address, _) => format!("{address:#x}"),
            }
        };
        let stack = sample.stack.iter().enumerate().map(frame).collect();
        let count: &mut i64 = counts.entry(stack).or_default();
        *count += sample.values[index];
    }
    counts.retain(|_, count| *count != 0);
    counts
}

fn mapping_lines(profile: &Profile) -> Vec<String> {
    let lines = profile.mappings().iter().map(|m| {
        format!(
            "{:x}-{:x} {:x} {} {}",
            m.memory_start, m.memory_limit, m.file_offset, m.filename, m.build_id
        )
    });
    lines.collect()
}

#[test]
fn a_gperftools_file_holds_stacks_counts_mappings_and_names_without_code() {
    let profile = by_hand();
    let back = through(&profile, Format::CpuProfile);
    assert_eq!(counts(&back, 0), counts(&profile, 0));
    assert_eq!(mapping_lines(&back), mapping_lines(&profile));
    assert_eq!(back.period, profile.period);
    assert_eq!(back.total(1), profile.total(1));
    for location in back.locations() {
        match location.mapping {
            Some(m) => {
                let m = back.mapping(m);
                assert!((m.memory_start..m.memory_limit).contains(&location.address));
            }
            None => assert_eq!(location.address, 0),
        }
    }
    // Once more, and nothing more is lost.
    assert_eq!(through(&back, Format::CpuProfile), back);
}

#[test]
fn one_hot_path_keeps_all_its_frames() {
    // google/pprof would take the second frame for a signal trampoline, and the third's repetition
    // of a leaf.
    let mut profile = Profile::new(vec![ValueType::new("samples", "count")]);
    profile.period_type = ValueType::new("cpu", "nanoseconds");
    profile.period = 3_333_333;
    let frames: Vec<_> = [0x2001, 0x2000, 0x3000, 0x4000]
        .map(|address| {
            profile.push_location(Location {
                address,
                ..Location::default()
            })
        })
        .into();
    profile.push_sample(&frames, &[100], &[]);
    profile.push_sample(&[], &[3], &[]);
    let back = through(&profile, Format::CpuProfile);
    assert_eq!(counts(&back, 0), counts(&profile, 0));
    assert_eq!(back.period, 3_333_000);
    assert!(back.mappings().is_empty());
}

#[test]
fn an_empty_profile_is_header_trailer_and_mappings() {
    let mut profile = Profile::new(vec![ValueType::new("samples", "count")]);
    profile.period_type = ValueType::new("cpu", "nanoseconds");
    profile.period = 10_000_000;
    let bytes = write(&profile, Format::CpuProfile);
    let slots: Vec<u64> = bytes[..64]
        .chunks(8)
        .map(|slot| u64::from_ne_bytes(slot.try_into().unwrap()))
        .collect();
    assert_eq!(slots, [0, 3, 0, 10_000, 0, 0, 1, 0]);
    assert!(bytes.ends_with(b"\n"));
    assert_eq!(Profile::read(&bytes).unwrap().sample_count(), 0);
}

#[test]
fn what_a_format_cannot_hold_at_all_is_refused_with_a_sentence() {
    let heap = Profile::new(vec![ValueType::new("inuse_space", "bytes")]);
    let mut no_period = Profile::new(vec![ValueType::new("samples", "count")]);
    let mut negative = no_period.clone();
    negative.period_type = ValueType::new("cpu", "nanoseconds");
    negative.period = 1_000_000;
    negative.push_sample(&[], &[-1], &[]);
    no_period.period_type = ValueType::new("space", "bytes");
    let cases = [
        (heap, Format::CpuProfile, "inuse_space/bytes"),
        (no_period, Format::CpuProfile, "period"),
        (negative, Format::CpuProfile, "negative"),
        (Profile::default(), Format::Pprof, "without sample types"),
    ];
    for (profile, format, expected) in cases {
        let error = profile.write(format, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A file of the other widths and byte orders.
fn foreign(slots: &[u64], slot_size: usize, big_endian: bool) -> Vec<u8> {
    let slot = |&slot: &u64| match (slot_size, big_endian) {
        (4, false) => (slot as u32).to_le_bytes().to_vec(),
        (4, true) => (slot as u32).to_be_bytes().to_vec(),
        (_, false) => slot.to_le_bytes().to_vec(),
        (_, true) => slot.to_be_bytes().to_vec(),
    };
    slots.iter().flat_map(slot).collect()
}

#[test]
fn all_widths_and_byte_orders_are_read() {
    let slots = [
        0, 3, 0, 4000, 0, // header
        2, 3, 0x1000, 0x2001, 0x3001, // a record
        5, 2, 0x1100, 0x2002, // another
        0, 1, 0, // the trailer
    ];
    for (slot_size, big_endian) in [(4, false), (4, true), (8, false), (8, true)] {
        let mut bytes = foreign(&slots, slot_size, big_endian);
        let without_text = Profile::read(&bytes).unwrap();
        assert_eq!(without_text.period, 4_000_000);
        assert_eq!(without_text.total(0), 7);
        assert_eq!(without_text.mappings().len(), 1, "google/pprof invents one");
        let cut = &bytes[..bytes.len() - 3 * slot_size];
        assert_eq!(Profile::read(cut).unwrap(), without_text);

        bytes.extend_from_slice(
            b"00001000-00009000 r-xp 00000000 08:01 12  /bin/x (deleted)\nbuild=1\n",
        );
        let with_text = Profile::read(&bytes).unwrap();
        assert_eq!(mapping_lines(&with_text), ["1000-9000 0 /bin/x "]);
        let addresses: Vec<u64> = with_text.locations().iter().map(|l| l.address).collect();
        assert_eq!(addresses, [0x1000, 0x2000, 0x3000, 0x1100, 0x2001]);
    }
}

#[test]
fn a_java_profile_is_refused_with_a_sentence() {
    let error = Profile::read(&foreign(&[0, 3, 1, 4000, 0, 0, 1, 0], 8, false)).unwrap_err();
    assert!(error.to_string().contains("Java"), "{error}");
}

/// The names of each sample's frames, outermost first, and the sum of their values.
fn named_stacks(profile: &Profile, index: usize) -> BTreeMap<Vec<String>, i64> {
    let frames = |id: &LocationId| {
        let location = profile.location(*id);
        let without_name = || match location.address {
            0 => "[unknown]".to_owned(),
            address => format!("{address:#x}"),
        };
        let name = |line: &sigprof::profile::Line| match profile
            .string(profile.function(line.function).name)
        {
            "" => without_name(),
            name => name.to_owned(),
        };
        let mut names: Vec<_> = location.lines.iter().map(name).collect();
        if names.is_empty() {
            names.push(without_name());
        }
        names
    };
    let mut sums = BTreeMap::new();
    for sample in profile.samples() {
        let mut names: Vec<_> = sample.stack.iter().flat_map(frames).collect();
        names.reverse();
        *sums.entry(names).or_default() += sample.values[index];
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

/// Where an executable lies that is linked to its addresses, and a library.
const PROGRAM: Range<u64> = 0x40_0000..0x40_4000;
const LIBRARY: Range<u64> = 0x7f00_0000_0000..0x7f00_0000_4000;

fn code_address() -> impl Strategy<Value = u64> {
    prop_oneof![8 => PROGRAM, 4 => 0x40_0100..0x40_0110u64, 1 => LIBRARY]
}

/// Samples of one value each in the two.
fn profile_of_two_objects(samples: &[(Vec<u64>, i64)]) -> Profile {
    let mut profile = Profile::new(vec![ValueType::new("turns", "count")]);
    let objects = [
        (PROGRAM, "/nowhere/program"),
        (LIBRARY, "/nowhere/library.so"),
    ];
    let mappings = objects.map(|(range, name)| {
        profile.push_mapping(Mapping {
            memory_start: range.start,
            memory_limit: range.end,
            filename: name.to_owned(),
            ..Mapping::default()
        })
    });
    for (addresses, value) in samples {
        let location = |address: &u64| {
            profile.push_location(Location {
                mapping: Some(mappings[usize::from(!PROGRAM.contains(address))]),
                address: *address,
                ..Location::default()
            })
        };
        let stack: Vec<_> = addresses.iter().map(location).collect();
        profile.push_sample(&stack, &[*value], &[]);
    }
    profile
}

#[test]
fn a_collapsed_stack_may_begin_with_a_name_that_another_format_begins_with() {
    for outermost in [
        "gmon_start",
        "heap profile: 1: 32 [2: 1024] @ heap/1048576",
        "--- contentionz 1 ---",
        "--- mutex:",
        "--- threadz 1 ---",
        "--- Thread 7ff6fffa7700 (name: main/14748) stack: ---",
        "threadcreate profile: total 4",
        "# main",
    ] {
        let mut profile = Profile::new(vec![ValueType::new("samples", "count")]);
        let both = ["work", outermost].map(|name| {
            let name = profile.intern(name);
            let function = profile.push_function(Function {
                name,
                ..Function::default()
            });
            profile.push_location(Location {
                lines: vec![Line {
                    function,
                    line: 0,
                    column: 0,
                }],
                ..Location::default()
            })
        });
        profile.push_sample(&both, &[3], &[]);
        let stacks = named_stacks(&through(&profile, Format::Collapsed), 0);
        // Nothing that begins a comment.
        let outermost = outermost.replace("# ", "#");
        let stack = vec![outermost, "work".into()];
        assert_eq!(stacks, BTreeMap::from([(stack, 3)]));
    }
}

proptest! {
    #[test]
    fn profile_proto_holds_all_of_any_profile(profile in any_profile()) {
        let back = through(&profile, Format::PprofUncompressed);
        prop_assert_eq!(said(&back), said(&profile));
        // What was read has its strings in the order of their use; from then on nothing changes at
        // all.
        prop_assert_eq!(&through(&back, Format::Pprof), &back);
    }

    #[test]
    fn a_gperftools_file_holds_what_it_can_of_any_profile(
        stacks in prop::collection::vec(
            (prop::collection::vec(0usize..12, 0..5), 0i64..4),
            0..20,
        ),
        addresses in prop::collection::vec(
            prop_oneof![Just(0), 1u64..64, (1 << 56)..(1u64 << 56) + 4200, any::<u64>(), Just(u64::MAX)], 12,
        ),
    ) {
        let mut profile = by_hand();
        let names = ["[lost]", "[truncated: no unwind data]", "plain", "[two words]"];
        let locations: Vec<_> = addresses.iter().enumerate().map(|(i, &address)| {
            let name = profile.intern(names[i % names.len()]);
            let function = profile.push_function(sigprof::profile::Function {
                name,
                ..Default::default()
            });
            profile.push_location(Location {
                address,
                lines: match address {
                    0 => vec![sigprof::profile::Line { function, line: 0, column: 0 }],
                    _ => vec![],
                },
                ..Location::default()
            })
        }).collect();
        for (stack, count) in &stacks {
            let stack: Vec<_> = stack.iter().map(|&i| locations[i]).collect();
            profile.push_sample(&stack, &[*count, 0], &[]);
        }
        let back = through(&profile, Format::CpuProfile);
        let expected: BTreeMap<_, _> = counts(&profile, 0)
            .into_iter()
            .fold(BTreeMap::new(), |mut sum, (stack, count)| {
                let known = |frame: String| match frame.as_str() {
                    "[two words]" => "[two_words]".to_owned(),
                    _ => frame,
                };
                let stack: Vec<_> = stack.into_iter().map(known).collect();
                *sum.entry(stack).or_default() += count;
                sum
            });
        prop_assert_eq!(counts(&back, 0), expected);
        prop_assert_eq!(mapping_lines(&back), mapping_lines(&profile));
        prop_assert_eq!(through(&back, Format::CpuProfile), back);
    }

    #[test]
    fn collapsed_stacks_hold_the_names_and_one_value_of_any_profile(
        profile in any_profile_with(-1_000..1_000i64),
    ) {
        let stacks = named_stacks(&profile, profile.default_sample_index());
        // A text without lines says nothing, not even what it is.
        prop_assume!(!stacks.is_empty());
        let back = through(&profile, Format::Collapsed);
        prop_assert_eq!(named_stacks(&back, 0), stacks);
        prop_assert_eq!(through(&back, Format::Collapsed), back);
    }

    #[test]
    fn a_gmon_file_holds_what_lies_in_the_executable_of_any_profile(
        samples in prop::collection::vec(
            (prop::collection::vec(code_address(), 0..6), 0i64..200_000),
            0..20,
        ),
    ) {
        let profile = profile_of_two_objects(&samples);
        let mut expected: BTreeMap<Vec<u64>, [i64; 2]> = BTreeMap::new();
        for (stack, value) in &samples {
            let mut add = |stack, of_bin, of_arc| {
                let values = expected.entry(stack).or_default();
                *values = [values[0] + of_bin, values[1] + of_arc];
            };
            if let Some(leaf) = stack.first().filter(|leaf| PROGRAM.contains(leaf)) {
                // A bin is two bytes of code.
                add(vec![leaf & !1], *value, 0);
            }
            let mut calls: Vec<_> = stack.windows(2).collect();
            calls.sort_unstable();
            calls.dedup();
            calls.retain(|call| call.iter().all(|address| PROGRAM.contains(address)));
            calls.into_iter().for_each(|call| add(call.to_vec(), 0, *value));
        }
        expected.retain(|_, values| *values != [0; 2]);

        let back = through(&profile, Format::Gmon);
        prop_assert_eq!(&back.sample_types()[0], &ValueType::new("turns", "count"));
        let mut found: BTreeMap<Vec<u64>, [i64; 2]> = BTreeMap::new();
        for sample in back.samples() {
            let address = |id: &LocationId| back.location(*id).address;
            let values = found.entry(sample.stack.iter().map(address).collect()).or_default();
            values[0] += sample.values[0];
            values[1] += sample.values.get(1).copied().unwrap_or(0);
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(through(&back, Format::Gmon), back);
    }
}
