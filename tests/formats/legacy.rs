//! Text profiles: heap, growth, contention, threads, counts.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::Command;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sigprof::profile::{Function, Label, LabelValue, Line, Location, StringId, ValueType};
use sigprof::{ErrorKind, Format, Profile};

use super::goldens::testdata;
use crate::support::{go_pprof, run, tool};

const MAPPINGS: &str = "\
    00400000-00500000 r-xp 00000000 08:01 1234 /bin/server\n\
    7f0000000000-7f0000100000 r-xp 00001000 08:01 1235 /lib/libc.so.6\n";

/// One of each kind, as programs write them.
pub fn texts() -> Vec<String> {
    let texts = [
        // As gperftools' heap checker and profiler do.
        "heap profile:      2:     1088 [     5:     2176] @ heapprofile\n     \
             1:     1024 [     1:     1024] @ 0x401136 0x401162 0x7f0000000100\n     \
             1:       64 [     4:     1152] @ 0x401190 0x401162 0x7f0000000100\n     \
             0:        0 [     1:        8] @\n\n",
        "heap profile:      3:     1152 [     5:     2176] @ heap_v2/524288\n     \
             2:     1088 [     3:     2112] @ 0x401136 0x401162\n     \
             1:       64 [     2:       64] @ 0x401136 0x401163\n\n",
        // As Go does.
        "heap profile: 1: 32 [2: 1024] @ heap/1048576\n\
             1: 32 [1: 32] @ 0x401136 0x401162\n\
             #\t0x401135\tmain.work+0x15\t/src/main.go:7\n\n\
             0: 0 [1: 992] @ 0x401190\n\n\
             # runtime.MemStats\n# Alloc = 5\n",
        "heap profile:      2:  2097152 [     2:  2097152] @ growthz\n     \
             2:  2097152 [     2:  2097152] @ 0x401136 0x401162\n\n",
        "heap profile:      2:  2097152 [     2:  2097152] @ fragmentationz\n     \
             2:  2097152 [     2:  2097152] @ 0x401136\n\n",
        "--- contentionz 1 ---\ncycles/second = 3201000000\nsampling period = 100\n\
             ms since reset = 16502830\ndiscarded samples = 0\n  \
             19490304       27 @ 0x401136 0x401162\n  768 1 @ 0x401136\n",
        "--- mutex:\nsampling period = 1\n1 2 @ 0x401136 0x401162\n",
        "--- contention:\n\n# nothing\n5 7 @\n",
        "--- threadz 1 ---\n\n\
             --- Thread 7ff6fffa7700 (name: main/14748) stack: ---\n  \
             PC: 0x00401136: helper(arg *)\n  creator: 0x00401162 0x00401162\n\
             --- Thread 7ff6fffa7701 (name: worker one/14749) stack: ---\n  \
             [same as previous thread]\n\
             --- Thread 7ff6fffa7702 (name: worker (2)/14750) stack: ---\n  \
             0x401190 0x401190 0x401162 in main\n",
        "--- Thread 7ff6fffa7700 (name: main/14748) stack: ---\n  0x401136\n",
        "threadcreate profile: total 4\n3 @ 0x401136 0x401162\n#\t0x401135\tmain\n\n1 @ 0x401190\n",
    ];
    let with_mappings = |text: &str| {
        let title = match text.starts_with("heap") {
            true => "MAPPED_LIBRARIES:",
            false => "--- Memory map: ---",
        };
        format!("{text}{title}\n{MAPPINGS}")
    };
    texts.map(with_mappings).into()
}

#[test]
fn texts_of_all_kinds_are_read_as_google_pprof_reads_them() {
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    for (i, text) in texts().iter().enumerate() {
        let original = directory.path().join(format!("{i}.txt"));
        std::fs::write(&original, text).unwrap();
        let converted = directory.path().join(format!("{i}.pb.gz"));
        let profile = Profile::open(&original).unwrap();
        profile.save(&converted).unwrap();
        let raw = |path| go_pprof(&go, &["-raw", "-symbolize=none"], path).stdout;
        assert_eq!(raw(&converted), raw(&original), "{text}\n{profile}");
    }
}

