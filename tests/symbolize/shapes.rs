//! Where names can lie: one library in each shape that distributions and tools give it, with what
//! addr2line says of it as it was built.

use super::*;
use crate::built::Built;

/// Puts the symbols of functions into `.gnu_debugdata`, as RPM's `find-debuginfo` does.
pub(super) fn move_symbols_to_debugdata(built: &Built) -> Option<PathBuf> {
    tool("xz")?;
    built.run("objcopy --only-keep-debug library.so whole.debug");
    built.run("objcopy -S --keep-symbol=hidden whole.debug mini");
    built.run("xz --keep mini");
    built.run("objcopy --strip-all library.so");
    built.run("objcopy --add-section .gnu_debugdata=mini.xz library.so");
    Some(built.directory().join("mini.xz"))
}

/// Puts other bytes in the place of `.gnu_debugdata`.
pub(super) fn set_debugdata(built: &Built, bytes: &[u8]) {
    fs::write(built.directory().join("mini.xz"), bytes).expect("it can be written");
    built.run("objcopy --remove-section .gnu_debugdata library.so");
    built.run("objcopy --add-section .gnu_debugdata=mini.xz library.so");
}

/// Bytes with some bits of theirs flipped, each round others.
pub(super) fn flipped(bytes: &[u8], round: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(round + 1);
    for _ in 0..=round % 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let place = state as usize % bytes.len();
        bytes[place] ^= 1 << (state >> 61);
    }
    bytes
}

#[test]
fn debug_information_of_every_version_in_the_file() {
    for flag in ["-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        let Some(built) = Built::new(&[flag]) else {
            return;
        };
        built.assert_whole();
        for compression in ["zlib-gabi", "zlib-gnu", "zstd"] {
            if compression == "zstd" && !built.has_zstd() {
                continue;
            }
            built.run(&format!(
                "objcopy --compress-debug-sections={compression} library.so"
            ));
            built.assert_whole();
            built.run("objcopy --decompress-debug-sections library.so");
        }
    }
}

#[test]
fn symbols_in_debugdata() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    if move_symbols_to_debugdata(&built).is_none() {
        return;
    }
    // One of them in `.gnu_debugdata`, the other one in `.dynsym`.
    assert_eq!(built.assert_named(&["exported", "hidden"]), "");
}

#[test]
fn damaged_debugdata_takes_no_other_name() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    let Some(debugdata) = move_symbols_to_debugdata(&built) else {
        return;
    };
    let whole = fs::read(&debugdata).expect("it can be read");
    let expected = format!(
        "{path}: {} addresses without a name: .gnu_debugdata of {path} cannot be read: ",
        built.count("hidden"),
        path = built.path.display()
    );
    for len in [0, 1, 12, 100, whole.len() / 2, whole.len() - 1] {
        set_debugdata(&built, &whole[..len]);
        let left = built.assert_named(&["exported"]);
        assert!(left.starts_with(&expected), "{len} bytes: {left}");
    }
    for round in 0..100 {
        set_debugdata(&built, &flipped(&whole, round));
        let left = built.assert_named(&["exported"]);
        assert!(left.starts_with(&expected), "round {round}: {left}");
    }
    set_debugdata(&built, b"no xz");
    let left = built.assert_named(&["exported"]);
    assert!(left.starts_with(&expected), "{left}");
    assert_eq!(left.lines().count(), 1, "{left}");
}
