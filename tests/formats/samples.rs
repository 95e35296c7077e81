//! Profiles to try formats with.

use proptest::prelude::*;
use sigprof::Profile;
use sigprof::profile::{Function, Label, LabelValue, Line, Location, Mapping, ValueType};

/// A CPU profile by hand: recursion, inlined functions, labels, a frame without code, a location
/// without names.
pub fn by_hand() -> Profile {
    let mut p = Profile::new(vec![
        ValueType::new("samples", "count"),
        ValueType::new("cpu", "nanoseconds"),
    ]);
    p.period_type = ValueType::new("cpu", "nanoseconds");
    p.period = 10_000_000;
    p.time_nanos = 1_732_181_700_120_000_000;
    p.duration_nanos = 12_345_678_901;
    p.comments = vec!["engine: by hand".into(), "# not shown".into()];
    p.default_sample_type = "cpu".into();
    let main = p.push_mapping(Mapping {
        memory_start: 0x5000_0000_1000,
        memory_limit: 0x5000_0000_9000,
        file_offset: 0x1000,
        filename: "/opt/example/server".into(),
        build_id: "0123456789abcdef".into(),
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
    });
    let library = p.push_mapping(Mapping {
        memory_start: 0x7000_0000_1000,
        memory_limit: 0x7000_0000_9000,
        filename: "[vdso]".into(),
        build_id: "fe".into(),
        ..Mapping::default()
    });
    let mut function = |name: &str, system_name: &str, file: &str| {
        let function = Function {
            name: p.intern(name),
            system_name: p.intern(system_name),
            filename: p.intern(file),
            start_line: 7,
        };
        p.push_function(function)
    };
    let names = [
        function("main", "_main", "/src/main.rs"),
        function("server::serve", "_serve", "/src/serve.rs"),
        function(
            "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop",
            "_drop",
            "/src/vec.rs",
        ),
        function("server::parse", "_parse", "/src/parse.rs"),
        function("fib", "_fib", "/src/fib.rs"),
        function("[lost]", "[lost]", ""),
    ];
    let line = |i: usize, line| Line {
        function: names[i],
        line,
        column: 3,
    };
    let mut location = |address: u64, lines: Vec<Line>| {
        p.push_location(Location {
            mapping: match address {
                0 => None,
                0x7000_0000_0000u64.. => Some(library),
                _ => Some(main),
            },
            address,
            lines,
            is_folded: false,
        })
    };
    let base = 0x5000_0000_2000;
    let main_call = location(base + 0x0f, vec![line(0, 12)]);
    let serve_drop = location(base + 0x100, vec![line(2, 88), line(1, 21)]);
    let serve_parse = location(base + 0x123, vec![line(3, 5), line(1, 22)]);
    let drop_alone = location(base + 0x200, vec![line(2, 90)]);
    let serve_call = location(base + 0x145, vec![line(1, 30)]);
    let fib_call = location(base + 0x30f, vec![line(4, 2)]);
    let fib_leaf = location(base + 0x310, vec![line(4, 3)]);
    let vdso = location(0x7000_0000_1500, vec![]);
    let lost = location(0, vec![line(5, 0)]);

    let (thread, request, bytes, name) = (
        p.intern("thread"),
        p.intern("request_size"),
        p.intern("bytes"),
        p.intern("worker-1"),
    );
    let labels = [
        Label {
            key: thread,
            value: LabelValue::Str(name),
        },
        Label {
            key: request,
            value: LabelValue::Num {
                value: 512,
                unit: bytes,
            },
        },
    ];
    let mut sample = |stack: &[_], count: i64, labels: &[Label]| {
        p.push_sample(stack, &[count, count * 10_000_000], labels);
    };
    sample(&[serve_drop, main_call], 120, &labels);
    sample(&[serve_parse, main_call], 300, &[]);
    sample(&[drop_alone, serve_call, main_call], 31, &labels[..1]);
    sample(
        &[fib_leaf, fib_call, fib_call, fib_call, main_call],
        77,
        &[],
    );
    sample(&[fib_leaf, fib_call, main_call], 77, &labels);
    sample(&[vdso, main_call], 2, &[]);
    sample(&[lost], 5, &[]);
    sample(&[main_call], 1, &[]);
    p
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z]{1,6}",
        Just("core::ptr::drop_in_place<[ü]>".to_owned())
    ]
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![0..5i64, any::<i64>()]
}

