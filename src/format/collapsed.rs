//! Collapsed stacks: a line a stack, `main;work;sum 1200`, outermost frame first, with the sum of
//! the default sample type's values. Flame graphs are drawn from them.
//!
//! Source: Brendan Gregg's FlameGraph, `flamegraph.pl`, whose input inferno and speedscope read,
//! too.

use std::borrow::Cow;
use std::io::Write;
use std::mem::replace;

use hashbrown::HashMap;

use super::chunks::Chunks;
use super::lines::Lines;
use super::{NO_STACK, WriteError, charge, legacy};
use crate::error::Result;
use crate::profile::{
    Function, Line, Location, LocationId, Profile, SliceTable, StackId, ValueType,
};

/// What errors call such a file.
const WHAT: &str = "file of collapsed stacks";
/// The first line of files without stacks, and of those whose next line would be taken for the head
/// of another format. Readers of collapsed stacks leave lines without a number out.
const MARK: &str = "# collapsed stacks\n";
/// The name of a frame that has neither a name nor an address.
const UNKNOWN: &str = "[unknown]";
/// Bytes of memory that a line takes: a sample and its stack.
const LINE_MEMORY: usize = 64;
/// Bytes of memory that a name takes, whatever its length: a location, a function, a string.
const NAME_MEMORY: usize = 2 * size_of::<Location>() + 128;

/// Whether the file says itself that it holds collapsed stacks.
pub(super) fn is_marked(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK.as_bytes())
}

/// The frames of the first line that is no comment, if that is a stack and its value, and nothing
/// before its end is other than text.
pub(super) fn sniff(bytes: &[u8]) -> Option<&[u8]> {
    let first = Lines::new(bytes).find(|line| !is_comment(line.bytes))?;
    let mut read = bytes[..first.begin].iter().chain(first.bytes);
    let is_text = |byte: &u8| *byte >= b' ' || byte.is_ascii_whitespace();
    let (frames, _) = stack_and_value(first.bytes)?;
    read.all(is_text).then_some(frames)
}

/// Reads stacks as samples of the type `samples`, in the order of their lines.
pub(super) fn read(bytes: &[u8], mut memory: u64) -> Result<Profile> {
    let mut profile = Profile::new(vec![ValueType::new("samples", "count")]);
    let mut frames: HashMap<&[u8], LocationId> = HashMap::new();
    let mut stack = Vec::new();
    let mut fractions = 0u64;
    for line in Lines::new(bytes) {
        if is_comment(line.bytes) {
            continue;
        }
        let refuse = |reason: &str| line.refuse(WHAT, reason);
        let (names, value) = stack_and_value(line.bytes)
            .ok_or_else(|| refuse("does not end in a space and a number"))?;
        let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
        let value: i64 = whole
            .parse()
            .map_err(|_| refuse("has a number that 64 bits do not hold"))?;
        fractions += u64::from(fraction.bytes().any(|digit| digit != b'0'));
        stack.clear();
        if names != NO_STACK.as_bytes() {
            for name in names.split(|byte| *byte == b';').rev() {
                charge(&mut memory, size_of::<LocationId>())?;
                let location = match frames.get(name) {
                    Some(&location) => location,
                    None => {
                        charge(&mut memory, NAME_MEMORY + 3 * name.len())?;
                        let location = frame(&mut profile, &String::from_utf8_lossy(name));
                        frames.insert(name, location);
                        location
                    }
                };
                stack.push(location);
            }
        }
        charge(&mut memory, LINE_MEMORY)?;
        profile.push_sample(&stack, &[value], &[]);
    }
    if fractions > 0 {
        let comment = format!("{fractions} values had fractions, which are left out");
        profile.comments.push(comment);
    }
    Ok(profile)
}

fn is_comment(line: &[u8]) -> bool {
    line.is_empty() || line.starts_with(b"# ")
}

/// A line's frames, and the text of its number: digits, with a sign and a fraction perhaps.
fn stack_and_value(line: &[u8]) -> Option<(&[u8], &str)> {
    let space = line.iter().rposition(u8::is_ascii_whitespace)?;
    let value = str::from_utf8(&line[space + 1..]).ok()?;
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let is_value = !digits.is_empty() && is_number(digits) && is_number(fraction);
    is_value.then_some((line[..space].trim_ascii_end(), value))
}

/// The location of a frame: of an address, if the name is one, or of a function.
fn frame(profile: &mut Profile, name: &str) -> LocationId {
    let digits = name
        .strip_prefix("0x")
        .filter(|digits| !digits.starts_with('+'));
    let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let mut location = Location {
        address: address.unwrap_or(0),
        ..Location::default()
    };
    if location.address == 0 && name != UNKNOWN {
        let name = profile.intern(name);
        let function = profile.push_function(Function {
            name,
            ..Function::default()
        });
        location.lines.push(Line {
            function,
            line: 0,
            column: 0,
        });
    }
    profile.push_location(location)
}

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
    let mut is_first = true;
    for stack in order {
        for (depth, &frame) in stacks.get(stack).iter().enumerate() {
            if depth > 0 {
                out.buffer.push(b';');
            }
            let name = &frames.names[frame as usize];
            out.buffer.extend_from_slice(name.as_bytes());
        }
        writeln!(out.buffer, " {}", values[stack as usize])?;
        if replace(&mut is_first, false) && is_like_another(&out.buffer) {
            out.buffer.splice(..0, MARK.bytes());
        }
        out.drain()?;
    }
    if is_first {
        // No bytes at all would be no file of any format.
        out.buffer.extend_from_slice(MARK.as_bytes());
    }
    out.flush()
}

