//! A profile as large as one likes, for tests and benchmarks.

use sigprof::Profile;
use sigprof::profile::{Function, Label, LabelValue, Line, Location, Mapping, ValueType};

/// A large profile: `samples` samples, each of one of `stacks` stacks of `depth` frames, in no
/// order.
pub fn large(samples: usize, stacks: usize, depth: usize) -> Profile {
    let mut p = Profile::new(vec![
        ValueType::new("samples", "count"),
        ValueType::new("cpu", "nanoseconds"),
    ]);
    p.period_type = ValueType::new("cpu", "nanoseconds");
    p.period = 1_000_000;
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let mapping = p.push_mapping(Mapping {
        memory_start: 0x1000,
        memory_limit: 0x1000_0000,
        filename: "/bin/large".into(),
        ..Mapping::default()
    });
    let locations: Vec<_> = (0..20_000)
        .map(|i| {
            let name = p.intern(&format!("module::function_{i}"));
            let function = p.push_function(Function {
                name,
                system_name: name,
                ..Function::default()
            });
            p.push_location(Location {
                mapping: Some(mapping),
                address: 0x1000 + i * 64,
                lines: vec![Line {
                    function,
                    line: i as i64,
                    column: 0,
                }],
                is_folded: false,
            })
        })
        .collect();
    let threads: Vec<_> = (0..16)
        .map(|i| Label {
            key: p.intern("thread"),
            value: LabelValue::Str(p.intern(&format!("worker-{i}"))),
        })
        .collect();
    // Stacks share their outer parts, as a program's do.
    let mut all: Vec<Vec<_>> = Vec::with_capacity(stacks);
    for i in 0..stacks {
        let mut stack: Vec<_> = (0..depth).map(|_| locations[random(20_000)]).collect();
        if i > 0 {
            let shared = random(depth);
            let other = &all[random(i)];
            stack[shared..].copy_from_slice(&other[shared..]);
        }
        all.push(stack);
    }
    for i in 0..samples {
        let stack = if i < stacks { i } else { random(stacks) };
        let thread = threads[random(16)];
        p.push_sample(&all[stack], &[1, 1_000_000], &[thread]);
    }
    p
}
