//! Tables of code that `.debug_frame` alone describes, against gimli's own evaluation of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use gimli::{BaseAddresses, CieOrFde, DebugFrame, NativeEndian, UnwindContext, UnwindSection as _};

use super::against_gimli::{load, module, translated};
use super::any;
use super::compile::compile;
use super::hostile::Random;
#[cfg(target_arch = "x86_64")]
use super::rule::{Kind, Rule};
use super::rules::Rules;
use crate::process::{self, succeed};
use crate::sys::debug_frame;
use crate::sys::elf::read_any;
use crate::sys::modules::{Module, Object};

/// A library without `.eh_frame` of its own; `None` where there is no compiler.
fn build(directory: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
    let output = directory.join(name);
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O2", "-g", "-fomit-frame-pointer"]);
    command.args(["-fno-asynchronous-unwind-tables", "-fno-exceptions"]);
    command
        .args(options)
        .arg("-o")
        .arg(&output)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unwind/fixtures/calls.c"));
    let Ok(ended) = process::output(&mut command) else {
        crate::process::skip("there is no cc (apt-get install gcc)");
        return None;
    };
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {said}");
    Some(output)
}

fn loaded_from(path: &Path) -> Module {
    let path = path.to_str().unwrap();
    load(path).unwrap();
    Module::clone(&module(path).unwrap())
}

/// Compares the table at each place where gimli has a row begin or end; how many rows there were,
/// and of which versions.
fn compare(module: &Module) -> (usize, Vec<u8>) {
    let bytes = debug_frame::read(module).unwrap();
    assert_eq!(bytes.len(), debug_frame::len(module));
    let table = compile(module, &bytes, &mut || ());
    let mut section = DebugFrame::new(&bytes, NativeEndian);
    section.set_address_size(8);
    section.set_vendor(gimli::Vendor::AArch64);
    let bases = BaseAddresses::default();
    let mut context = UnwindContext::new();
    let mut entries = section.entries(&bases);
    let (mut count, mut versions) = (0, Vec::new());
    while let Some(entry) = entries.next().unwrap() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let function = partial.parse(DebugFrame::cie_from_offset).unwrap();
        versions.push(function.cie().version());
        let mut rows = function.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            let expected = translated(row, false).unwrap();
            for address in [row.start_address(), row.end_address() - 1] {
                let place = address.wrapping_add(module.bias) - module.range.start;
                assert_eq!(
                    table.rule_at(place),
                    Some(&expected),
                    "{address:#x}: {row:?}"
                );
            }
            count += 1;
        }
    }
    versions.dedup();
    (count, versions)
}

#[test]
#[cfg_attr(
    target_arch = "aarch64",
    ignore = "the emulated machine has no compiler and no strip"
)]
fn every_row_is_what_gimli_says() {
    let directory = tempfile::tempdir().unwrap();
    for (name, options, version) in [
        ("version1.so", &["-Wa,--gdwarf-cie-version=1"][..], 1),
        (
            "version3.so",
            &["-Wa,--gdwarf-cie-version=3", "-Wl,--build-id=none"],
            3,
        ),
        ("version4.so", &["-Wa,--gdwarf-cie-version=4"], 4),
        (
            "compressed.so",
            &["-gz=zlib", "-Wa,--gdwarf-cie-version=4"],
            4,
        ),
    ] {
        let Some(path) = build(directory.path(), name, options) else {
            return;
        };
        let module = loaded_from(&path);
        let (rows, versions) = compare(&module);
        println!("{name}: {rows} rows");
        assert!(rows > 50, "{name}: {rows}");
        assert_eq!(versions, [version], "{name}");
        assert_eq!(module.object.build_id.is_empty(), name == "version3.so");
    }
}

