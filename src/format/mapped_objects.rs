//! The text that legacy formats carry of a process's mappings, in `/proc/self/maps` form.
//!
//! Two readers have to understand it, and each takes from a line what the other cannot:
//!
//! - google/pprof (`profile/legacy_profile.go`) takes a build id only from its own "brief" line,
//!   `start-end r-xp path (@offset) buildid`, and attributes an address to the first mapping that
//!   holds it.
//! - The perl `google-pprof` (`ParseLibraries`) knows only the full line,
//!   `start-end r-xp offset dev inode path`.
//!
//! So each mapping is written twice: all brief lines first, which pprof then prefers, and all full
//! lines after them.
//!
//! Our own files end in [`MARKER`], a full line of a mapping without permissions, which both
//! readers skip. A file that has it holds exactly what was recorded; google/pprof's guesses about
//! other profilers' files are not for it.
//!
//! Frames that stand for no code (`[lost]`) have no address, and a legacy format has nothing but
//! addresses. Each such name is given an address that no processor can execute, and a mapping of
//! that one byte that bears the name. The addresses are high ones because `google-pprof` names what
//! lies below a program's first symbol after that symbol.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::charge;
use crate::Result;
use crate::profile::Mapping;

/// The last line of the files that we write.
pub(super) const MARKER: &str = "00000000-00000000 ---p 00000000 00:00 0 [sigprof]";

/// What stands for the name of a mapping that has none; a nameless line would let google/pprof
/// unite the mapping with its neighbour.
const NAMELESS: &str = "[anon]";

/// Placeholders lie from here up to [`PLACEHOLDER_LIMIT`]: beyond the address space of user
/// programs on x86_64 (57 bits at most, of which the kernel has the upper half) and aarch64 (52).
/// They are even, because google/pprof deletes a second frame whose address is the leaf's minus
/// one.
pub(super) const FIRST_PLACEHOLDER: u64 = 1 << 56;
/// One past the last address of placeholders.
pub(super) const PLACEHOLDER_LIMIT: u64 = FIRST_PLACEHOLDER + 4096;

/// A name and the address that stands for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Placeholder {
    pub address: u64,
    pub name: String,
}

/// What the text of a file says.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct MappedObjects {
    /// The executable mappings in the order of the text.
    pub mappings: Vec<Mapping>,
    /// The names without code; none unless `is_exact`.
    pub placeholders: Vec<Placeholder>,
    /// The file is one of ours.
    pub is_exact: bool,
}

