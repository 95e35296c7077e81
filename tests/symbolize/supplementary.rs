//! Debug information that several objects have in common, in a file of its own, as `dwz` does it.

use super::*;
use crate::built::Built;
use crate::debug_files::Placed;

/// A library whose debug information lies in part in a supplementary file of this name.
fn shared_as(name: &str, version: &str, flags: &str) -> Option<Built> {
    tool("dwz")?;
    let built = Built::new(&[version])?;
    // Any other one that has the same in it.
    let other = Built::new(&[version])?;
    fs::copy(&other.path, built.directory().join("other.so")).expect("it can be copied");
    built.run(&format!("dwz{flags} -m {name} library.so other.so"));
    Some(built)
}

/// All is found with this file; without it, or with a damaged one, what the object itself has.
#[track_caller]
fn assert_found_in(built: &Built, file: &Path, other: &Path) {
    built.assert_whole();
    let whole = fs::read(file).expect("it can be read");
    let (path, shown) = (built.path.display(), file.display());
    for len in [1, 64, whole.len() / 2, whole.len() - 1] {
        fs::write(file, &whole[..len]).expect("it can be written");
        let left = built.assert_outermost();
        assert!(left.starts_with(&format!("{path}: ")), "{len}: {left}");
        assert!(left.contains(&shown.to_string()), "{left}");
        assert_eq!(left.lines().count(), 1, "{left}");
    }
    for round in 0..100 {
        fs::write(file, shapes::flipped(&whole, round)).expect("it can be written");
        let (found, left) = built.symbolize();
        assert!(
            found.iter().all(|frames| !frames.is_empty()),
            "round {round}: {left}"
        );
    }
    fs::copy(other, file).expect("it can be copied");
    let left = built.assert_outermost();
    let reason = format!("{path}: the debug information of {shown} cannot be read: ");
    assert!(left.starts_with(&reason), "{left}");
    assert!(left.contains("of another build"), "{left}");
    fs::remove_file(file).expect("it can be removed");
    let left = built.assert_outermost();
    let reason = format!("{path}: the supplementary file of {path} cannot be found: ");
    assert!(left.starts_with(&reason), "{left}");
    fs::write(file, whole).expect("it can be written");
}

#[test]
fn units_for_what_others_have_in_common() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let Some(built) = Built::new(&[version, "more.c"]) else {
            return;
        };
        if tool("dwz").is_none() {
            return;
        }
        built.run("dwz library.so");
        let information = built.run("readelf --debug-dump=info library.so");
        assert!(information.contains("DW_TAG_partial_unit"));
        built.assert_whole();
    }
}

#[test]
fn a_file_by_its_name() {
    for (version, flags) in [("-gdwarf-4", ""), ("-gdwarf-5", ""), ("-gdwarf-5", " -5")] {
        let Some(built) = shared_as("common", version, flags) else {
            return;
        };
        let other = shared_as("common", "-gdwarf-3", flags).expect("there is a compiler");
        let directory = built.directory().to_owned();
        assert_found_in(
            &built,
            &directory.join("common"),
            &other.directory().join("common"),
        );
        // The name is relative to the debug file, and so it is where that is a link.
        built.run("objcopy --only-keep-debug library.so common.debug");
        built.run("objcopy --strip-all library.so");
        built.run("mkdir below");
        built.run("ln -s ../common.debug below/linked.debug");
        built.run("cp common.debug linked.debug");
        built.run("objcopy --add-gnu-debuglink=linked.debug library.so");
        built.run("rm linked.debug");
        built.run("ln -s below/linked.debug linked.debug");
        built.assert_whole();
    }
}

#[test]
fn a_file_by_its_build_id() {
    let Some(built) = shared_as("common", "-g", "") else {
        return;
    };
    let common = built.directory().join("common");
    let build_id = build_id(&common);
    let (first, rest) = build_id.split_at(2);
    let path = format!("/usr/lib/debug/.build-id/{first}/{rest}.debug");
    if let Some(placed) = Placed::new(&common, path.into()) {
        let other = shared_as("common", "-gdwarf-3", "").expect("there is a compiler");
        fs::remove_file(&common).expect("it can be removed");
        assert_found_in(&built, &placed.file, &other.directory().join("common"));
    }
}