/// Any profile that profile.proto can hold.
pub fn any_profile() -> impl Strategy<Value = Profile> {
    any_profile_with(number())
}

/// Any profile whose samples have such values.
pub fn any_profile_with(value: impl Strategy<Value = i64>) -> impl Strategy<Value = Profile> {
    let header = (
        prop::collection::vec(("[a-z]{1,4}", "[a-z]{1,4}"), 1..4),
        prop::collection::vec(text(), 7),
        prop::collection::vec(number(), 4),
        prop::collection::vec(text(), 0..3),
    );
    let tables = (
        prop::collection::vec(
            (any::<[u64; 3]>(), text(), text(), any::<[bool; 4]>()),
            0..4,
        ),
        prop::collection::vec((prop::collection::vec(text(), 3), number()), 0..5),
        prop::collection::vec(
            (
                any::<u8>(),
                any::<u64>(),
                prop::collection::vec((any::<u8>(), number(), number()), 0..3),
                any::<bool>(),
            ),
            0..8,
        ),
        prop::collection::vec(
            (
                prop::collection::vec(any::<u8>(), 0..6),
                prop::collection::vec(value, 3),
                prop::collection::vec((text(), text(), number(), any::<bool>()), 0..3),
            ),
            0..12,
        ),
    );
    (header, tables).prop_map(|((types, texts, numbers, comments), tables)| {
        let (mappings, functions, locations, samples) = tables;
        let mut types: Vec<_> = types;
        types.sort();
        types.dedup();
        let types: Vec<_> = types
            .into_iter()
            .map(|(t, u)| ValueType::new(t, u))
            .collect();
        let width = types.len();
        let mut p = Profile::new(types);
        let [a, b, c, d, e, f, ..] = &texts[..] else {
            unreachable!("seven texts")
        };
        p.period_type = ValueType::new(a.clone(), b.clone());
        p.default_sample_type = c.clone();
        (p.drop_frames, p.keep_frames, p.doc_url) = (d.clone(), e.clone(), f.clone());
        (p.period, p.time_nanos, p.duration_nanos) = (numbers[0], numbers[1], numbers[2]);
        p.comments = comments;
        let mapping_ids: Vec<_> = mappings
            .into_iter()
            .map(|([start, limit, offset], filename, build_id, flags)| {
                p.push_mapping(Mapping {
                    memory_start: start,
                    memory_limit: limit,
                    file_offset: offset,
                    filename,
                    build_id,
                    has_functions: flags[0],
                    has_filenames: flags[1],
                    has_line_numbers: flags[2],
                    has_inline_frames: flags[3],
                })
            })
            .collect();
        let function_ids: Vec<_> = functions
            .into_iter()
            .map(|(texts, start_line)| {
                let function = Function {
                    name: p.intern(&texts[0]),
                    system_name: p.intern(&texts[1]),
                    filename: p.intern(&texts[2]),
                    start_line,
                };
                p.push_function(function)
            })
            .collect();
        let pick = |choice: u8, len: usize| (len > 0).then(|| choice as usize % len);
        let location_ids: Vec<_> = locations
            .into_iter()
            .map(|(mapping, address, lines, is_folded)| {
                let lines = lines.into_iter().filter_map(|(function, line, column)| {
                    Some(Line {
                        function: function_ids[pick(function, function_ids.len())?],
                        line,
                        column,
                    })
                });
                p.push_location(Location {
                    mapping: pick(mapping, mapping_ids.len() + 1)
                        .and_then(|i| mapping_ids.get(i).copied()),
                    address,
                    lines: lines.collect(),
                    is_folded,
                })
            })
            .collect();
        for (stack, values, labels) in samples {
            let stack: Vec<_> = stack
                .into_iter()
                .filter_map(|l| Some(location_ids[pick(l, location_ids.len())?]))
                .collect();
            let labels: Vec<_> = labels
                .into_iter()
                .map(|(key, text, value, is_text)| Label {
                    key: p.intern(&key),
                    value: match is_text && !text.is_empty() {
                        true => LabelValue::Str(p.intern(&text)),
                        false => LabelValue::Num {
                            value,
                            unit: p.intern(&text),
                        },
                    },
                })
                .collect();
            p.push_sample(&stack, &values[..width], &labels);
        }
        p
    })
}