/// The text for these mappings and placeholders.
pub(super) fn print(mappings: &[Mapping], placeholders: &[Placeholder]) -> String {
    let mut text = String::new();
    for m in mappings {
        let (start, limit, offset) = (m.memory_start, m.memory_limit, m.file_offset);
        let path = brief_path(&m.filename);
        // A reader takes nothing else for a build id.
        let build_id = match m.build_id.bytes().all(|b| b.is_ascii_hexdigit()) {
            true => m.build_id.as_str(),
            false => "",
        };
        let line = format!("{start:08x}-{limit:08x} r-xp {path} (@{offset:x}) {build_id}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for m in mappings {
        let range = (m.memory_start, m.memory_limit, m.file_offset);
        push_full_line(&mut text, range, full_path(&m.filename).as_str());
    }
    for p in placeholders {
        push_full_line(&mut text, (p.address, p.address + 1, 0), &p.name);
    }
    text.push_str(MARKER);
    text.push('\n');
    text
}

fn push_full_line(text: &mut String, (start, limit, offset): (u64, u64, u64), path: &str) {
    let attributes = format!("{start:08x}-{limit:08x} r-xp {offset:08x} 00:00 0 ");
    // The kernel's column for paths.
    let _ = writeln!(text, "{attributes:73}{path}");
}

/// The path as the kernel prints it: it escapes the newline and nothing else.
fn full_path(path: &str) -> String {
    match path {
        "" => NAMELESS.to_owned(),
        _ => path.replace('\n', "\\012").replace('\r', "\\015"),
    }
}

/// The path as one word, which is all that a brief line has room for.
fn brief_path(path: &str) -> String {
    let mut word = String::new();
    for c in full_path(path).chars() {
        match c.is_whitespace() {
            true => c
                .encode_utf8(&mut [0; 4])
                .bytes()
                .for_each(|b| word.push_str(&format!("\\{b:03o}"))),
            false => word.push(c),
        }
    }
    word
}

/// How much memory an entry takes while the text is read, in its own size.
const ENTRY_COPIES: usize = 4;

/// A line that describes a mapping.
struct Entry {
    mapping: Mapping,
    is_executable: bool,
    is_brief: bool,
}

/// Reads the text; lines that are no mapping are skipped, and so are mappings that cannot be
/// executed.
pub(super) fn parse(text: &[u8], memory: &mut u64) -> Result<MappedObjects> {
    let text = String::from_utf8_lossy(text);
    if let Cow::Owned(text) = &text {
        charge(memory, text.len())?;
    }
    let is_exact = text.lines().any(|line| line == MARKER);
    let mut entries: Vec<Entry> = Vec::new();
    let mut attributes = Attributes::default();
    for line in text.lines() {
        let line = attributes.replace(line);
        let Some(entry) = parse_line(&line) else {
            attributes.read(&line);
            continue;
        };
        if entry.is_executable {
            // Beside the entry there is its key for a while, and in the end a mapping.
            let strings = entry.mapping.filename.len() + entry.mapping.build_id.len();
            charge(memory, ENTRY_COPIES * (size_of::<Entry>() + strings))?;
            entries.push(entry);
        }
    }

    let mut objects = MappedObjects {
        is_exact,
        ..MappedObjects::default()
    };
    let is_placeholder = |m: &Mapping| {
        is_exact
            && (FIRST_PLACEHOLDER..PLACEHOLDER_LIMIT).contains(&m.memory_start)
            && m.memory_limit == m.memory_start + 1
            && is_placeholder_name(&m.filename)
    };
    // A brief line beside a full one of the same mapping adds the build id to it.
    let key = |m: &Mapping| (m.memory_start, m.memory_limit, brief_path(&m.filename));
    let mut full_lines: std::collections::HashMap<_, std::collections::VecDeque<usize>> =
        Default::default();
    for (i, entry) in entries.iter().enumerate() {
        if !entry.is_brief {
            full_lines
                .entry(key(&entry.mapping))
                .or_default()
                .push_back(i);
        }
    }
    let mut build_ids = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        if entry.is_brief
            && let Some(full) = full_lines.get_mut(&key(&entry.mapping))
            && let Some(full) = full.pop_front()
        {
            build_ids.push((i, full));
        }
    }
    for (brief, full) in build_ids {
        entries[full].mapping.build_id = std::mem::take(&mut entries[brief].mapping.build_id);
        entries[brief].is_executable = false;
    }
    for entry in entries.into_iter().filter(|entry| entry.is_executable) {
        let mut mapping = entry.mapping;
        if is_placeholder(&mapping) {
            objects.placeholders.push(Placeholder {
                address: mapping.memory_start,
                name: mapping.filename,
            });
            continue;
        }
        if is_exact && mapping.filename == NAMELESS {
            mapping.filename.clear();
        }
        objects.mappings.push(mapping);
    }
    Ok(objects)
}

/// Lines `name=value` before the mappings, which have `$name` for the value.
#[derive(Default)]
struct Attributes(Vec<(String, String)>);

impl Attributes {
    /// More than any program has written.
    const MOST: usize = 16;
    /// No line that is replaced becomes longer, in bytes: as long as paths are (PATH_MAX).
    const LONGEST: usize = 4096;

    fn read(&mut self, line: &str) {
        if let Some((name, value)) = line.split_once('=')
            && self.0.len() < Self::MOST
            && line.len() <= Self::LONGEST
        {
            self.0
                .push((format!("${}", name.trim()), value.trim().to_owned()));
        }
    }

    fn replace<'l>(&self, line: &'l str) -> Cow<'l, str> {
        if self.0.is_empty() || !line.contains('$') || line.len() > Self::LONGEST {
            return Cow::Borrowed(line);
        }
        let mut replaced = String::new();
        let mut rest = line;
        while let Some(dollar) = rest.find('$') {
            let (before, from_dollar) = rest.split_at(dollar);
            let mut attributes = self.0.iter();
            let (name, value) = attributes
                .find(|(name, _)| from_dollar.starts_with(name.as_str()))
                .map_or(("$", "$"), |(name, value)| (name, value));
            replaced.extend([before, value]);
            rest = &from_dollar[name.len()..];
            if replaced.len() + rest.len() > Self::LONGEST {
                return Cow::Borrowed(line);
            }
        }
        Cow::Owned(replaced + rest)
    }
}

/// Whether a name can stand for frames without code: a word in brackets.
pub(super) fn is_placeholder_name(name: &str) -> bool {
    let inner = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    let is_word = |c: char| !c.is_whitespace() && !c.is_control();
    inner.is_some_and(|inner| (1..=128).contains(&inner.len()) && inner.chars().all(is_word))
}

