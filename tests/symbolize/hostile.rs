//! Debug information that refers to itself until reading it takes hours and all memory: a comment
//! says so, and symbols name what is left.

use super::*;
use crate::compressed::{MOST_KIB, peak};

fn compiler() -> Option<PathBuf> {
    let (gcc, _, _) = (tool("gcc")?, tool("readelf")?, tool("nm")?);
    Some(gcc)
}

/// The frames at these offsets in `exported`, which this assembly has, and what stood in the way.
/// Sections are compressed as far as the linker can.
#[track_caller]
fn symbolized(
    gcc: PathBuf,
    source: impl AsRef<[u8]>,
    offsets: &[u64],
) -> (Vec<Vec<Frame>>, String) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    fs::write(directory.path().join("code.s"), source).expect("it can be written");
    let mut gcc = Command::new(gcc);
    gcc.args(["-shared", "-nostdlib", "-Wl,--build-id", "-o", "library.so"])
        .args(["-Wl,--compress-debug-sections=zlib", "code.s"]);
    run(gcc.current_dir(directory.path()));
    let path = directory.path().join("library.so");
    let begin = BASE + file_offset(&path, symbol(&path, "exported", &[]));
    let addresses: Vec<_> = offsets.iter().map(|offset| begin + offset).collect();
    let (mut profile, locations) = profile_of(mapping_of(&path, &build_id(&path)), &addresses);
    let mut left = Vec::new();
    let peak = peak(|| left = symbolize(&mut profile));
    assert!(peak < MOST_KIB, "{peak} KiB");
    let found = locations.iter().map(|&location| frames(&profile, location));
    (found.collect(), reasons(&left))
}

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
    #[track_caller]
    fn assert_too_much(&self) {
        if let Some(left) = self.left() {
            assert!(left.contains(TOO_MUCH), "{left}");
        }
    }

    /// Symbolizes the function. It has its name, and what one comment says is the answer.
    #[track_caller]
    fn left(&self) -> Option<String> {
        let gcc = compiler()?;
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
        let (found, left) = symbolized(gcc, &source, &[4]);
        let function = found[0].last().expect("the symbol table names it");
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
    hostile.assert_too_much();
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
    hostile.assert_too_much();
}

#[test]
fn many_units_with_one_long_abbreviation() {
    let hostile = Hostile {
        units: &format!(".rept 20000\n{}\n.endr", unit("")),
        // `DW_AT_external`, which takes no byte in an entry.
        more_attributes: ".rept 100000\n.byte 0x3f, 0x19\n.endr",
        ..Hostile::default()
    };
    hostile.assert_too_much();
}

/// A symbol's name may be the end of another symbol's.
#[test]
fn many_symbols_whose_names_are_ends_of_one_long_string() {
    let Some(gcc) = compiler() else { return };
    const SYMBOLS: u64 = 300;
    let long = "long".repeat(5_000);
    // Linkers that share the ends of strings do so here.
    let symbols: String = (0..SYMBOLS as usize)
        .map(|i| {
            let name = &long[i * 4..];
            format!("{name}:\n.byte 0\n.type {name}, %function\n.size {name}, 1\n")
        })
        .collect();
    let source = format!(
        ".text
        .globl exported
exported:
        {symbols}
        .section .note.GNU-stack, \"\", %progbits
"
    );
    let offsets: Vec<u64> = (0..SYMBOLS).collect();
    let (found, left) = symbolized(gcc, source, &offsets);
    assert!(left.contains("its names are far too long"), "{left}");
    assert_eq!(found[0][0].name, long);
}

/// A function of so many bytes in front of what else there is.
fn function(bytes: usize, rest: &str) -> String {
    format!(
        ".text
        .globl exported
        .type exported, %function
        .size exported, {bytes}
exported:
        .zero {bytes}
        {rest}
        .section .note.GNU-stack, \"\", %progbits
"
    )
}

/// Each has a name of its own length, were it copied for each.
#[test]
fn many_skeletons_with_one_long_name() {
    let Some(gcc) = compiler() else { return };
    let source = function(
        16,
        ".section .debug_abbrev,\"\",%progbits
        .byte 1, 0x4a, 0 # skeleton_unit
        .byte 0x76, 0x0e, 0x1b, 0x0e # dwo_name, comp_dir
        .byte 0x11, 0x01, 0x12, 0x06 # low_pc, high_pc
        .byte 0, 0, 0
        .section .debug_str,\"\",%progbits
        .fill 1 << 20, 1, 'a'
        .byte 0
        .section .debug_info,\"\",%progbits
        .set id, 0
        .rept 1000
        .4byte 2f - 1f
1:      .2byte 5
        .byte 4, 8 # skeleton
        .4byte 0
        .8byte id
        .byte 1
        .4byte 0, 0
        .8byte exported
        .4byte 16
2:
        .set id, id + 1
        .endr",
    );
    let (found, left) = symbolized(gcc, &source, &[4]);
    assert_eq!(found[0][0].name, "exported", "{left}");
    assert_eq!(left.lines().count(), 1, "{left}");
}

