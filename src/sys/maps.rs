//! `/proc/self/maps`.
#![forbid(unsafe_code)]

use std::io;
use std::ops::Range;

use super::brief_file::{self, FileId};
use super::thread::current_tid;

/// One line: a range of the address space and what is mapped there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct MapsEntry<'m> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `rwxp` or `-` in each place; the last is `p` for private, `s` for shared.
    pub(crate) permissions: &'m str,
    /// The path as the kernel writes it; `[stack]` and the like; empty for anonymous memory.
    pub(crate) path: &'m str,
    /// Which file that is, if it is one.
    pub(crate) file: Option<FileId>,
}

impl MapsEntry<'_> {
    /// Whether it can be read and written: what a stack must be.
    pub(crate) fn is_writable(&self) -> bool {
        self.permissions.starts_with("rw")
    }
}

/// `/proc/self/maps`, read in one piece and parsed once.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    text: String,
    lines: Vec<Line>,
}

/// One line: what was parsed of it, and where in the text the rest lies.
#[derive(Clone, Debug)]
struct Line {
    start: u64,
    end: u64,
    permissions: Range<usize>,
    path: Range<usize>,
    file: Option<FileId>,
}

impl Maps {
    /// Reads the process's mappings as they are now.
    pub(crate) fn read() -> io::Result<Self> {
        // Not `/proc/self/maps`, which is empty once the thread that `main` ran on has ended.
        let path = format!("/proc/self/task/{}/maps", current_tid());
        let bytes = brief_file::read(&path)?;
        // A path of a file can be anything.
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        Ok(Self::of(text))
    }

    /// What a text of that form says.
    pub(crate) fn of(text: String) -> Self {
        let mut lines = Vec::with_capacity(text.len() / 64);
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            lines.extend(parse_line(line.as_bytes(), start));
            start += line.len();
        }
        Self { text, lines }
    }

    /// Its lines, in ascending order of addresses.
    pub(crate) fn entries(&self) -> impl Iterator<Item = MapsEntry<'_>> {
        self.lines.iter().map(|line| self.entry(line))
    }

    /// The line that holds an address.
    pub(crate) fn find(&self, address: u64) -> Option<MapsEntry<'_>> {
        let after = self.lines.partition_point(|line| line.start <= address);
        let line = self.lines.get(after.checked_sub(1)?)?;
        (address < line.end).then(|| self.entry(line))
    }

    fn entry(&self, line: &Line) -> MapsEntry<'_> {
        MapsEntry {
            start: line.start,
            end: line.end,
            permissions: &self.text[line.permissions.clone()],
            path: &self.text[line.path.clone()],
            file: line.file,
        }
    }
}

/// `start-end perms offset dev inode path`; a path may hold spaces. `at` is where in the text the
/// line begins.
fn parse_line(line: &[u8], at: usize) -> Option<Line> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let (start, dash) = hex(line, 0)?;
    let (end, space) = hex(line, dash + 1)?;
    if line.get(dash) != Some(&b'-') || line.get(space) != Some(&b' ') {
        return None;
    }
    let next_space = |from: usize| Some(from + line.get(from..)?.iter().position(|&b| b == b' ')?);
    let permissions = space + 1..next_space(space + 1)?;
    let offset_end = next_space(permissions.end + 1)?;
    let device_end = next_space(offset_end + 1)?;
    let inode_end = next_space(device_end + 1).unwrap_or(line.len());
    let padding = line[inode_end..].iter().position(|&b| b != b' ');
    let path = padding.map_or(line.len(), |padding| inode_end + padding)..line.len();
    Some(Line {
        start,
        end,
        permissions: at + permissions.start..at + permissions.end,
        path: at + path.start..at + path.end,
        file: file_id(&line[offset_end + 1..inode_end]),
    })
}

/// `major:minor inode`, the first two hexadecimal; an inode of 0 is no file.
fn file_id(text: &[u8]) -> Option<FileId> {
    let (major, colon) = hex(text, 0)?;
    let (minor, space) = hex(text, colon + 1)?;
    let inode = str::from_utf8(text.get(space + 1..)?).ok()?.parse().ok()?;
    let device = libc::makedev(u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
    (inode != 0).then_some(FileId { device, inode })
}

/// The hexadecimal number at a place, and where it ends.
fn hex(line: &[u8], from: usize) -> Option<(u64, usize)> {
    let digits = line.get(from..)?;
    let mut value = 0_u64;
    let mut len = 0;
    while let Some(digit) = digits.get(len).and_then(|&b| char::from(b).to_digit(16)) {
        value = value << 4 | u64::from(digit);
        len += 1;
    }
    (1..=16).contains(&len).then_some((value, from + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_files_anonymous_memory_and_spaces() {
        let parse = |text: &str| Maps::of(text.to_owned());
        let file =
            parse("7f2c-7f2d r-xp 00001000 fe:00 1234                       /tmp/a b (deleted)");
        let file = file.find(0x7f2c).unwrap();
        assert_eq!((file.start, file.end), (0x7f2c, 0x7f2d));
        assert_eq!(file.path, "/tmp/a b (deleted)");
        assert!(!file.is_writable());
        let (device, inode) = (libc::makedev(0xfe, 0), 1234);
        assert_eq!(file.file, Some(FileId { device, inode }));
        for line in [
            "1000-2000 rw-p 00000000 00:00 0 ",
            "1000-2000 rw-p 0 00:00 0",
        ] {
            let anonymous = parse(line);
            let anonymous = anonymous.find(0x1fff).unwrap();
            assert_eq!((anonymous.path, anonymous.file), ("", None));
            assert!(anonymous.is_writable());
        }
        for junk in [
            "",
            "junk",
            "1-",
            "1-2",
            "1-2 rw-p",
            "1-2 rw-p 0 0",
            "-2 rw-p 0 00:00 0 ",
        ] {
            assert!(parse(junk).entries().next().is_none(), "{junk:?}");
        }
    }

    #[test]
    fn finds_this_function_and_this_stack() {
        let maps = Maps::read().unwrap();
        let local = 0u8;
        let holds = |address: u64| maps.find(address).unwrap();
        assert!(holds(&raw const local as u64).is_writable());
        assert!(
            holds(parse_line as *const () as u64)
                .permissions
                .contains('x')
        );
    }
}