fn parse_line(line: &str) -> Option<Entry> {
    let mut rest = line;
    let (start, limit) = word(&mut rest)?.trim_end_matches(':').split_once('-')?;
    let mut mapping = Mapping {
        memory_start: hex(start.strip_prefix("0x").unwrap_or(start))?,
        memory_limit: hex(limit.strip_prefix("0x").unwrap_or(limit))?,
        ..Mapping::default()
    };
    let is_permissions = |w: &str| w.chars().all(|c| "-rwxps".contains(c));
    let mut after = rest;
    let permissions = word(&mut after).filter(|w| is_permissions(w));
    if permissions.is_some() {
        rest = after;
    }
    // Without permissions a mapping counts as executable, as google/pprof has it.
    let is_executable = permissions.is_none_or(|w| w.contains('x'));
    let full = full_line(rest);
    let is_brief = full.is_none();
    match full {
        Some((offset, path)) => {
            mapping.file_offset = offset;
            mapping.filename = path.strip_suffix(" (deleted)").unwrap_or(path).to_owned();
        }
        None => {
            mapping.filename = word(&mut rest).unwrap_or_default().to_owned();
            let mut after = rest;
            let offset = word(&mut after)
                .and_then(|w| w.strip_prefix("(@")?.strip_suffix(')'))
                .and_then(hex);
            if let Some(offset) = offset {
                mapping.file_offset = offset;
                rest = after;
            }
            let is_hex = |w: &&str| w.chars().all(|c| c.is_ascii_hexdigit());
            mapping.build_id = word(&mut rest).filter(is_hex).unwrap_or("").to_owned();
        }
    }
    Some(Entry {
        mapping,
        is_executable,
        is_brief,
    })
}

/// Offset and path of a line's `offset dev inode path`.
fn full_line(mut rest: &str) -> Option<(u64, &str)> {
    let offset = hex(word(&mut rest)?)?;
    let (major, minor) = word(&mut rest)?.split_once(':')?;
    hex(major)?;
    hex(minor)?;
    word(&mut rest)?.parse::<u64>().ok()?;
    Some((offset, rest.trim_start()))
}

/// Takes the next word off a line.
fn word<'l>(line: &mut &'l str) -> Option<&'l str> {
    let trimmed = line.trim_start();
    let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
    let (word, rest) = trimmed.split_at(end);
    *line = rest;
    (!word.is_empty()).then_some(word)
}

fn hex(digits: &str) -> Option<u64> {
    let is_hex = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(range: (u64, u64, u64), filename: &str, build_id: &str) -> Mapping {
        Mapping {
            memory_start: range.0,
            memory_limit: range.1,
            file_offset: range.2,
            filename: filename.to_owned(),
            build_id: build_id.to_owned(),
            ..Mapping::default()
        }
    }

    #[test]
    fn what_is_printed_is_read_back() {
        let objects = MappedObjects {
            mappings: vec![
                mapping((0x401000, 0x402000, 0x1000), "/bin/with space", "abcd"),
                mapping(
                    (0x7f00_0000_0000, 0x7f00_0000_1000, 0),
                    "/lib/libc.so.6",
                    "",
                ),
                mapping((0x7f00_0000_1000, 0x7f00_0000_2000, 0), "", "1234"),
                mapping((0x7fff_0000_0000, 0x7fff_0000_2000, 0), "[vdso]", "ff"),
            ],
            placeholders: vec![Placeholder {
                address: FIRST_PLACEHOLDER,
                name: "[lost]".to_owned(),
            }],
            is_exact: true,
        };
        let text = print(&objects.mappings, &objects.placeholders);
        assert_eq!(
            parse(text.as_bytes(), &mut u64::MAX.clone()).unwrap(),
            objects,
            "{text}"
        );
    }

    #[test]
    fn a_build_id_that_is_not_hexadecimal_is_left_out() {
        for build_id in ["go.build/id", "ab cd", "x"] {
            let text = print(&[mapping((0x1000, 0x2000, 0), "/bin/go", build_id)], &[]);
            assert!(
                text.starts_with("00001000-00002000 r-xp /bin/go (@0)\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn foreign_lines_are_understood() {
        let text = "00400000-00fcb000 r-xp 00000000 00:00 21306940    /bin/server (deleted)\n\
             build=/x\n\
             8000-9000 r-xp 00000000 00:00 0 $build/lib$.so\n\
             00fcb000-00ffe000 rw-p 00bca000 00:00 21306940    /bin/server\n\
             7000-8000 r-xs 00001000 00:00 0\n\
             0x40000-0x80000 /path/to/binary      (@FF00)            abc123456\n\
             40000000-40015000: /lib/ld-2.3.2.so\n";
        let expected = [
            mapping((0x400000, 0xfcb000, 0), "/bin/server", ""),
            mapping((0x8000, 0x9000, 0), "/x/lib$.so", ""),
            mapping((0x7000, 0x8000, 0x1000), "", ""),
            mapping((0x40000, 0x80000, 0xff00), "/path/to/binary", "abc123456"),
            mapping((0x40000000, 0x40015000, 0), "/lib/ld-2.3.2.so", ""),
        ];
        let objects = parse(text.as_bytes(), &mut u64::MAX.clone()).unwrap();
        assert_eq!(objects.mappings, expected);
        assert!(!objects.is_exact);
    }
}
