//! Tables against gimli's own evaluation, at random places of real libraries.

use std::ffi::CString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, RegisterRule, UnwindContext,
    UnwindSection as _, UnwindTableRow,
};

use super::compile::compile;
use super::hostile::Random;
use super::rule::{Kind, Place, Rule};
use super::table::Table;
use crate::process;
use crate::sys::arch::{CALLEE_SAVED, RETURN_ADDRESS, SP};
use crate::sys::maps::Maps;
use crate::sys::modules::{Module, Section, loaded};

/// A library that this process does not use, loaded for the test; `None` where it is not there.
pub(super) fn load(path: &str) -> Option<()> {
    let path = CString::new(path).unwrap();
    // SAFETY: libraries of the system and the toolchain, whose initializers harm nobody; it is
    // never closed.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(())
}

/// The library that rustc is made of.
fn rustc_driver() -> Option<PathBuf> {
    let output = process::output(Command::new("rustc").args(["--print", "sysroot"]));
    let sysroot = String::from_utf8(output.ok()?.stdout).ok()?;
    let libraries = std::fs::read_dir(PathBuf::from(sysroot.trim()).join("lib")).ok()?;
    libraries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("librustc_driver") && name.ends_with(".so")
        })
}

pub(super) fn module(name: &str) -> Option<Arc<Module>> {
    let modules = loaded([].iter(), &Maps::read().unwrap());
    modules.into_iter().find(|module| match name {
        "" => module.object.is_main,
        name => module.object.path.contains(name),
    })
}

/// What a row of gimli's comes to, by this test's own lights; `None` where a rule need not be able
/// to hold it.
pub(super) fn translated(row: &UnwindTableRow<usize>, is_signal: bool) -> Option<Rule> {
    let place = |register: u16| match row.register(gimli::Register(register)) {
        Some(RegisterRule::Offset(offset)) if offset % 8 == 0 => Some(Place::at(offset)),
        None | Some(RegisterRule::SameValue) => Some(Place::SAME),
        Some(RegisterRule::Undefined) => Some(Place::UNDEFINED),
        Some(RegisterRule::Register(source)) => Some(Place::in_register(source.0)),
        _ => None,
    };
    let return_address = place(RETURN_ADDRESS);
    if return_address == Some(Place::UNDEFINED) {
        return Some(Rule::ROOT);
    }
    // On aarch64 the kernel's unwind data, where it had some, only leads to a frame pointer's two
    // words.
    if is_signal && (return_address.is_none() || cfg!(target_arch = "aarch64")) {
        return Some(Rule::SIGNAL);
    }
    match row.register(gimli::Register(SP.into())) {
        None | Some(RegisterRule::SameValue | RegisterRule::ValOffset(0)) => {}
        Some(RegisterRule::Offset(_) | RegisterRule::Register(_)) => {
            return Some(Rule::of(Kind::Leaving));
        }
        Some(_) => return None,
    }
    let &CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
        return None;
    };
    let mut rule = Rule {
        cfa_register: u8::try_from(register.0).ok()?,
        cfa_offset: i32::try_from(offset).ok()?,
        return_address: return_address?,
        ..Rule::of(Kind::Register)
    };
    for (saved, register) in rule.saved.iter_mut().zip(CALLEE_SAVED) {
        *saved = place(register.into()).filter(|place| place.register().is_none())?;
    }
    Some(rule.finished())
}

