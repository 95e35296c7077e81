//! Debug information that the compiler split off: units in files of their own, and packages.

use super::*;
use crate::built::Built;

/// The one file of this extension in the library's directory.
#[track_caller]
fn only_file(built: &Built, extension: &str) -> PathBuf {
    let entries = fs::read_dir(built.directory()).expect("it can be read");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut paths = paths.filter(|path| path.extension() == Some(extension.as_ref()));
    let path = paths.next().expect("there is one");
    assert_eq!(paths.next(), None, "there is one alone");
    path
}

/// All is found in this file; a damaged one or another build's costs no more than what was inlined.
#[track_caller]
fn assert_found_in(built: &Built, file: &Path, other: &Path, rounds: u64) {
    built.assert_whole();
    let whole = fs::read(file).expect("it can be read");
    let (path, shown) = (built.path.display(), file.display());
    for len in [1, 64, whole.len() / 2, whole.len() - 1] {
        fs::write(file, &whole[..len]).expect("it can be written");
        let left = built.assert_lines();
        assert!(left.starts_with(&format!("{path}: ")), "{left}");
        assert!(left.contains(&shown.to_string()), "{left}");
        assert_eq!(left.lines().count(), 1, "{left}");
    }
    for round in 0..rounds {
        fs::write(file, shapes::flipped(&whole, round)).expect("it can be written");
        let (found, left) = built.symbolize();
        assert!(
            found.iter().all(|frames| !frames.is_empty()),
            "round {round}: {left}"
        );
    }
    fs::copy(other, file).expect("it can be copied");
    let left = built.assert_lines();
    assert!(left.contains(&shown.to_string()), "{left}");
    fs::remove_file(file).expect("it can be removed");
    let left = built.assert_lines();
    let reason = format!("{path}: the split debug information of {path} is incomplete: ");
    assert!(left.starts_with(&reason), "{left}");
    assert!(left.ends_with(" cannot be found"), "{left}");
    fs::write(file, whole).expect("it can be written");
}

#[test]
fn a_unit_in_a_file_of_its_own() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let Some(built) = Built::split(version, &[]) else {
            return;
        };
        let file = only_file(&built, "dwo");
        let other = Built::split(version, &["-fwrapv"]).expect("there is a compiler");
        assert_found_in(&built, &file, &only_file(&other, "dwo"), 100);
        for compression in ["zlib-gabi", "zlib-gnu"] {
            let flag = format!("--compress-debug-sections={compression}");
            let name = file.file_name().and_then(|name| name.to_str());
            built.run(&format!("objcopy {flag} {}", name.expect("it is UTF-8")));
            built.assert_whole();
        }
    }
}

/// The compiler leaves each type in a section of its own, all of one name.
#[test]
fn units_of_types_beside_that_of_the_code() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let Some(built) = Built::split(version, &["-fdebug-types-section"]) else {
            return;
        };
        built.assert_whole();
    }
}

/// So many sections of one name that all of their beginnings together are far more than they are.
#[test]
fn very_many_units_of_types() {
    let Some(built) = Built::split("-gdwarf-5", &[]) else {
        return;
    };
    let code = built.directory().join("code.c");
    let mut source = fs::read_to_string(&code).expect("it can be read");
    for i in 0..5000 {
        let kind = format!("struct type{i} {{ int field{i}; }}");
        source += &format!("static __attribute__((used)) {kind} variable{i};\n");
    }
    fs::write(&code, source).expect("it can be written");
    let flags = "-O2 -shared -fPIC -gdwarf-5 -gsplit-dwarf -fdebug-types-section -Wl,--build-id";
    built.run(&format!("gcc {flags} code.c -o library.so"));
    built.assert_whole();
}

/// A unit's id is made of what is in the unit: one file compiled twice is two units of one id.
#[test]
fn two_units_of_one_id() {
    let (Some(gcc), Some(nm), Some(_)) = (tool("gcc"), tool("nm"), tool("addr2line")) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let source = "#include <stdlib.h>
static inline __attribute__((always_inline)) int inlined(int x) { return rand() * x + rand(); }
static __attribute__((noinline)) int work(int x) { return inlined(x) + inlined(x + 1); }
__attribute__((constructor)) static void begin(void) { if (work(3) == 5) abort(); }
";
    fs::write(directory.path().join("code.c"), source).expect("it can be written");
    let compile = |args: &[&str]| {
        let mut gcc = Command::new(&gcc);
        gcc.args(args).current_dir(directory.path());
        run(&mut gcc);
    };
    for object in ["one.o", "two.o"] {
        compile(&[
            "-g",
            "-gsplit-dwarf",
            "-O2",
            "-fPIC",
            "-c",
            "code.c",
            "-o",
            object,
        ]);
    }
    compile(&[
        "-shared",
        "-Wl,--build-id",
        "one.o",
        "two.o",
        "-o",
        "library.so",
    ]);
    let path = directory.path().join("library.so");
    let symbols = run(Command::new(nm).args(["-S"]).arg(&path));
    let works: Vec<_> = symbols
        .lines()
        .filter(|line| line.contains(" t work"))
        .map(|line| {
            let number = |field| u64::from_str_radix(field, 16).expect("it is a number");
            let mut fields = line.split(' ').map(number);
            let begin = fields.next().expect("it has an address");
            begin..begin + fields.next().expect("it has a size")
        })
        .collect();
    assert_eq!(works.len(), 2, "{symbols}");
    let inlined = works.into_iter().map(|work| {
        let begin = BASE + file_offset(&path, work.start);
        let addresses: Vec<_> = (begin..begin + (work.end - work.start)).collect();
        let (mut profile, locations) = profile_of(mapping_of(&path, &build_id(&path)), &addresses);
        assert_eq!(reasons(&symbolize(&mut profile)), "");
        let frames = locations.iter().map(|&location| frames(&profile, location));
        frames.filter(|frames| frames[0].name == "inlined").count()
    });
    let inlined: Vec<_> = inlined.collect();
    assert!(inlined[0] > 0 && inlined[0] == inlined[1], "{inlined:?}");
}

