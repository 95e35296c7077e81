//! Text profiles: heap, growth, contention, threads, counts.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sigprof::{ErrorKind, Profile};

use crate::support::{go_pprof, tool};

const MAPPINGS: &str = "\
    00400000-00500000 r-xp 00000000 08:01 1234 /bin/server\n\
    7f0000000000-7f0000100000 r-xp 00001000 08:01 1235 /lib/libc.so.6\n";

/// One of each kind, as programs write them.
pub fn texts() -> Vec<String> {
    let texts = [
        // As gperftools' heap checker and profiler do.
        "heap profile:      2:     1088 [     5:     2176] @ heapprofile\n     \
             1:     1024 [     1:     1024] @ 0x401136 0x401162 0x7f0000000100\n     \
             1:       64 [     4:     1152] @ 0x401190 0x401162 0x7f0000000100\n     \
             0:        0 [     1:        8] @\n\n",
        "heap profile:      3:     1152 [     5:     2176] @ heap_v2/524288\n     \
             2:     1088 [     3:     2112] @ 0x401136 0x401162\n     \
             1:       64 [     2:       64] @ 0x401136 0x401163\n\n",
        // As Go does.
        "heap profile: 1: 32 [2: 1024] @ heap/1048576\n\
             1: 32 [1: 32] @ 0x401136 0x401162\n\
             #\t0x401135\tmain.work+0x15\t/src/main.go:7\n\n\
             0: 0 [1: 992] @ 0x401190\n\n\
             # runtime.MemStats\n# Alloc = 5\n",
        "heap profile:      2:  2097152 [     2:  2097152] @ growthz\n     \
             2:  2097152 [     2:  2097152] @ 0x401136 0x401162\n\n",
        "heap profile:      2:  2097152 [     2:  2097152] @ fragmentationz\n     \
             2:  2097152 [     2:  2097152] @ 0x401136\n\n",
        "--- contentionz 1 ---\ncycles/second = 3201000000\nsampling period = 100\n\
             ms since reset = 16502830\ndiscarded samples = 0\n  \
             19490304       27 @ 0x401136 0x401162\n  768 1 @ 0x401136\n",
        "--- mutex:\nsampling period = 1\n1 2 @ 0x401136 0x401162\n",
        "--- contention:\n\n# nothing\n5 7 @\n",
        "--- threadz 1 ---\n\n\
             --- Thread 7ff6fffa7700 (name: main/14748) stack: ---\n  \
             PC: 0x00401136: helper(arg *)\n  creator: 0x00401162 0x00401162\n\
             --- Thread 7ff6fffa7701 (name: worker one/14749) stack: ---\n  \
             [same as previous thread]\n\
             --- Thread 7ff6fffa7702 (name: worker (2)/14750) stack: ---\n  \
             0x401190 0x401190 0x401162 in main\n",
        "--- Thread 7ff6fffa7700 (name: main/14748) stack: ---\n  0x401136\n",
        "threadcreate profile: total 4\n3 @ 0x401136 0x401162\n#\t0x401135\tmain\n\n1 @ 0x401190\n",
    ];
    let with_mappings = |text: &str| {
        let title = match text.starts_with("heap") {
            true => "MAPPED_LIBRARIES:",
            false => "--- Memory map: ---",
        };
        format!("{text}{title}\n{MAPPINGS}")
    };
    texts.map(with_mappings).into()
}

#[test]
fn texts_of_all_kinds_are_read_as_google_pprof_reads_them() {
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    for (i, text) in texts().iter().enumerate() {
        let original = directory.path().join(format!("{i}.txt"));
        std::fs::write(&original, text).unwrap();
        let converted = directory.path().join(format!("{i}.pb.gz"));
        let profile = Profile::open(&original).unwrap();
        profile.save(&converted).unwrap();
        let raw = |path| go_pprof(&go, &["-raw", "-symbolize=none"], path).stdout;
        assert_eq!(raw(&converted), raw(&original), "{text}\n{profile}");
    }
}

