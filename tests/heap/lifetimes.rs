//! Lifetimes of known length, as `go tool pprof` shows them.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use sigprof::heap;

use crate::leak::first_row;
use crate::support::{go_pprof, tool};

const BLOCKS: usize = 100;
const SIZE: usize = 1 << 20;

/// Blocks of which each lives for a moment.
#[inline(never)]
fn makes_temporary_blocks() {
    for i in 0..BLOCKS {
        black_box(vec![i as u8; SIZE]);
    }
}

/// Blocks that live for half a second at least, all together.
#[inline(never)]
fn keeps_blocks_for_long() {
    let kept: Vec<_> = (0..BLOCKS).map(|_| black_box(vec![1_u8; SIZE])).collect();
    thread::sleep(Duration::from_millis(500));
    drop(kept);
}

#[test]
fn go_tool_pprof_shows_who_makes_temporary_blocks_and_how_long_others_live() {
    let Some(go) = tool("go") else { return };
    makes_temporary_blocks();
    keeps_blocks_for_long();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lifetimes.pb.gz");
    heap::lifetimes().unwrap().save(&file).unwrap();
    let top = |options: &[&str]| {
        let top = go_pprof(&go, &[options, &["-top"]].concat(), &file).stdout;
        first_row(&top).1
    };
    assert!(top(&[]).contains("makes_temporary_blocks"));
    let of_space = "-sample_index=freed_space";
    let is_long = [of_space, "-tagfocus=lifetime=400ms:"];
    assert!(top(&is_long).contains("keeps_blocks_for_long"));
    let is_short = [of_space, "-tagfocus=lifetime=:400ms"];
    assert!(top(&is_short).contains("makes_temporary_blocks"));
    let tags = go_pprof(&go, &[of_space, "-tags"], &file).stdout;
    assert!(tags.contains("lifetime: Total"), "{tags}");
}