/// Whether a first line may be taken for that of another format, or for a comment there.
fn is_like_another(line: &[u8]) -> bool {
    line.starts_with(b"#") || legacy::sniff(line).is_some()
}

/// The stacks by their frames' names, outermost first, and the sum of each one's values.
fn sum(profile: &Profile, index: usize, frames: &Frames) -> (SliceTable<u32>, Vec<i64>) {
    let mut of_stack = vec![0i64; profile.stacks().len()];
    for (stack, values) in profile.stack_values() {
        let value = &mut of_stack[stack.index()];
        *value = value.saturating_add(values[index]);
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
            .map(|name| match as_frame(name) {
                frame if frame.trim_ascii().is_empty() => without_name(),
                frame => frame,
            })
            .collect(),
    }
}

/// A name without what ends a frame or a line, or begins a comment.
fn as_frame(name: &str) -> Cow<'_, str> {
    if name.contains(|c: char| c == ';' || c.is_control()) {
        let replaced = name.chars().map(|c| match c {
            ';' => ':',
            c if c.is_control() => ' ',
            c => c,
        });
        return as_frame(&replaced.collect::<String>()).into_owned().into();
    }
    // White space before it is none in a line.
    match name.trim_ascii_start().strip_prefix("# ") {
        Some(rest) => format!("#{rest}").into(),
        None => name.into(),
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
    fn what_is_written_is_read() {
        let profile = profile(&[
            (&[&["sum"], &["work", "inlines_it"], &["main"]], 30),
            (&[&[]], i64::MIN),
            (&[&["[unknown]"], &["main"]], 2),
            (&[], 7),
        ]);
        let text = collapsed(&profile);
        let read = Profile::read(text.as_bytes()).unwrap();
        assert_eq!(collapsed(&read), text);
        assert_eq!(read.total(0), profile.total(1));
        assert_eq!(read.sample_types(), [ValueType::new("samples", "count")]);
        assert_eq!(read.locations()[0].address, 0x401000);
    }

    #[test]
    fn a_first_line_like_that_of_another_format_is_read_as_what_it_is() {
        for name in [
            "heap profile:k",
            "heap profile: 1: 2 [3: 4] @ heap_v2/5",
            "--- contention:",
            "--- threadz 1 ---",
            "goroutine profile: total",
            "gmon",
            "#comment",
        ] {
            let profile = profile(&[(&[&[name]], 3), (&[&["heap profile:z"]], 2)]);
            let text = collapsed(&profile);
            let read = Profile::read(text.as_bytes()).unwrap();
            assert_eq!(collapsed(&read), text, "{name}");
            assert_eq!(read.total(0), 5, "{name}");
        }
    }

    #[test]
    fn no_name_begins_a_comment() {
        for name in ["# a", " # a", "#\0a", "\u{5}\0#\0a ", "# # a", "#;# a"] {
            let profile = profile(&[(&[&[name]], 3), (&[&[], &[name]], 4)]);
            let text = collapsed(&profile);
            let read = Profile::read(text.as_bytes()).unwrap();
            assert_eq!(read.total(0), 7, "{name:?} as {text}");
        }
    }

    #[test]
    fn a_blank_name_is_none() {
        let profile = profile(&[(&[&["\n "]], 3)]);
        assert_eq!(collapsed(&profile), "0x401000 3\n");
    }

    #[test]
    fn files_of_others_are_read() {
        let text =
            "# made by hand\n\n  \njava;[u8; 4]::at(int, int) 10\r\nmain 2.0\nmain;a b  3.75";
        let read = Profile::read(text.as_bytes()).unwrap();
        let expected = "java;[u8; 4]::at(int, int) 10\nmain 2\nmain;a b 3\n";
        assert_eq!(collapsed(&read), expected);
        assert_eq!(
            read.comments,
            ["1 values had fractions, which are left out"]
        );
    }

    #[test]
    fn a_line_that_is_none_is_said_with_its_place() {
        for (text, expected) in [
            (
                "main 1\nmain\n",
                "at byte 7 a line that does not end in a space and a number: `main`",
            ),
            ("main 1\nmain 99999999999999999999\n", "64 bits"),
        ] {
            let error = Profile::read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn no_stacks_are_a_file_that_is_read() {
        let text = collapsed(&profile(&[(&[&["main"]], 0)]));
        assert_eq!(text, MARK);
        assert_eq!(Profile::read(text.as_bytes()).unwrap().sample_count(), 0);
    }

    #[test]
    fn a_profile_without_values_is_refused() {
        let error = Profile::default().write(Format::Collapsed, &mut Vec::new());
        assert!(error.unwrap_err().to_string().contains("no sample types"));
    }
}