/// Some objects and their bytes, of any size that programs have.
fn objects_and_bytes() -> impl Strategy<Value = (u64, u64)> {
    let objects = (0u32..20).prop_flat_map(|bits| 1..=1u64 << bits);
    let size = (1u32..25).prop_flat_map(|bits| 0..1u64 << bits);
    (objects, size, any::<u64>())
        .prop_map(|(objects, size, more)| (objects, objects * size + more % objects))
}

#[test]
fn samples_stand_for_as_much_as_in_google_pprof() {
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::deterministic();
    let mut sample = || {
        let tree = objects_and_bytes().new_tree(&mut runner).unwrap();
        tree.current()
    };
    for period in [2, 100, 4096, 524_288, 1 << 30] {
        let mut text = format!("heap profile: 1: 1 [ 2: 2] @ heap_v2/{period}\n");
        for address in 0..2000u64 {
            let (objects, bytes) = sample();
            let address = 0x1000 + 16 * address;
            writeln!(
                text,
                "{objects}: {bytes} [{objects}: {bytes}] @ {address:#x}"
            )
            .unwrap();
        }
        let original = directory.path().join("heap.txt");
        std::fs::write(&original, text).unwrap();
        let converted = directory.path().join("heap.pb");
        Profile::open(&original).unwrap().save(&converted).unwrap();
        let raw = |path| go_pprof(&go, &["-raw", "-symbolize=none"], path).stdout;
        let (ours, theirs) = (raw(&converted), raw(&original));
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            assert_eq!(ours, theirs, "at a period of {period}");
        }
        assert_eq!(ours.lines().count(), theirs.lines().count());
    }
}

#[test]
fn mappings_stand_below_either_title() {
    for text in texts() {
        let profile = Profile::read(text.as_bytes()).unwrap();
        assert_eq!(profile.mappings().len(), 2, "{text}");
        let (title, other) = match text.contains("MAPPED_LIBRARIES:") {
            true => ("MAPPED_LIBRARIES:", "--- Memory map: ---"),
            false => ("--- Memory map: ---", "MAPPED_LIBRARIES:"),
        };
        let other = text.replace(title, other);
        assert_eq!(Profile::read(other.as_bytes()).unwrap(), profile, "{other}");
    }
}

#[test]
fn what_is_wrong_with_a_text_is_said_with_its_place() {
    let cases = [
        (
            "heap profile: 1: 2 [1: 2] @ heap_v3/5\n",
            "at byte 0 a line that names a kind of heap profile that is not known",
        ),
        (
            "heap profile: 1: 2\n",
            "at byte 0 a line that is not `objects: bytes [",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ heapprofile\n1: 2 [1: 2] 0x401136\n",
            "at byte 40 a line that is not `objects: bytes [",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ heapprofile\n0: 2 [1: 2] @ 0x401136\n",
            "at byte 40 a line that has bytes of no objects: `0: 2 [",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ growth\n1: 99999999999999999999 [1: 2] @\n",
            "a number that 64 bits do not hold",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ growth\n1: 2 [1: 2] @ 0x1 main\n",
            "something else than addresses at its end",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ growth\n1: 2 [1: 2] @ 0x12345678123456789\n",
            "an address that 64 bits do not hold",
        ),
        (
            "heap profile: 1: 2 [1: 2] @ growth\nstray\n",
            "at byte 35 a line that lacks a number",
        ),
        (
            "--- contention:\nformat = java\n",
            "at byte 16 a line that has a key that is not known",
        ),
        ("--- contention:\n1 @ 0x1\n", "lacks a number"),
        ("--- contention:\n1 1 0x1\n", "is not `delay contentions @`"),
        (
            "--- contention:\nms since reset = 9223372036854775807\n",
            "64 bits of nanoseconds",
        ),
        (
            "--- contention:\nsampling period = 9223372036854775807\n1 2 @\n",
            "more contentions than 64 bits hold",
        ),
        (
            "--- threadz 1 ---\n--- Thread main ---\n",
            "at byte 18 a line that is not the head of a thread",
        ),
        (
            "heapz profile: total 3\n3 0x1\n",
            "at byte 23 a line that is not `count @`",
        ),
    ];
    for (text, expected) in cases {
        let error = Profile::read(text.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let message = error.to_string();
        assert!(message.contains(expected), "{text}{message}");
    }
}
