//! Instructions of real libraries, by a disassembler that nobody here wrote.

use std::process::Command;

use super::instruction::decode;
use crate::process;
use crate::sys::maps::Maps;

/// One line of a disassembly.
struct Line {
    address: u64,
    code: Vec<u8>,
    /// The instruction and its operands, as AT&T writes them.
    text: String,
}

/// The instructions of a file; `None` where there is no disassembler.
fn disassembled(path: &str) -> Option<Vec<Line>> {
    let command = Command::new("objdump").args(["-d", "-w", path]).output();
    let output = command.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter_map(|line| {
        let mut columns = line.splitn(3, '\t');
        let address = columns.next()?.trim().strip_suffix(':')?;
        let code = columns.next()?.split_ascii_whitespace();
        let code: Option<Vec<u8>> = code.map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        Some(Line {
            address: u64::from_str_radix(address, 16).ok()?,
            code: code?,
            text: columns.next()?.to_owned(),
        })
    });
    Some(lines.collect())
}

/// What is no instruction of a program's to the disassembler, but data between functions; or a
/// prefix for a jump to leave out, which is one with what follows.
fn is_odd(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let first = words.next().unwrap_or_default();
    text.contains("(bad)") || first.starts_with("rex") || first == "lock" && words.next().is_none()
}

#[test]
fn lengths_are_those_of_a_disassembler() {
    let maps = Maps::read().unwrap();
    let code = maps
        .entries()
        .filter(|entry| entry.permissions.contains('x') && entry.path.contains(".so"));
    let (mut known, mut unknown) = (0, 0);
    for entry in code {
        let Some(lines) = disassembled(entry.path) else {
            process::skip("no objdump");
            return;
        };
        for line in lines.iter().filter(|line| !is_odd(&line.text)) {
            // A wait for the x87 unit stands before some of its instructions, and is one.
            let code = match line.code.split_first() {
                Some((0x9b, rest)) if !rest.is_empty() => rest,
                _ => &line.code,
            };
            let Some(instruction) = decode(code) else {
                unknown += 1;
                continue;
            };
            known += 1;
            let context = || format!("{} {:x}: {}", entry.path, line.address, line.text);
            assert_eq!(instruction.length, code.len(), "{}", context());
        }
    }
    process::figure!("{known} instructions as long as the disassembler says, {unknown} not known");
    assert!(unknown * 10_000 <= known);
}