#[test]
#[cfg(target_arch = "x86_64")] // For its assembly.
fn what_eh_frame_says_is_taken_from_there() {
    let directory = tempfile::tempdir().unwrap();
    let described = ["-fasynchronous-unwind-tables"];
    let Some(path) = build(directory.path(), "described.so", &described) else {
        return;
    };
    assert_eq!(debug_frame::len(&loaded_from(&path)), 0);
    // One function has .eh_frame, all others have none.
    let other = directory.path().join("other.s");
    let code = ".globl other\nother:\n.cfi_startproc\nsub $8, %rsp\n.cfi_def_cfa_offset 16\nnop\n\
        add $8, %rsp\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n.section .note.GNU-stack\n";
    std::fs::write(&other, code).unwrap();
    let path = build(directory.path(), "both.so", &[other.to_str().unwrap()]).unwrap();
    let module = loaded_from(&path);
    let bytes = debug_frame::read(&module).unwrap();
    let (eh_frame, both) = (
        compile(&module, &[], &mut || ()),
        compile(&module, &bytes, &mut || ()),
    );
    let (mut described, mut added) = (0, 0);
    for place in 0..module.range.end - module.range.start {
        let is_there = |rule: &&Rule| rule.kind != Kind::Nothing;
        match eh_frame.rule_at(place).filter(is_there) {
            Some(rule) => {
                assert_eq!(both.rule_at(place), Some(rule), "{place:#x}");
                described += 1;
            }
            None => added += u64::from(both.rule_at(place).is_some_and(|rule| is_there(&rule))),
        }
    }
    assert!(described >= 10 && added > 1000, "{described}, {added}");
}

#[test]
#[cfg_attr(
    target_arch = "aarch64",
    ignore = "the emulated machine has no compiler and no strip"
)]
fn another_file_than_the_one_that_is_mapped_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("with.so", &[][..]),
        ("without.so", &["-Wl,--build-id=none"]),
    ] {
        let Some(path) = build(directory.path(), name, options) else {
            return;
        };
        let other = build(
            directory.path(),
            "other.so",
            &["-O1", options.first().unwrap_or(&"-O1")],
        );
        let module = loaded_from(&path);
        let has_rules = |module: &Module| {
            let rules = Rules::new(module.clone().into());
            rules.compile();
            rules.table().unwrap().rows() > 30
        };
        assert!(has_rules(&module));
        let at = |path: &Path| {
            let mut object = Object::clone(&module.object);
            object.path = path.to_str().unwrap().into();
            Module {
                object: object.into(),
                ..module.clone()
            }
        };
        let stripped = directory.path().join("stripped.so");
        succeed(Command::new("strip").arg("-o").arg(&stripped).arg(&path));
        let pipe = directory.path().join("pipe");
        succeed(Command::new("mkfifo").arg(&pipe));
        for file in [
            &other.unwrap(),
            &stripped,
            &pipe,
            directory.path(),
            Path::new("/dev/zero"),
        ] {
            assert_eq!(debug_frame::len(&at(file)), 0, "{file:?}");
            assert!(!has_rules(&at(file)), "{file:?}");
        }
        std::fs::rename(&path, directory.path().join("gone.so")).unwrap();
        assert_eq!(debug_frame::len(&module), 0);
        std::fs::remove_file(&pipe).unwrap();
    }
}

#[test]
#[cfg_attr(
    target_arch = "aarch64",
    ignore = "the emulated machine has no compiler and no strip"
)]
fn damaged_files_and_sections_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    for (name, options) in [("damaged.so", &[][..]), ("damaged_gz.so", &["-gz=zlib"])] {
        let Some(path) = build(directory.path(), name, options) else {
            return;
        };
        let module = loaded_from(&path);
        let file = std::fs::read(&path).unwrap();
        let section = debug_frame::read(&module).unwrap();
        assert_eq!(read_any(&file), Some(section.len()));
        let mut random = Random(3);
        let mut damage = |bytes: &mut [u8], first: u64| {
            for _ in 0..1 + random.below(20) {
                // Most of it where all that is read begins.
                let end = if random.below(2) == 0 {
                    first
                } else {
                    bytes.len() as u64
                };
                let at = random.below(end) as usize;
                bytes[at] = random.below(256) as u8;
            }
            random.below(bytes.len() as u64) as usize
        };
        let headers = file.len() as u64 - 64 * 40;
        let rounds = (500.0 * process::soak()) as usize;
        let mut found = 0;
        for round in 0..rounds {
            let mut file = file.clone();
            file.rotate_left(headers as usize);
            let end = damage(&mut file, 64 * 40);
            file.rotate_right(headers as usize);
            found += usize::from(read_any(&file).is_some());
            read_any(&file[..end]);
            // Without `.eh_frame`.
            let mut bytes = [&[0; 4], &*section].concat();
            if round > 0 {
                damage(&mut bytes, 64);
            }
            any::debug_frame(&bytes);
        }
        assert!(
            found > rounds / 20,
            "{found} of {rounds} could still be read"
        );
    }
}