/// Each looks through all of the file.
#[test]
fn many_skeletons_of_one_file() {
    let Some(gcc) = compiler() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let split = ".section .debug_abbrev.dwo,\"\",%progbits
        .byte 1, 0x11, 0, 0x13, 0x0b, 0, 0, 0 # compile_unit, language
        .section .debug_info.dwo,\"\",%progbits
        .rept 50000
        .4byte 18
        .2byte 5
        .byte 5, 8 # split_compile
        .4byte 0
        .8byte 0
        .byte 1, 2
        .endr
";
    fs::write(directory.path().join("split.s"), split).expect("it can be written");
    let mut assembler = Command::new(&gcc);
    assembler.args(["-c", "split.s", "-o", "split.dwo"]);
    run(assembler.current_dir(directory.path()));
    let source = function(
        16,
        &format!(
            ".section .debug_abbrev,\"\",%progbits
        .byte 1, 0x4a, 0 # skeleton_unit
        .byte 0x76, 0x08 # dwo_name
        .byte 0x11, 0x01, 0x12, 0x06 # low_pc, high_pc
        .byte 0, 0, 0
        .section .debug_info,\"\",%progbits
        .set id, 1
        .rept 3000
        .4byte 2f - 1f
1:      .2byte 5
        .byte 4, 8 # skeleton
        .4byte 0
        .8byte id
        .byte 1
        .asciz \"{}/split.dwo\"
        .8byte exported
        .4byte 16
2:
        .set id, id + 1
        .endr",
            directory.path().display()
        ),
    );
    let (found, left) = symbolized(gcc, &source, &[4]);
    assert_eq!(found[0][0].name, "exported", "{left}");
    assert!(left.contains(TOO_MUCH), "{left}");
    assert_eq!(left.lines().count(), 1, "{left}");
}

/// The name is looked at for each call at each address.
#[test]
fn many_inlined_calls_with_one_long_name_at_many_addresses() {
    let Some(gcc) = compiler() else { return };
    const BYTES: usize = 2000;
    let call = format!(".byte 3\n.4byte 0\n.8byte exported\n.4byte {BYTES}\n");
    let source = function(
        BYTES,
        &format!(
            ".section .debug_abbrev,\"\",%progbits
        .byte 1, 0x11, 1, 0x11, 0x01, 0x12, 0x06, 0, 0 # compile_unit
        .byte 2, 0x2e, 1, 0x03, 0x0e, 0x11, 0x01, 0x12, 0x06, 0, 0 # subprogram
        .byte 3, 0x1d, 1, 0x03, 0x0e, 0x11, 0x01, 0x12, 0x06, 0, 0 # inlined_subroutine
        .byte 0
        .section .debug_str,\"\",%progbits
        .fill 1 << 20, 1, 'a'
        .byte 0
        .section .debug_info,\"\",%progbits
        .4byte 2f - 1f
1:      .2byte 4
        .4byte 0
        .byte 8
        .byte 1
        .8byte exported
        .4byte {BYTES}
        .byte 2
        .4byte 0
        .8byte exported
        .4byte {BYTES}
        .rept 20
        {call}
        .endr
        .zero 22
2:"
        ),
    );
    let offsets: Vec<u64> = (0..BYTES as u64).collect();
    let (found, left) = symbolized(gcc, &source, &offsets);
    assert!(found.iter().all(|frames| !frames.is_empty()), "{left}");
    assert!(left.contains(TOO_MUCH), "{left}");
    assert_eq!(left.lines().count(), 1, "{left}");
}

/// A symbol that is no UTF-8 is made some, for each address.
#[test]
fn a_long_symbol_that_is_no_text_at_many_addresses() {
    let Some(gcc) = compiler() else { return };
    const BYTES: usize = 200;
    let long = "a".repeat(300_000);
    let source = format!(
        ".text
        .globl exported, {long}
        .type {long}, %function
        .size {long}, {BYTES}
exported:
{long}: .zero {BYTES}
        .section .note.GNU-stack, \"\", %progbits
"
    );
    let source = source.into_bytes();
    let source: Vec<u8> = source
        .chunk_by(|a, b| a == b)
        .flat_map(|run| match run.len() == long.len() {
            true => vec![0xff; run.len()],
            false => run.to_vec(),
        })
        .collect();
    let offsets: Vec<u64> = (0..BYTES as u64).collect();
    let (found, left) = symbolized(gcc, &source, &offsets);
    assert!(!found[0].is_empty(), "{left}");
    assert!(left.contains("its names are far too long"), "{left}");
}

/// What says nothing of its code may have any.
#[test]
fn very_many_units_that_say_nothing() {
    let Some(gcc) = compiler() else { return };
    let source = function(
        16,
        ".section .debug_abbrev,\"\",%progbits
        .byte 1, 0x11, 0, 0x13, 0x0b, 0, 0, 0 # compile_unit, language
        .section .debug_info,\"\",%progbits
        .rept 300000
        .4byte 9
        .2byte 4
        .4byte 0
        .byte 8
        .byte 1, 2
        .endr",
    );
    let (found, left) = symbolized(gcc, &source, &[4]);
    assert_eq!(found[0][0].name, "exported", "{left}");
    assert_eq!(left, "");
}