#[test]
fn a_package_of_units() {
    if tool("dwp").is_none() {
        return;
    }
    // GNU's dwp of these years knows no later version.
    let packaged = |flags: &[&str]| {
        let built = Built::split("-gdwarf-4", flags)?;
        built.run("dwp -e library.so -o library.so.dwp");
        fs::remove_file(only_file(&built, "dwo")).expect("it can be removed");
        Some(built)
    };
    let Some(built) = packaged(&[]) else {
        return;
    };
    let other = packaged(&["-fwrapv"]).expect("there is a compiler");
    assert_found_in(
        &built,
        &only_file(&built, "dwp"),
        &only_file(&other, "dwp"),
        100,
    );
}

#[test]
fn rust_programs_of_every_setting() {
    for version in ["4", "5"] {
        let version = format!("-Cdwarf-version={version}");
        for setting in ["off", "packed", "unpacked"] {
            let setting = format!("-Csplit-debuginfo={setting}");
            let Some(built) = Built::rust(&[&version, &setting]) else {
                return;
            };
            built.assert_whole();
            if setting.ends_with("=packed") && version.ends_with("=5") {
                let file = only_file(&built, "dwp");
                let other = Built::rust(&[&version, &setting, "-Cmetadata=other"]);
                let other = other.expect("there is a compiler");
                assert_found_in(&built, &file, &only_file(&other, "dwp"), 2);
            }
        }
    }
}

fn copy_files(built: &Built, to: &Path) {
    for entry in fs::read_dir(built.directory()).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().expect("it has a name");
        fs::copy(&path, to.join(name)).expect("it can be copied");
    }
}

#[test]
fn a_build_that_was_moved() {
    let Some(built) = Built::split("-g", &[]) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    copy_files(&built, directory.path());
    let file = only_file(&built, "dwo");
    fs::remove_file(file).expect("it can be removed");
    Built::at(directory.path()).assert_whole();
}

/// Where the compiler left it, there is that of a later build now.
#[test]
fn a_file_of_another_build_hides_none_beside_the_object() {
    let Some(built) = Built::split("-g", &[]) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    copy_files(&built, directory.path());
    let other = Built::split("-g", &["-fwrapv"]).expect("there is a compiler");
    fs::copy(only_file(&other, "dwo"), only_file(&built, "dwo")).expect("it can be copied");
    Built::at(directory.path()).assert_whole();
}

/// Units of types have an index of their own, which no function needs.
#[test]
fn a_package_whose_index_of_types_is_damaged() {
    if tool("dwp").is_none() {
        return;
    }
    let Some(built) = Built::split("-gdwarf-4", &["-fdebug-types-section"]) else {
        return;
    };
    built.run("dwp -e library.so -o library.so.dwp");
    fs::remove_file(only_file(&built, "dwo")).expect("it can be removed");
    built.assert_whole();
    let package = only_file(&built, "dwp");
    let sections = sections(&package);
    let index = sections
        .iter()
        .find(|section| section.0 == ".debug_tu_index");
    let &(_, _, offset, size) = index.expect("it has units of types");
    let mut bytes = fs::read(&package).expect("it can be read");
    bytes[offset as usize..(offset + size) as usize].fill(0xa5);
    fs::write(&package, bytes).expect("it can be written");
    built.assert_whole();
}

#[test]
fn skeletons_in_a_debug_file() {
    let Some(built) = Built::split("-gdwarf-4", &[]) else {
        return;
    };
    built.run("objcopy --only-keep-debug library.so moved.debug");
    built.run("objcopy --strip-all library.so");
    built.run("objcopy --add-gnu-debuglink=moved.debug library.so");
    built.assert_whole();
    if tool("dwp").is_some() {
        built.run("dwp -e moved.debug -o package");
        fs::remove_file(only_file(&built, "dwo")).expect("it can be removed");
        let package = |name: &str| built.directory().join(name);
        for name in ["moved.debug.dwp", "moved.dwp", "library.so.dwp"] {
            fs::copy(package("package"), package(name)).expect("it can be copied");
            built.assert_whole();
            fs::remove_file(package(name)).expect("it can be removed");
        }
    }
}
