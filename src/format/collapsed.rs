//! Collapsed stacks: a line a stack, `main;work;sum 1200`, outermost frame first, with the sum of
//! the default sample type's values. Flame graphs are drawn from them.
//!
//! Source: Brendan Gregg's FlameGraph, `flamegraph.pl`, whose input inferno and speedscope read,
//! too.

use std::borrow::Cow;
use std::io::Write;

use super::chunks::Chunks;
use super::{NO_STACK, WriteError};
use crate::profile::{Location, LocationId, Profile, SliceTable, StackId};

/// The name of a frame that has neither a name nor an address.
const UNKNOWN: &str = "[unknown]";

/// Lines in the order of their frames' names.
pub(super) fn write(profile: &Profile, out: &mut impl Write) -> Result<(), WriteError> {
    let index = profile.default_sample_index();
    if index >= profile.sample_types().len() {
        return Err(WriteError::unfit(
            "collapsed stacks have a value each, and this profile has no sample types",
        ));
    }
    let frames = Frames::of(profile);
    let (stacks, values) = sum(profile, index, &frames);
    let mut order: Vec<u32> = (0..stacks.len() as u32).collect();
    order.retain(|&stack| values[stack as usize] != 0);
    order.sort_unstable_by_key(|&stack| stacks.get(stack));
    let mut out = Chunks::new(out);
    for stack in order {
        for (depth, &frame) in stacks.get(stack).iter().enumerate() {
            if depth > 0 {
                out.buffer.push(b';');
            }
            let name = &frames.names[frame as usize];
            out.buffer.extend_from_slice(name.as_bytes());
        }
        writeln!(out.buffer, " {}", values[stack as usize])?;
        out.drain()?;
    }
    out.flush()
}

/// The stacks by their frames' names, outermost first, and the sum of each one's values.
fn sum(profile: &Profile, index: usize, frames: &Frames) -> (SliceTable<u32>, Vec<i64>) {
    let mut of_stack = vec![0i64; profile.stacks().len()];
    for sample in profile.samples() {
        let value = &mut of_stack[sample.stack_id.index()];
        *value = value.saturating_add(sample.values[index]);
    }
    let mut stacks = SliceTable::default();
    let mut values: Vec<i64> = Vec::new();
    let mut chain = Vec::new();
    for (i, value) in of_stack.into_iter().enumerate() {
        chain.clear();
        match profile.stacks().get(StackId(i as u32)) {
            [] => chain.push(frames.no_stack),
            stack => chain.extend(stack.iter().rev().flat_map(|&location| frames.at(location))),
        }
        let stack = stacks.intern(&chain) as usize;
        if stack == values.len() {
            values.push(0);
        }
        values[stack] = values[stack].saturating_add(value);
    }
    (stacks, values)
}

/// What frames are written as.
struct Frames<'p> {
    /// Each once, sorted: a frame is a position here.
    names: Vec<Cow<'p, str>>,
    /// By location, outermost first.
    of_location: Vec<Box<[u32]>>,
    no_stack: u32,
}

impl<'p> Frames<'p> {
    fn of(profile: &'p Profile) -> Self {
        let locations = profile.locations().iter();
        let of_location: Vec<_> = locations.map(|l| names_of(profile, l)).collect();
        let mut names: Vec<_> = of_location.iter().flatten().cloned().collect();
        names.push(NO_STACK.into());
        names.sort_unstable();
        names.dedup();
        let position = |name: &str| {
            let found = names.binary_search_by(|known| known.as_ref().cmp(name));
            found.unwrap_or_else(|place| place) as u32
        };
        let of_location = of_location.iter();
        Self {
            of_location: of_location
                .map(|frames| frames.iter().map(|name| position(name)).collect())
                .collect(),
            no_stack: position(NO_STACK),
            names,
        }
    }

    fn at(&self, location: LocationId) -> impl Iterator<Item = u32> {
        self.of_location[location.index()].iter().copied()
    }
}

/// The functions of a location, outermost first; where none is known, its address.
fn names_of<'p>(profile: &'p Profile, location: &Location) -> Vec<Cow<'p, str>> {
    let lines = location.lines.iter().rev();
    let names = lines.map(|line| profile.string(profile.function(line.function).name));
    let without_name = || match location.address {
        0 => Cow::from(UNKNOWN),
        address => format!("{address:#x}").into(),
    };
    match location.lines.is_empty() {
        true => vec![without_name()],
        false => names
            .map(|name| match name {
                "" => without_name(),
                name => as_frame(name),
            })
            .collect(),
    }
}

/// A name without what ends a frame or a line.
fn as_frame(name: &str) -> Cow<'_, str> {
    match name.contains(|c: char| c == ';' || c.is_control()) {
        false => name.into(),
        true => name
            .chars()
            .map(|c| match c {
                ';' => ':',
                c if c.is_control() => ' ',
                c => c,
            })
            .collect::<String>()
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::profile::{Function, Line, ValueType};

    /// A profile of these samples: the names of each frame's functions, leaf and innermost first,
    /// and a value.
    fn profile(samples: &[(&[&[&str]], i64)]) -> Profile {
        let types = [("samples", "count"), ("cpu", "nanoseconds")];
        let mut profile = Profile::new(types.map(|(t, u)| ValueType::new(t, u)).into());
        for (frames, value) in samples {
            let stack: Vec<LocationId> = (frames.iter())
                .map(|names| {
                    let mut location = Location {
                        address: 0x401000,
                        ..Location::default()
                    };
                    for name in *names {
                        let name = profile.intern(name);
                        let function = profile.push_function(Function {
                            name,
                            ..Function::default()
                        });
                        location.lines.push(Line {
                            function,
                            line: 1,
                            column: 0,
                        });
                    }
                    profile.push_location(location)
                })
                .collect();
            profile.push_sample(&stack, &[1, *value], &[]);
        }
        profile
    }

    fn collapsed(profile: &Profile) -> String {
        let mut text = Vec::new();
        profile.write(Format::Collapsed, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_are_sums_of_stacks_of_equal_names_in_their_order() {
        let profile = profile(&[
            (&[&["sum"], &["work", "inlines_it"], &["main"]], 30),
            (&[&["main"]], 5),
            (&[&["sum"], &["work", "inlines_it"], &["main"]], 12),
            (&[&["idle"], &["main"]], 0),
            (&[], 7),
        ]);
        let expected = "[no-stack] 7\nmain 5\nmain;inlines_it;work;sum 42\n";
        assert_eq!(collapsed(&profile), expected);
    }

    #[test]
    fn a_name_ends_neither_frame_nor_line_and_an_address_stands_for_none() {
        let profile = profile(&[(&[&["[u8; 4]::at\n"], &[""], &[]], -3)]);
        assert_eq!(collapsed(&profile), "0x401000;0x401000;[u8: 4]::at  -3\n");
    }

    #[test]
    fn a_profile_without_values_is_refused() {
        let error = Profile::default().write(Format::Collapsed, &mut Vec::new());
        assert!(error.unwrap_err().to_string().contains("no sample types"));
    }
}
