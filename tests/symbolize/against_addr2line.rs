//! Names, files, lines and inlined frames of random addresses, with binutils as the judge.

use std::io::{Seek as _, Write as _};

use super::*;

/// What addr2line says about linked addresses: name, file and line, innermost first.
pub(super) fn addr2line(
    tool: &Path,
    path: &Path,
    addresses: &[u64],
) -> Vec<Vec<(String, String, i64)>> {
    let mut input = tempfile::tempfile().expect("a file can be made");
    for address in addresses {
        writeln!(input, "{address:#x}").expect("a file can be written");
    }
    input
        .rewind()
        .expect("a file can be read from its beginning");
    let mut command = Command::new(tool);
    command.args(["-f", "-i", "-a", "-e"]).arg(path);
    let output = process::output_of(&mut command, input.into()).expect("addr2line starts");

    let output = String::from_utf8_lossy(&output.stdout);
    let mut answers: Vec<Vec<(String, String, i64)>> = Vec::new();
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let position = lines.next().expect("a name is followed by a position");
        let position = position.split(" (discriminator").next().unwrap_or(position);
        let (file, number) = position.rsplit_once(':').expect("a position has a colon");
        answers.last_mut().expect("an address comes first").push((
            line.to_owned(),
            file.to_owned(),
            number.parse().unwrap_or(0),
        ));
    }
    assert_eq!(answers.len(), addresses.len());
    answers
}

/// The path without `.` and `..`, which tools resolve to different degrees.
pub(super) fn plain(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Random addresses in the functions of a file: between them, addr2line takes the nearest one.
fn sample(path: &Path, count: usize) -> Vec<u64> {
    let symbols = run(Command::new("nm").args(["-S", "--defined-only"]).arg(path));
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let functions: Vec<(u64, u64)> = symbols
        .lines()
        .filter_map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let [start, size, "t" | "T" | "w" | "W" | "i", _] = words[..] else {
                return None;
            };
            Some((hex(start)?, hex(size)?)).filter(|&(_, size)| size > 0)
        })
        .collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut addresses = HashSet::new();
    for _ in 0..2 * count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (start, size) = functions[state as usize % functions.len()];
        addresses.insert(start + (state >> 32) % size);
    }
    addresses.into_iter().take(count).collect()
}

/// Pairs of symbols for the same code, of which every tool may choose its own.
fn aliases(path: &Path) -> HashSet<(String, String)> {
    let symbols = run(Command::new("nm").args(["-n", "--defined-only"]).arg(path));
    let symbols: Vec<(&str, &str)> = symbols
        .lines()
        .filter_map(|line| Some((line.get(..16)?, line.get(19..)?)))
        .collect();
    symbols
        .chunk_by(|a, b| a.0 == b.0)
        .flat_map(|same| {
            same.iter()
                .flat_map(|a| same.iter().map(|b| (a.1.to_owned(), b.1.to_owned())))
        })
        .collect()
}

/// Compares with addr2line on random addresses; answers how many there were and how many differ.
fn compare(tool: &Path, path: &Path, count: usize) -> (usize, usize) {
    let (_, start, offset, _) = sections(path)
        .into_iter()
        .find(|section| section.0 == ".text")
        .expect("there is code");
    let addresses = sample(path, count);
    let expected = addr2line(tool, path, &addresses);
    let in_memory: Vec<u64> = addresses
        .iter()
        .map(|address| BASE + address - start + offset)
        .collect();
    let (mut profile, locations) = profile_of(mapping_of(path, &build_id(path)), &in_memory);
    symbolize(&mut profile);

    let aliases = aliases(path);
    let (mut known, mut different) = (0, 0);
    for ((&location, expected), address) in locations.iter().zip(&expected).zip(addresses) {
        if expected.iter().any(|(name, _, _)| name == "??") {
            continue;
        }
        known += 1;
        let found: Vec<_> = frames(&profile, location)
            .into_iter()
            .map(|frame| (frame.symbol().to_owned(), plain(&frame.file), frame.line))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, file, line)| {
                // Without a line, the file is the one that the symbol table names for a local
                // symbol.
                let file = match *line == 0 && !file.starts_with('/') {
                    true => String::new(),
                    false => plain(file),
                };
                (name.clone(), file, *line)
            })
            .collect();
        let is_alias = match (&found[..], &expected[..]) {
            ([(here, _, 0)], [(there, _, 0)]) => aliases.contains(&(here.clone(), there.clone())),
            _ => false,
        };
        if found != expected && !is_alias {
            different += 1;
            eprintln!("{address:#x}\n  here: {found:?}\n  addr2line: {expected:?}");
        }
    }
    (known, different)
}

#[test]
fn the_test_binary_as_addr2line_sees_it() {
    let Some(tool) = tool("addr2line") else {
        return;
    };
    let path = std::env::current_exe().expect("this is a program");
    let (known, different) = compare(&tool, &path, 2000);
    assert!(known > 1000, "addr2line knows {known} addresses");
    assert!(
        different * 100 <= known,
        "{different} of {known} addresses differ"
    );
}

#[test]
fn c_code_of_every_kind_as_addr2line_sees_it() {
    let Some(tool) = tool("addr2line") else {
        return;
    };
    for (name, flags) in [
        ("library.so", &["-g", "-shared", "-fPIC"][..]),
        ("pie", &["-g", "-pie", "-fPIE"]),
        ("fixed", &["-g", "-no-pie"]),
        ("fixed-static", &["-g", "-no-pie", "-static"]),
        ("static-pie", &["-g", "-static-pie", "-fPIE"]),
        ("compressed.so", &["-g", "-gz=zlib", "-shared", "-fPIC"]),
        ("dwarf4.so", &["-gdwarf-4", "-shared", "-fPIC"]),
        (
            "dwarf3.so",
            &["-gdwarf-3", "-gstrict-dwarf", "-shared", "-fPIC"],
        ),
        ("no-ranges-table.so", &["-g", "-shared", "-fPIC"]),
    ] {
        let Some((_directory, path)) = compile(name, flags) else {
            return;
        };
        if name == "no-ranges-table.so" {
            // As clang leaves it.
            let Some(objcopy) = self::tool("objcopy") else {
                return;
            };
            run(Command::new(objcopy)
                .args(["-R", ".debug_aranges"])
                .arg(&path));
        }
        let (known, different) = compare(&tool, &path, 100);
        assert!(known > 50, "{name}: {known} are known");
        assert_eq!(different, 0, "{name}");
    }
}
