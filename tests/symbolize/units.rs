//! Units that refer to other units, which no wanted address lies in.

use super::*;

/// A unit with one function, whose name is in the entry that follows it.
fn unit(function: &str, name: &str, name_abbreviation: &str) -> String {
    format!(
        ".text
        .globl {function}
        .type {function}, %function
        .size {function}, 16
{function}:
        .zero 16
        .section .debug_abbrev,\"\",%progbits
.Labbreviations:
        .byte 1, 0x11, 1, 0x11, 0x01, 0x12, 0x06, 0, 0 # a unit, low_pc, high_pc
        .byte 2, 0x2e, 0, 0x11, 0x01, 0x12, 0x06, {name_abbreviation}, 0, 0
        .byte 0
        .section .debug_info,\"\",%progbits
        .4byte .Lend - .Lversion
.Lversion:
        .2byte 4
        .4byte .Labbreviations
        .byte 8
        .byte 1
        .8byte {function}
        .4byte 16
        .globl entry_of_{function}
        .hidden entry_of_{function}
entry_of_{function}:
        .byte 2
        .8byte {function}
        .4byte 16
        {name}
        .byte 0
.Lend:
"
    )
}

#[test]
fn a_function_whose_name_another_unit_has() {
    let Some(gcc) = tool("gcc") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let origin = unit("original", ".asciz \"told_elsewhere\"", "0x03, 0x08");
    let other = unit("other", ".4byte entry_of_original", "0x31, 0x10");
    fs::write(directory.path().join("origin.s"), origin).expect("it can be written");
    fs::write(directory.path().join("other.s"), other).expect("it can be written");
    run(Command::new(gcc).current_dir(directory.path()).args([
        "-shared",
        "-nostdlib",
        "-o",
        "library.so",
        "origin.s",
        "other.s",
    ]));
    let path = directory.path().join("library.so");
    let address = symbol(&path, "other", &[]);
    let offset = BASE + file_offset(&path, address);
    let (mut profile, locations) = profile_of(mapping_of(&path, ""), &[offset]);
    let left = symbolize(&mut profile);
    assert_eq!(reasons(&left), "");
    let found = frames(&profile, locations[0]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].name, "told_elsewhere");
}
