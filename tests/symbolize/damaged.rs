//! A part of debug information that is damaged takes nothing that the other parts have.

use super::*;
use crate::built::Built;

/// The bytes of a section, and the file that they are in.
fn section(built: &Built, name: &str) -> (Vec<u8>, std::ops::Range<usize>) {
    let file = fs::read(&built.path).expect("it can be read");
    let sections = sections(&built.path);
    let section = sections.iter().find(|section| section.0 == name);
    let &(_, _, offset, size) = section.expect("it has the section");
    (file, offset as usize..(offset + size) as usize)
}

/// Overwrites a section.
fn fill(built: &Built, name: &str) {
    let (mut file, range) = section(built, name);
    file[range].fill(0xa5);
    fs::write(&built.path, file).expect("it can be written");
}

/// The comment on a section, which is the only one.
#[track_caller]
fn assert_says(left: &str, built: &Built, section: &str) {
    let expected = format!("{section} of {} cannot be read: ", built.path.display());
    assert!(left.contains(&expected), "{left}");
    assert_eq!(left.lines().count(), 1, "{left}");
}

#[test]
fn lines_take_no_inlined_call_away() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let Some(built) = Built::new(&[version]) else {
            return;
        };
        let (mut file, range) = section(&built, ".debug_line");
        let version = range.start + 4;
        file[version] ^= 0x40;
        fs::write(&built.path, file).expect("it can be written");
        assert_says(&built.assert_functions(), &built, ".debug_line");
        fill(&built, ".debug_line");
        assert_says(&built.assert_functions(), &built, ".debug_line");
    }
}

#[test]
fn what_says_how_entries_are_made_up_is_missed() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    fill(&built, ".debug_abbrev");
    let left = built.assert_named(&["exported", "hidden"]);
    assert_says(&left, &built, ".debug_abbrev");
}

/// What a section is says its kind.
#[test]
fn the_name_of_the_symbol_table_takes_no_symbol_away() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    built.run("objcopy --strip-debug library.so");
    let (mut file, range) = section(&built, ".shstrtab");
    let names = &mut file[range];
    let at = names.windows(8).position(|name| name == b".symtab\0");
    names[at.expect("it has a name") + 6] = b'X';
    fs::write(&built.path, file).expect("it can be written");
    built.assert_named(&["exported", "hidden"]);
}

#[test]
fn strings_are_missed() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    fs::write(built.directory().join("short"), [0]).expect("it can be written");
    built.run("objcopy --update-section .debug_str=short library.so");
    let (found, left) = built.symbolize();
    assert_says(&left, &built, "the debug information");
    let is_named = |frames: &Vec<Frame>| matches!(frames.last(), Some(f) if !f.name.is_empty());
    assert!(found.iter().all(is_named), "{left}");
}

#[test]
fn an_index_is_not_needed() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    fill(&built, ".debug_aranges");
    built.assert_whole();
}

/// A function that is in a section of its own, and whose section the linker leaves out.
const UNUSED_SOURCE: &str = "\
__attribute__((visibility(\"hidden\"))) void unused(void) { __asm__(\".zero 1000000\"); }
int exported(int x) { return x * 3; }
";
const PLAIN_SOURCE: &str = "
        .text
        .globl plain
        .type plain, %function
        .size plain, 16
plain:  .zero 16
        .section .note.GNU-stack, \"\", %progbits
";

#[test]
fn what_the_linker_left_out_is_nowhere() {
    let (Some(gcc), Some(_), Some(_)) = (tool("gcc"), tool("readelf"), tool("nm")) else {
        return;
    };
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        fs::write(directory.path().join("code.c"), UNUSED_SOURCE).expect("it can be written");
        fs::write(directory.path().join("plain.s"), PLAIN_SOURCE).expect("it can be written");
        let mut gcc = Command::new(&gcc);
        gcc.args([
            "-O2",
            "-shared",
            "-fPIC",
            "-nostdlib",
            "-ffunction-sections",
        ])
        .args(["-Wl,--gc-sections", "-Wl,--build-id", "-o", "library.so"])
        .args([version, "code.c", "plain.s"]);
        run(gcc.current_dir(directory.path()));
        let path = directory.path().join("library.so");
        let offset = |name| BASE + file_offset(&path, symbol(&path, name, &[]));
        let addresses = [offset("exported"), offset("plain")];
        assert!(addresses[1] - BASE < 1_000_000);
        let (mut profile, locations) = profile_of(mapping_of(&path, &build_id(&path)), &addresses);
        assert_eq!(reasons(&symbolize(&mut profile)), "");
        let [frame] = &frames(&profile, locations[0])[..] else {
            panic!("one frame");
        };
        assert_eq!((frame.name.as_str(), frame.line), ("exported", 2));
        let [frame] = &frames(&profile, locations[1])[..] else {
            panic!("one frame");
        };
        assert_eq!((frame.name.as_str(), frame.line), ("plain", 0));
        assert_eq!(frame.file, "");
    }
}
