//! Debug information that refers to itself until reading it takes hours and all memory: a comment
//! says so, and symbols name what is left.

use super::*;
use crate::compressed::{MOST_KIB, peak};

/// A unit around entries, with the function `exported` of 16 bytes in front of all of them.
fn unit(entries: &str) -> String {
    format!(
        "
        .4byte 2f - 1f
1:      .2byte 4
        .4byte .Labbreviations
        .byte 8
        .byte 1
        .8byte exported
        .4byte 16
        .4byte .Llines
        {entries}
        .byte 0
2:"
    )
}

/// An inlined call in all of the function.
const INLINED: &str = "
        .byte 3
        .8byte exported
        .4byte 16";
/// An inlined call, where a list of ranges says.
const INLINED_BY_LIST: &str = "
        .byte 4
        .4byte .Lranges";
const FUNCTION: &str = "
        .byte 2
        .8byte exported
        .4byte 16";

/// A library with one function, and this debug information.
#[derive(Default)]
struct Hostile<'h> {
    units: &'h str,
    ranges: &'h str,
    lines: &'h str,
    /// What the first entry of a unit has beside what all have.
    more_attributes: &'h str,
}

impl Hostile<'_> {
    /// Symbolizes the function. It has its name, and what one comment says is the answer.
    #[track_caller]
    fn left(&self) -> Option<String> {
        let (gcc, _, _) = (tool("gcc")?, tool("readelf")?, tool("nm")?);
        let Self {
            units,
            ranges,
            lines,
            more_attributes,
        } = self;
        let source = format!(
            "
        .text
        .globl exported
        .type exported, %function
        .size exported, 16
exported:
        .zero 16
        .section .debug_abbrev,\"\",%progbits
.Labbreviations:
        .byte 1, 0x11, 1, 0x11, 0x01, 0x12, 0x06, 0x10, 0x17 # low_pc, high_pc, stmt_list
        {more_attributes}
        .byte 0, 0
        .byte 2, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0, 0 # subprogram
        .byte 3, 0x1d, 1, 0x11, 0x01, 0x12, 0x06, 0, 0 # inlined_subroutine
        .byte 4, 0x1d, 0, 0x55, 0x17, 0, 0 # inlined_subroutine, ranges
        .byte 0
        .section .debug_ranges,\"\",%progbits
.Lranges:
        {ranges}
        .8byte 0, 0
        .section .debug_line,\"\",%progbits
.Llines:
        .4byte 2f - 1f
1:      .2byte 4
        .4byte 4f - 3f
3:      .byte 1, 1, 1, -5, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0
        .byte 0
        .asciz \"code.c\"
        .byte 0, 0, 0, 0
4:      .byte 0, 9, 2 # DW_LNE_set_address
        .8byte exported
        {lines}
        .byte 2, 16 # DW_LNS_advance_pc
        .byte 0, 1, 1 # DW_LNE_end_sequence
2:
        .section .debug_info,\"\",%progbits
        {units}
        .section .note.GNU-stack, \"\", %progbits
"
        );
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        fs::write(directory.path().join("code.s"), source).expect("it can be written");
        let mut gcc = Command::new(gcc);
        gcc.args(["-shared", "-nostdlib", "-Wl,--build-id", "-o", "library.so"])
            .arg("code.s");
        run(gcc.current_dir(directory.path()));
        let path = directory.path().join("library.so");
        let offset = file_offset(&path, symbol(&path, "exported", &[]));
        let mapping = mapping_of(&path, &build_id(&path));
        let (mut profile, locations) = profile_of(mapping, &[BASE + offset + 4]);
        let mut left = Vec::new();
        let peak = peak(|| left = symbolize(&mut profile));
        assert!(peak < MOST_KIB, "{peak} KiB");
        let left = reasons(&left);
        let frames = frames(&profile, locations[0]);
        let function = frames.last().expect("the symbol table names it");
        assert_eq!(function.name, "exported", "{left}");
        assert!(left.lines().count() <= 1, "{left}");
        Some(left)
    }
}