/// Compares `count` random places of a module; the answer is how many of them were compared, and
/// how many a rule need not be able to hold.
fn compare(module: &Module, table: &Table, count: u64) -> (u64, u64) {
    let eh_frame = module.eh_frame.as_ref().unwrap();
    let hdr = module.eh_frame_hdr.as_ref().unwrap();
    let mut section = EhFrame::new(&eh_frame.bytes, NativeEndian);
    // So that it knows the instruction that says of a return address whether it is signed.
    section.set_vendor(gimli::Vendor::AArch64);
    let bases = BaseAddresses::default()
        .set_eh_frame(eh_frame.address)
        .set_eh_frame_hdr(hdr.address);
    let parsed = EhFrameHdr::new(&hdr.bytes, NativeEndian)
        .parse(&bases, 8)
        .unwrap();
    let search = parsed.table().unwrap();
    let beginning = module.range.start - module.bias;
    let code: Vec<_> = module
        .object
        .code
        .iter()
        .map(|segment| segment.start - module.range.start..segment.end - module.range.start)
        .collect();
    let mut random = Random(0x5eed);
    let mut context: UnwindContext<usize> = UnwindContext::new();
    let (mut compared, mut complex) = (0, 0);
    while compared + complex < count {
        let segment = &code[random.below(code.len() as u64) as usize];
        let place = segment.start + random.below(segment.end - segment.start);
        let address = beginning + place;
        let found = table.rule_at(place);
        let function =
            search.fde_for_address(&section, &bases, address, |section, bases, offset| {
                section.cie_from_offset(bases, offset)
            });
        let Ok(function) = function else {
            let is_nothing = found.is_none_or(|rule| rule.kind == Kind::Nothing);
            // Where handlers return to is known without unwind data.
            let is_signal = module.signal_return.is_some_and(|at| {
                (at - 1..at + 8).contains(&(module.range.start + place))
                    && found == Some(&Rule::SIGNAL)
            });
            assert!(
                is_nothing || is_signal,
                "{address:#x} of {}: {found:?} where there is nothing",
                module.object.path
            );
            compared += 1;
            continue;
        };
        let is_signal = function.cie().is_signal_trampoline();
        let row = function
            .unwind_info_for_address(&section, &bases, &mut context, address)
            .unwrap();
        match translated(row, is_signal) {
            Some(rule) => {
                assert_eq!(
                    found,
                    Some(&rule),
                    "{address:#x} of {}: {row:?}",
                    module.object.path
                );
                compared += 1;
            }
            None => {
                let kind = found.map(|rule| rule.kind);
                assert!(
                    matches!(
                        kind,
                        Some(Kind::Complex | Kind::Loaded | Kind::LinkageTable | Kind::Register)
                    ),
                    "{address:#x} of {}: {found:?} for {row:?}",
                    module.object.path
                );
                complex += 1;
            }
        }
    }
    println!(
        "{}: {count} places, {complex} of them with expressions; {} rows, {} rules, {} KiB",
        module.object.path,
        table.rows(),
        table.rules(),
        table.size_bytes() / 1024
    );
    (compared, complex)
}

/// How many places of a library are compared.
fn places() -> u64 {
    (60_000.0 * process::soak()) as u64
}

#[test]
fn tables_say_what_gimli_says() {
    let cplusplus = load("libstdc++.so.6").map(|()| "libstdc++");
    for name in ["", "libc.so", "[vdso]"].into_iter().chain(cplusplus) {
        // The kernel's vDSO has no unwind data on some machines.
        let Some(module) = module(name).filter(|module| module.eh_frame.is_some()) else {
            continue;
        };
        let count = if name == "[vdso]" { 10_000 } else { places() };
        let table = compile(&module, &[], &mut || ());
        let (compared, complex) = compare(&module, &table, count);
        assert!(complex <= compared / 20, "{name}: {complex} of {compared}");
    }
}