/// The format that holds what such a file says, and is written, too.
fn format_of(file: &[u8]) -> Option<Format> {
    let first = file.split(|byte| *byte == b'\n').next()?;
    if first.contains(&0) {
        return Some(Format::CpuProfile);
    }
    let first = str::from_utf8(first).unwrap();
    let words = [
        ("growth", Format::Growth),
        ("fragmentation", Format::Growth),
        ("heap", Format::Heap),
        ("contention", Format::Contention),
        ("mutex", Format::Contention),
    ];
    let known = words.into_iter().find(|(word, _)| first.contains(word));
    known.map(|(_, format)| format)
}

/// What `pprof -raw` prints, where samples of one stack with two values are one sample.
fn merged(raw: &str) -> String {
    let two_values = |line: &str| {
        let (values, _) = line.split_once(": ")?;
        let values: Vec<i64> = (values.split_whitespace())
            .map_while(|value| value.parse().ok())
            .collect();
        <[i64; 2]>::try_from(values).ok()
    };
    let mut sums = HashMap::<&str, [i64; 2]>::new();
    let mut lines = Vec::new();
    for line in raw.lines() {
        let Some([count, value]) = two_values(line) else {
            lines.push(line);
            continue;
        };
        let (_, stack) = line.split_once(": ").unwrap();
        let sum = sums.entry(stack).or_insert_with(|| {
            lines.push(stack);
            [0; 2]
        });
        *sum = [sum[0] + count, sum[1] + value];
    }
    let lines = lines.iter().map(|line| match sums.get(line) {
        Some(sum) => format!("{sum:?}: {line}\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

fn written(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write(format, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_written_again_is_read_as_the_original() {
    let goldens = [
        "cppbench.cpu",
        "gobench.cpu",
        "cppbench.heap",
        "gobench.heap",
        "cppbench.growth",
        "cppbench.contention",
    ];
    let goldens = goldens.map(|name| std::fs::read(testdata(name)).unwrap());
    let texts = texts().into_iter().map(String::into_bytes);
    let go = tool("go");
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    for original in texts.chain(goldens) {
        let Some(format) = format_of(&original) else {
            continue;
        };
        count += 1;
        let profile = Profile::read(&original).unwrap();
        let again = written(&profile, format);
        // In a file of ours google/pprof's frames to drop are not ours.
        let mut expected = profile.clone();
        (expected.drop_frames, expected.keep_frames) = Default::default();
        expected.duration_nanos -= expected.duration_nanos % 1_000_000;
        let text = String::from_utf8_lossy(&again);
        let read_again = Profile::read(&again).unwrap();
        // A stack that the original has twice is written once.
        match format {
            Format::CpuProfile => {
                let merged = |profile: &Profile| merged(&profile.to_string());
                assert_eq!(merged(&read_again), merged(&expected));
            }
            _ => assert_eq!(read_again, expected, "{text}"),
        }
        let Some(go) = &go else { continue };
        let raw = |bytes: &[u8]| {
            let path = directory.path().join("profile");
            std::fs::write(&path, bytes).unwrap();
            merged(&go_pprof(go, &["-raw", "-symbolize=none"], &path).stdout)
        };
        // A mapping without a name is written with this one.
        let raw_again = raw(&again).replace("[anon]", "");
        assert_eq!(raw_again, raw(&original), "{text}");
    }
    assert_eq!(count, 14);
}

/// Some objects and their bytes, of any size that programs have.
fn objects_and_bytes() -> impl Strategy<Value = (u64, u64)> {
    let objects = (0u32..20).prop_flat_map(|bits| 1..=1u64 << bits);
    let size = (1u32..25).prop_flat_map(|bits| 0..1u64 << bits);
    (objects, size, any::<u64>())
        .prop_map(|(objects, size, more)| (objects, objects * size + more % objects))
}

#[test]
fn samples_stand_for_as_much_as_in_google_pprof() {
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::deterministic();
    let mut sample = || {
        let tree = objects_and_bytes().new_tree(&mut runner).unwrap();
        tree.current()
    };
    for period in [2, 100, 4096, 524_288, 1 << 24, 1 << 30] {
        let mut text = format!("heap profile: 1: 1 [ 2: 2] @ heap_v2/{period}\n");
        for address in 0..2000u64 {
            let (objects, bytes) = sample();
            let address = 0x1000 + 16 * address;
            writeln!(
                text,
                "{objects}: {bytes} [{objects}: {bytes}] @ {address:#x}"
            )
            .unwrap();
        }
        let original = directory.path().join("heap.txt");
        std::fs::write(&original, text).unwrap();
        let converted = directory.path().join("heap.pb");
        Profile::open(&original).unwrap().save(&converted).unwrap();
        let raw = |path| go_pprof(&go, &["-raw", "-symbolize=none"], path).stdout;
        let (ours, theirs) = (raw(&converted), raw(&original));
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            assert_eq!(ours, theirs, "at a period of {period}");
        }
        assert_eq!(ours.lines().count(), theirs.lines().count());
        let profile = Profile::open(&original).unwrap();
        let again = written(&profile, Format::Heap);
        assert!(again.starts_with(b"heap profile:"));
        let head = again.split(|byte| *byte == b'\n').next().unwrap();
        let head = String::from_utf8_lossy(head);
        // At a GiB a sampled byte changes less than the fractions that floats have there.
        let is_sampled = head.ends_with(&format!("heap_v2/{period}"));
        assert!(is_sampled || period == 1 << 30, "{head}");
        let back = Profile::read(&again).unwrap();
        assert_eq!(back.sample_count(), profile.sample_count());
        for (back, sample) in back.samples().zip(profile.samples()) {
            // What is in use, as which nothing else was allocated.
            assert_eq!(back.values, &sample.values[2..], "{period}");
            let [size, expected] = [back.labels[0].value, sample.labels[0].value];
            assert!(size == expected || !is_sampled, "{size:?} {expected:?}");
        }
    }
}

/// Each sample: addresses, or names where there are none, values, and the numbers of its labels.
fn raw_samples(profile: &Profile) -> Vec<(Vec<String>, Vec<i64>, Vec<i64>)> {
    let frame = |id: &sigprof::profile::LocationId| {
        let location = profile.location(*id);
        match (location.address, location.lines.last()) {
            (0, Some(line)) => profile
                .string(profile.function(line.function).name)
                .to_owned(),
            (address, _) => format!("{address:#x}"),
        }
    };
    let number = |label: &Label| match label.value {
        LabelValue::Num { value, .. } => value,
        LabelValue::Str(_) => 0,
    };
    let sample = |sample: sigprof::profile::Sample<'_>| {
        (
            sample.stack.iter().map(frame).collect(),
            sample.values.to_vec(),
            sample.labels.iter().map(number).collect(),
        )
    };
    profile.samples().map(sample).collect()
}

/// A profile of these types and of such samples, each of as many values: no objects have no bytes.
fn profile_of(types: &[(&'static str, &'static str)], samples: Samples) -> Profile {
    let value_types = types.iter().map(|(t, u)| ValueType::new(*t, *u)).collect();
    let mut profile = Profile::new(value_types);
    for (stack, values) in samples {
        let stack: Vec<_> = stack
            .into_iter()
            .map(|address| match address {
                0 => {
                    let name = profile.intern("[lost]");
                    let function = profile.push_function(Function {
                        name,
                        system_name: name,
                        ..Function::default()
                    });
                    let line = Line {
                        function,
                        line: 0,
                        column: 0,
                    };
                    profile.push_location(Location {
                        lines: vec![line],
                        ..Location::default()
                    })
                }
                _ => profile.push_location(Location {
                    address,
                    ..Location::default()
                }),
            })
            .collect();
        let mut values = values[..types.len()].to_vec();
        for (pair, types) in values.chunks_mut(2).zip(types.chunks(2)) {
            let (_, unit) = types[1];
            if pair[0] == 0 && unit == "bytes" {
                pair[1] = 0;
            }
        }
        profile.push_sample(&stack, &values, &[]);
    }
    profile
}

type Samples = Vec<(Vec<u64>, [i64; 4])>;

fn samples() -> impl Strategy<Value = Samples> {
    let address = prop_oneof![
        Just(0),
        0x1000u64..0x1010,
        (1 << 56)..(1u64 << 56) + 64,
        any::<u64>()
    ];
    let stack = prop::collection::vec(address, 0..6);
    let value = || (0u32..50).prop_flat_map(|bits| 0..1i64 << bits);
    let values = [value(), value(), value(), value()];
    prop::collection::vec((stack, values), 1..20)
}

/// The same without labels, which a reader makes.
fn without_labels(profile: &Profile) -> Vec<(Vec<String>, Vec<i64>)> {
    let samples = raw_samples(profile).into_iter();
    samples.map(|(stack, values, _)| (stack, values)).collect()
}

const HEAP: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

proptest! {
    #[test]
    fn texts_hold_the_values_and_addresses_of_any_profile(
        samples in samples(),
        period in prop_oneof![0i64..3, 0i64..1 << 40],
    ) {
        let cases = [
            (&HEAP[..], Format::Heap),
            (&[("objects", "count"), ("space", "bytes")], Format::Heap),
            (&[("objects", "count"), ("space", "bytes")], Format::Growth),
            (&[("contentions", "count"), ("delay", "nanoseconds")], Format::Contention),
        ];
        for (types, format) in cases {
            let mut profile = profile_of(types, samples.clone());
            profile.period = period;
            profile.period_type = match format {
                Format::Contention => ValueType::new("contentions", "count"),
                _ => ValueType::new("space", "bytes"),
            };
            let mut bytes = Vec::new();
            match profile.write(format, &mut bytes) {
                Ok(()) => {}
                Err(error) => {
                    let message = error.to_string();
                    prop_assert!(message.contains("the same totals"), "{}", message);
                    continue;
                }
            }
            let back = Profile::read(&bytes).unwrap();
            let mut expected = without_labels(&profile);
            if back.sample_types().len() == 2 && types.len() == 4 {
                // What was allocated was what is in use, or was nothing.
                expected.iter_mut().for_each(|(_, values)| _ = values.drain(..2));
            }
            if format == Format::Contention {
                expected.retain(|(_, values)| values[..] != [0, 0]);
                expected.iter_mut().for_each(|(_, values)| values[0] = values[0].max(1));
            }
            let text = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(without_labels(&back), expected, "{}", text);
            let again = Profile::read(&written(&back, format)).unwrap();
            prop_assert_eq!(again, back);
        }
    }
}

/// What was freed between two profiles is negative in their difference; brackets have no signs.
#[test]
fn objects_that_are_fewer_than_before_are_written_for_other_readers() {
    let Some(go) = tool("go") else { return };
    let objects = [("objects", "count"), ("space", "bytes")];
    let samples = vec![
        (vec![0x1000], [8, 8000, 0, 0]),
        (vec![0x2000], [-2, -2000, 0, 0]),
    ];
    let profile = profile_of(&objects, samples);
    let directory = tempfile::tempdir().unwrap();
    for name in ["difference.heap", "difference.growth"] {
        let file = directory.path().join(name);
        profile.save(&file).unwrap();
        let raw = go_pprof(&go, &["-raw"], &file).stdout;
        for values in ["8       8000:", "-2      -2000:"] {
            assert!(raw.contains(values), "{name}: {raw}");
        }
        assert_eq!(Profile::open(&file).unwrap().total(1), 6000);
    }
}

/// Growth has no values of its own for what was allocated: readers pass over the brackets.
#[test]
fn growth_is_objects_and_bytes_alone() {
    let profile = profile_of(&HEAP, vec![(vec![0x1000], [1, 8, 2, 16])]);
    let text = String::from_utf8(written(&profile, Format::Growth)).unwrap();
    let read = Profile::read(text.as_bytes()).unwrap();
    assert_eq!(read.sample_types().len(), 2, "{text}");
    let other = text.replacen("[     2:", "[     9:", 1);
    assert_ne!(other, text);
    assert_eq!(
        Profile::read(other.as_bytes())
            .unwrap()
            .sample_types()
            .len(),
        2
    );
}

#[test]
fn what_a_text_cannot_hold_is_refused_with_a_sentence() {
    let sample = |values: [i64; 4]| vec![(vec![0x1000], values)];
    let profile = |types, values| profile_of(types, sample(values));
    let objects = [("objects", "count"), ("space", "bytes")];
    let contentions = [("contentions", "count"), ("delay", "nanoseconds")];
    let mut no_objects = Profile::new(HEAP.map(|(t, u)| ValueType::new(t, u)).into());
    no_objects.push_sample(&[], &[1, 1, 0, 1], &[]);
    let deep = profile_of(&objects, vec![(vec![0x7f00_0000_0000; 4500], [1; 4])]);
    let mut same_totals = sample([1, 8, 2, 16]);
    same_totals.extend(sample([2, 16, 1, 8]));
    let cases = [
        (
            profile(&contentions, [1; 4]),
            Format::Heap,
            "no inuse_objects/count and",
        ),
        (
            profile(&objects, [1; 4]),
            Format::Contention,
            "it has objects/count, space/bytes",
        ),
        (no_objects, Format::Heap, "bytes of no objects"),
        (
            profile(&objects, [-1, 1, 0, 0]),
            Format::Growth,
            "not negative",
        ),
        (
            profile(&contentions, [1, -1, 0, 0]),
            Format::Contention,
            "negative",
        ),
        (
            profile_of(&HEAP, same_totals),
            Format::Heap,
            "the same totals",
        ),
        (deep, Format::Growth, "a stack of 4500 frames"),
    ];
    for (profile, format, expected) in cases {
        let error = profile.write(format, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A delay is divided by them.
#[test]
fn google_pprof_reads_delays_of_no_contention() {
    let types = [("contentions", "count"), ("delay", "nanoseconds")];
    let samples = [[0, 30], [0, 0], [2, 40]];
    let at = |(nth, [n, ns]): (u64, [i64; 2])| (vec![0x1000 + nth], [n, ns, 0, 0]);
    let samples = (0..).zip(samples).map(at).collect();
    let text = written(&profile_of(&types, samples), Format::Contention);
    let back = Profile::read(&text).unwrap();
    let values: Vec<_> = back.samples().map(|sample| sample.values).collect();
    assert_eq!(values, [[1, 30], [2, 40]]);
    let Some(google_pprof) = tool("google-pprof") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("waits.contention");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(google_pprof);
    command.args(["--text", "--contentions", "/bin/true"]);
    let text = run(command.arg(file)).stdout;
    assert!(text.starts_with("Total: 3 "), "{text}");
}

#[test]
fn delays_are_kept_to_53_bits() {
    let types = [("contentions", "count"), ("delay", "nanoseconds")];
    let exact = 1i64 << 53;
    let delays = [exact - 1, exact, exact + 1, exact + 3];
    let samples = delays.map(|delay| (vec![0x1000], [1, delay, 0, 0]));
    let back = written(&profile_of(&types, samples.into()), Format::Contention);
    let back = Profile::read(&back).unwrap();
    let read: Vec<i64> = back.samples().map(|sample| sample.values[1]).collect();
    assert_eq!(read, [exact - 1, exact, exact, exact + 4]);
}

#[test]
fn the_size_of_objects_is_as_it_was_where_several_would_do() {
    let text = "heap profile: 3: 2072 [ 3: 2072] @ heap_v2/524288\n\
                2: 1048 [2: 1048] @ 0x1000\n1: 1024 [1: 1024] @ 0x2000\n";
    let profile = Profile::read(text.as_bytes()).unwrap();
    let back = Profile::read(&written(&profile, Format::Heap)).unwrap();
    assert_eq!(raw_samples(&back), raw_samples(&profile));
    // A profile that does not say the size has one when it is read.
    let mut unlabelled = Profile::new(profile.sample_types().to_vec());
    unlabelled.period_type = profile.period_type.clone();
    unlabelled.period = profile.period;
    for sample in profile.samples() {
        unlabelled.push_sample(&[], sample.values, &[]);
    }
    let back = Profile::read(&written(&unlabelled, Format::Heap)).unwrap();
    let expected = profile.samples().map(|s| s.values.to_vec());
    assert!(back.samples().map(|s| s.values.to_vec()).eq(expected));
    assert!(back.samples().all(|s| s.labels.len() == 1));
    let unit = StringId::default();
    assert!(back.samples().all(|s| matches!(s.labels[0].value,
        LabelValue::Num { value: 500..1100, unit: u } if u == unit)));
}

#[test]
fn mappings_stand_below_either_title() {
    for text in texts() {
        let profile = Profile::read(text.as_bytes()).unwrap();
        assert_eq!(profile.mappings().len(), 2, "{text}");
        let (title, other) = match text.contains("MAPPED_LIBRARIES:") {
            true => ("MAPPED_LIBRARIES:", "--- Memory map: ---"),
            false => ("--- Memory map: ---", "MAPPED_LIBRARIES:"),
        };
        let other = text.replace(title, other);
        assert_eq!(Profile::read(other.as_bytes()).unwrap(), profile, "{other}");
    }
}

#[test]
fn what_is_wrong_with_a_text_is_said_with_its_place() {
    let cases = [
        (
            "heap profile: 1: 2 [1: 2] @ heap_v3/5\n",
            "at byte 0 a line that names a kind of heap profile that is not known",
        ),
        (
            "heap profile: 1: 2\n",
            "at byte 0 a line that is not `objects: bytes [",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ heapprofile\n1: 2 [1: 2] 0x401136\n",
            "at byte 40 a line that is not `objects: bytes [",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ heapprofile\n0: 2 [1: 2] @ 0x401136\n",
            "at byte 40 a line that has bytes of no objects: `0: 2 [",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ growth\n1: 99999999999999999999 [1: 2] @\n",
            "a number that 64 bits do not hold",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ growth\n1: 2 [1: 2] @ 0x1 main\n",
            "something else than addresses at its end",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ growth\n1: 2 [1: 2] @ 0x12345678123456789\n",
            "an address that 64 bits do not hold",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ growth\nstray\n",
            "at byte 35 a line that lacks a number",
        ),
        (
            "--- contention:\nformat = java\n",
            "at byte 16 a line that has a key that is not known",
        ),
        ("--- contention:\n1 @ 0x1\n", "lacks a number"),
        ("--- contention:\n1 1 0x1\n", "is not `delay contentions @`"),
        (
            "--- contention:\nms since reset = 9223372036854775807\n",
            "64 bits of nanoseconds",
        ),
        (
            "--- contention:\nsampling period = 9223372036854775807\n1 2 @\n",
            "more contentions than 64 bits hold",
        ),
        (
            "--- threadz 1 ---\n--- Thread main ---\n",
            "at byte 18 a line that is not the head of a thread",
        ),
        (
            "heapz profile: total 3\n3 0x1\n",
            "at byte 23 a line that is not `count @`",
        ),
    ];
    for (text, expected) in cases {
        let error = Profile::read(text.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let message = error.to_string();
        assert!(message.contains(expected), "{text}{message}");
    }
}