#[test]
fn whole_debug_information_of_this_kind_is_read() {
    let hostile = Hostile {
        units: &unit(&format!(
            "{FUNCTION}{INLINED}{INLINED_BY_LIST} \n.byte 0, 0"
        )),
        ranges: ".8byte exported, exported + 16",
        lines: ".byte 20",
        ..Hostile::default()
    };
    if let Some(left) = hostile.left() {
        assert_eq!(left, "");
    }
}

#[test]
fn calls_that_are_inlined_in_each_other_without_end() {
    let hostile = Hostile {
        units: &unit(&format!(
            "{FUNCTION}\n.rept 20000\n{INLINED}\n.endr\n.zero 20001"
        )),
        ..Hostile::default()
    };
    if let Some(left) = hostile.left() {
        assert!(left.contains("inlined in each other"), "{left}");
    }
}

const TOO_MUCH: &str = "it takes far more work than its size explains";

#[test]
fn many_units_with_one_table_of_lines() {
    let hostile = Hostile {
        units: &format!(".rept 400\n{}\n.endr", unit("")),
        // Each a row.
        lines: ".rept 1000000\n.byte 20\n.endr",
        ..Hostile::default()
    };
    if let Some(left) = hostile.left() {
        assert!(left.contains(TOO_MUCH), "{left}");
    }
}

#[test]
fn many_inlined_calls_with_one_list_of_ranges() {
    let hostile = Hostile {
        units: &unit(&format!(
            "{FUNCTION}\n.rept 20000\n{INLINED_BY_LIST}\n.endr\n.byte 0"
        )),
        ranges: ".rept 20000\n.8byte exported, exported + 16\n.endr",
        ..Hostile::default()
    };
    if let Some(left) = hostile.left() {
        assert!(left.contains(TOO_MUCH), "{left}");
    }
}

#[test]
fn many_units_with_one_long_abbreviation() {
    let hostile = Hostile {
        units: &format!(".rept 20000\n{}\n.endr", unit("")),
        // `DW_AT_external`, which takes no byte in an entry.
        more_attributes: ".rept 100000\n.byte 0x3f, 0x19\n.endr",
        ..Hostile::default()
    };
    if let Some(left) = hostile.left() {
        assert!(left.contains(TOO_MUCH), "{left}");
    }
}

/// A symbol's name may be the end of another symbol's.
#[test]
fn many_symbols_whose_names_are_ends_of_one_long_string() {
    let (Some(gcc), Some(_), Some(_)) = (tool("gcc"), tool("readelf"), tool("nm")) else {
        return;
    };
    const SYMBOLS: u64 = 300;
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let long = "long".repeat(5_000);
    // Linkers that share the ends of strings do so here.
    let symbols: String = (0..SYMBOLS as usize)
        .map(|i| {
            let name = &long[i * 4..];
            format!("{name}:\n.byte 0\n.type {name}, %function\n.size {name}, 1\n")
        })
        .collect();
    let source = format!(".text\n{symbols}\n.section .note.GNU-stack, \"\", %progbits\n");
    fs::write(directory.path().join("code.s"), source).expect("it can be written");
    let mut gcc = Command::new(gcc);
    gcc.args(["-shared", "-nostdlib", "-Wl,--build-id", "-o", "library.so"])
        .arg("code.s");
    run(gcc.current_dir(directory.path()));
    let path = directory.path().join("library.so");
    let begin = BASE + file_offset(&path, symbol(&path, &long, &[]));
    let addresses: Vec<_> = (begin..begin + SYMBOLS).collect();
    let (mut profile, locations) = profile_of(mapping_of(&path, &build_id(&path)), &addresses);
    let mut left = Vec::new();
    let peak = peak(|| left = symbolize(&mut profile));
    assert!(peak < MOST_KIB, "{peak} KiB");
    let left = reasons(&left);
    assert!(left.contains("its names are far too long"), "{left}");
    assert_eq!(frames(&profile, locations[0])[0].name, long);
}
