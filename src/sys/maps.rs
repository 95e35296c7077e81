//! `/proc/self/maps`.
#![forbid(unsafe_code)]

use std::fs;
use std::io;

use super::fork::holding_off_forks;

/// One line: a range of the address space and what is mapped there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct MapsEntry<'m> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `rwxp` or `-` in each place; the last is `p` for private, `s` for shared.
    pub(crate) permissions: &'m str,
    /// The path as the kernel writes it; `[stack]` and the like; empty for anonymous memory.
    pub(crate) path: &'m str,
}

impl MapsEntry<'_> {
    /// Whether it can be read and written: what a stack must be.
    pub(crate) fn is_writable(&self) -> bool {
        self.permissions.starts_with("rw")
    }
}

/// The text of `/proc/self/maps`, read in one piece.
#[derive(Debug, Default)]
pub(crate) struct Maps(String);

impl Maps {
    /// Reads the process's mappings as they are now.
    pub(crate) fn read() -> io::Result<Self> {
        let bytes = holding_off_forks(|| fs::read("/proc/self/maps"))?;
        Ok(Self(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Its lines, in ascending order of addresses.
    pub(crate) fn entries(&self) -> impl Iterator<Item = MapsEntry<'_>> {
        self.0.lines().filter_map(parse_line)
    }
}

/// `start-end perms offset dev inode   path`; a path may hold spaces.
fn parse_line(line: &str) -> Option<MapsEntry<'_>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (_offset, rest) = rest.split_once(' ')?;
    let (_device, rest) = rest.split_once(' ')?;
    let path = match rest.split_once(' ') {
        Some((_inode, path)) => path.trim_start_matches(' '),
        None => "",
    };
    Some(MapsEntry {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        permissions,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_files_anonymous_memory_and_spaces() {
        let file = parse_line(
            "7f2c-7f2d r-xp 00001000 fe:00 1234                       /tmp/a b (deleted)",
        )
        .unwrap();
        assert_eq!((file.start, file.end), (0x7f2c, 0x7f2d));
        assert_eq!(file.path, "/tmp/a b (deleted)");
        assert!(!file.is_writable());
        let anonymous = parse_line("1000-2000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(anonymous.path, "");
        assert!(anonymous.is_writable());
        assert_eq!(parse_line("junk"), None);
    }

    #[test]
    fn finds_this_function_and_this_stack() {
        let maps = Maps::read().unwrap();
        let local = 0u8;
        let holds = |address: u64| {
            maps.entries()
                .find(|e| e.start <= address && address < e.end)
                .unwrap()
        };
        assert!(holds(&raw const local as u64).is_writable());
        assert!(
            holds(parse_line as *const () as u64)
                .permissions
                .contains('x')
        );
    }
}