/// Another process, since rustc's library takes more of the room for thread-local variables than a
/// process has to spare.
#[test]
fn the_table_of_a_large_library_says_what_gimli_says() {
    let output = process::succeed(
        process::this_program()
            .args(["child_with_a_large_library", "--ignored", "--nocapture"])
            .env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=65536"),
    );
    print!("{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "a child process"]
fn child_with_a_large_library() {
    let library = rustc_driver().and_then(|path| load(path.to_str()?));
    let Some(module) = library.and_then(|()| module("librustc_driver")) else {
        return crate::process::skip("rustc's library cannot be loaded here");
    };
    let begun = std::time::Instant::now();
    let table = compile(&module, &[], &mut || ());
    println!(
        "compiled in {:?}: {} rows, {} rules, {} KiB",
        begun.elapsed(),
        table.rows(),
        table.rules(),
        table.size_bytes() / 1024
    );
    // "At most 16 MiB", which a loaded machine cannot change, unlike the time.
    assert!(table.size_bytes() <= 16 << 20);
    let (compared, complex) = compare(&module, &table, places());
    assert!(complex <= compared / 20, "{complex} of {compared}");
}

#[test]
fn a_module_without_a_search_table_is_the_same() {
    let with = module("libc.so").unwrap();
    let without = Module {
        eh_frame_hdr: None,
        ..Module::clone(&with)
    };
    let (with_table, without_table) = (
        compile(&with, &[], &mut || ()),
        compile(&without, &[], &mut || ()),
    );
    assert!(with_table.rows() > 1000);
    assert_eq!(with_table.rows(), without_table.rows());
    let mut random = Random(1);
    for _ in 0..100_000 {
        let place = random.below(with.range.end - with.range.start);
        assert_eq!(
            with_table.rule_at(place),
            without_table.rule_at(place),
            "{place:#x}"
        );
    }
}

#[test]
fn damaged_unwind_data_does_no_harm() {
    let module = module("libc.so").unwrap();
    let eh_frame = module.eh_frame.as_ref().unwrap();
    let part = &eh_frame.bytes[..eh_frame.bytes.len().min(40_000)];
    let mut random = Random(2);
    for round in 0..400 {
        let mut bytes = part.to_vec();
        match round % 4 {
            // All of it, at times.
            0 => bytes
                .iter_mut()
                .for_each(|byte| *byte = random.below(256) as u8),
            _ => {
                for _ in 0..1 + random.below(40) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.below(256) as u8;
                }
            }
        }
        let section = Section {
            address: eh_frame.address,
            bytes: bytes.into(),
        };
        let damaged = Module {
            eh_frame: Some(section),
            eh_frame_hdr: module.eh_frame_hdr.clone().filter(|_| round % 2 == 0),
            ..Module::clone(&module)
        };
        let table = compile(&damaged, &[], &mut || ());
        for _ in 0..100 {
            table.rule_at(random.below(module.range.end - module.range.start));
        }
    }
}

/// A search table that names one long entry again and again.
#[test]
#[cfg(target_arch = "x86_64")] // By the numbers of its registers.
fn entries_that_lie_over_each_other_are_not_gone_through_again_and_again() {
    const HDR: u64 = 0x10_0000;
    const EH_FRAME: u64 = 0x100_0000;
    const TIMES: u32 = 100_000;
    let mut bytes = Vec::new();
    let entry = |bytes: &mut Vec<u8>, body: &[u8]| {
        bytes.extend((body.len() as u32).to_ne_bytes());
        bytes.extend(body);
    };
    // Version 1, "zR", factors 1 and -8, the return address in 16, pointers relative to their
    // places; rsp and 8.
    let common = [
        0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
    ];
    entry(&mut bytes, &common);
    let place = EH_FRAME + bytes.len() as u64 + 8;
    let mut function = Vec::new();
    function.extend((bytes.len() as u32 + 4).to_ne_bytes());
    function.extend((0x1000_u64.wrapping_sub(place) as u32).to_ne_bytes());
    function.extend(0x800_u32.to_ne_bytes());
    function.push(0);
    // DW_CFA_def_cfa_offset, 16.
    function.extend([0x0e, 16].repeat(500_000));
    function.resize(function.len().next_multiple_of(4), 0);
    let offset = bytes.len() as u64;
    entry(&mut bytes, &function);
    let mut hdr = vec![1, 0x1b, 3, 0x3b];
    hdr.extend(((EH_FRAME - HDR - 4) as u32).to_ne_bytes());
    hdr.extend(TIMES.to_ne_bytes());
    for _ in 0..TIMES {
        hdr.extend((0x1000_u64.wrapping_sub(HDR) as u32).to_ne_bytes());
        hdr.extend(((EH_FRAME + offset - HDR) as u32).to_ne_bytes());
    }
    let section = |address, bytes: Vec<u8>| Section {
        address,
        bytes: bytes.into(),
    };
    let module = module("").unwrap();
    let module = Module {
        bias: 1 << 32,
        range: 1 << 32..(1 << 32) + 0x2000,
        eh_frame_hdr: Some(section(HDR, hdr)),
        eh_frame: Some(section(EH_FRAME, bytes)),
        ..Module::clone(&module)
    };
    let begun = std::time::Instant::now();
    let table = compile(&module, &[], &mut || ());
    assert_eq!(table.rule_at(0x1000).unwrap().cfa_offset, 16);
    // An hour, if each were gone through.
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}
