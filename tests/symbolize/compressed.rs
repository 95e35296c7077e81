//! Compressed sections that are damaged, or become far more than they are: what is left gives its
//! names, and memory is bounded.

use std::io::{Read as _, Write as _};

use super::*;
use crate::built::Built;
use crate::shapes::{flipped, move_symbols_to_debugdata, set_debugdata};

/// What a bomb would take.
const BOMB_BYTES: usize = 256 << 20;
/// What symbolizing may take beyond what the test has taken before.
pub(super) const MOST_KIB: i64 = 48 << 10;

/// How sections are compressed, as `ch_type` has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Compression {
    Zlib = 1,
    Zstd = 2,
}

/// Puts other bytes in the place of a section, said to be compressed from `size` bytes.
fn set_compressed(built: &Built, section: &str, kind: Compression, size: u64, bytes: &[u8]) {
    let alignment = 1_u64;
    let mut content = (kind as u64).to_le_bytes().to_vec();
    content.extend(size.to_le_bytes());
    content.extend(alignment.to_le_bytes());
    content.extend(bytes);
    fs::write(built.directory().join("content"), content).expect("it can be written");
    built.run(&format!(
        "objcopy --update-section {section}=content library.so"
    ));
    let mut file = fs::read(&built.path).expect("it can be read");
    let headers = section_headers(&file);
    let index = sections(&built.path)
        .iter()
        .position(|(name, ..)| name == section);
    let header = headers + 64 * index.expect("it has the section");
    let flags = &mut file[header + 8..][..8];
    flags[1] |= 0x08;
    fs::write(&built.path, file).expect("it can be written");
}

/// Where the headers of sections begin (gABI, `e_shoff`).
fn section_headers(file: &[u8]) -> usize {
    let offset = file[0x28..][..8].try_into().expect("there are eight bytes");
    u64::from_le_bytes(offset) as usize
}

/// What a section of zlib holds, if it is whole.
fn uncompressed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let mut reader = flate2::read::ZlibDecoder::new(bytes);
    reader.read_to_end(&mut content).ok().map(|_| content)
}

/// A whole compressed section, as objcopy wrote it, without its header.
fn compressed_by_objcopy(built: &Built, section: &str, kind: Compression) -> Vec<u8> {
    let option = match kind {
        Compression::Zlib => "zlib",
        Compression::Zstd => "zstd",
    };
    built.run(&format!(
        "objcopy --compress-debug-sections={option} library.so compressed.so"
    ));
    let path = built.directory().join("compressed.so");
    let (_, _, offset, size) = sections(&path)
        .into_iter()
        .find(|(name, ..)| name == section)
        .expect("it has the section");
    let file = fs::read(&path).expect("it can be read");
    file[offset as usize + 24..(offset + size) as usize].to_vec()
}

fn size_of(built: &Built, section: &str) -> u64 {
    let sections = sections(&built.path);
    let section = sections.iter().find(|(name, ..)| name == section);
    section.expect("it has the section").3
}

/// Symbolizes it, and says how much memory that took at most, in KiB.
pub(super) fn peak(symbolize: impl FnOnce()) -> i64 {
    let status = |key| {
        let status = fs::read_to_string("/proc/self/status").expect("it can be read");
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let words = line.expect("the kernel reports it").trim();
        let kib = words.strip_suffix(" kB").and_then(|kib| kib.parse().ok());
        kib.unwrap_or(0_i64)
    };
    // Sets the high-water mark back to now; kernels that refuse leave the higher one standing.
    fs::write("/proc/self/clear_refs", "5").ok();
    let before = status("VmRSS:");
    symbolize();
    let peak = status("VmHWM:") - before;
    process::figure!("peak {peak} KiB");
    peak
}

fn zlib_bomb() -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..BOMB_BYTES >> 20 {
        encoder.write_all(&[0; 1 << 20]).expect("memory takes it");
    }
    encoder.finish().expect("memory takes it")
}

/// A frame with a window of 96 MiB, whose blocks are each one byte, repeated (RFC 8878, 3.1.1).
fn zstd_bomb() -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (16 << 3) | 4];
    for block in 1..=BOMB_BYTES / BLOCK {
        let is_last = u32::from(block == BOMB_BYTES / BLOCK);
        let header = is_last | 1 << 1 | (BLOCK as u32) << 3;
        bomb.extend(&header.to_le_bytes()[..3]);
        bomb.push(0);
    }
    bomb
}

#[test]
fn a_bomb_of_xz_takes_little() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    if move_symbols_to_debugdata(&built).is_none() {
        return;
    }
    let mut xz = Command::new("sh");
    xz.arg("-c")
        .arg(format!("head -c {BOMB_BYTES} /dev/zero | xz -0 > bomb.xz"));
    run(xz.current_dir(built.directory()));
    let bomb = fs::read(built.directory().join("bomb.xz")).expect("it can be read");
    set_debugdata(&built, &bomb);
    let mut left = String::new();
    let peak = peak(|| left = built.assert_named(&["exported"]));
    let path = built.path.display();
    assert!(
        left.contains(&format!(
            ": .gnu_debugdata of {path} cannot be read: it becomes more than "
        )),
        "{left}"
    );
    assert_eq!(left.lines().count(), 1, "{left}");
    assert!(peak < MOST_KIB, "{peak} KiB");
}

#[test]
fn a_bomb_of_zlib_takes_little() {
    assert_bomb_takes_little(Compression::Zlib, &zlib_bomb());
}

#[test]
fn a_bomb_of_zstd_takes_little() {
    assert_bomb_takes_little(Compression::Zstd, &zstd_bomb());
}

/// Whatever it says of its size.
fn assert_bomb_takes_little(kind: Compression, bomb: &[u8]) {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    for section in [".debug_info", ".debug_str", ".debug_line"] {
        for size in [100, 1 << 20, BOMB_BYTES as u64, u64::MAX] {
            set_compressed(&built, section, kind, size, bomb);
            let mut left = String::new();
            let peak = peak(|| left = built.symbolize().1);
            let path = built.path.display();
            assert!(
                left.contains(&format!("{section} of {path} cannot be read: ")),
                "{size} bytes: {left}"
            );
            assert_eq!(left.lines().count(), 1, "{left}");
            assert!(peak < MOST_KIB, "{peak} KiB");
        }
        built.run("cp whole.so library.so");
    }
}

#[test]
fn damaged_compressed_debug_information_leaves_the_symbols() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    for kind in [Compression::Zlib, Compression::Zstd] {
        if kind == Compression::Zstd && !built.has_zstd() {
            continue;
        }
        let section = ".debug_info";
        let size = size_of(&built, section);
        let whole = compressed_by_objcopy(&built, section, kind);
        set_compressed(&built, section, kind, size, &whole);
        built.assert_whole();
        let expected = format!("{section} of {} cannot be read: ", built.path.display());
        for len in [0, 1, 12, whole.len() / 2, whole.len() - 1] {
            set_compressed(&built, section, kind, size, &whole[..len]);
            let left = built.assert_named(&["exported", "hidden"]);
            assert!(left.contains(&expected), "{len} bytes of {kind:?}: {left}");
            assert_eq!(left.lines().count(), 1, "{left}");
        }
        for round in 0..40 {
            let bytes = flipped(&whole, round);
            set_compressed(&built, section, kind, size, &bytes);
            match kind {
                // Some bits say nothing: those between the last code and the checksum.
                Compression::Zlib if uncompressed(&bytes) == uncompressed(&whole) => {
                    built.assert_whole();
                }
                Compression::Zlib => {
                    let left = built.assert_named(&["exported", "hidden"]);
                    assert!(left.contains(&expected), "round {round}: {left}");
                    assert_eq!(left.lines().count(), 1, "{left}");
                }
                // Without a checksum, some of it may say what was never there.
                Compression::Zstd => {
                    let left = built.assert_any_names();
                    assert!(left.lines().count() <= 1, "{left}");
                }
            }
        }
        built.run("cp whole.so library.so");
    }
}

/// Each instruction of a long function has the same line, as those of a long table do.
const MONOTONOUS_SOURCE: &str = "\
void exported(void) {
    __asm__ volatile(\".rept 400000\\n .loc 1 2\\n nop\\n .endr\");
}
";

#[test]
fn a_line_table_that_becomes_hundreds_of_times_as_large_is_read() {
    let (Some(gcc), Some(_), Some(_)) = (tool("gcc"), tool("readelf"), tool("nm")) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    fs::write(directory.path().join("code.c"), MONOTONOUS_SOURCE).expect("it can be written");
    let mut gcc = Command::new(gcc);
    gcc.args(["-g", "-gz=zlib", "-shared", "-fPIC", "-Wl,--build-id"])
        .args(["-o", "library.so", "code.c"]);
    run(gcc.current_dir(directory.path()));
    let path = directory.path().join("library.so");
    let sections = sections(&path);
    let lines = sections.iter().find(|(name, ..)| name == ".debug_line");
    let (_, _, offset, size) = lines.expect("it has lines");
    let file = fs::read(&path).expect("it can be read");
    let becomes = &file[*offset as usize + 8..][..8];
    let becomes = u64::from_le_bytes(becomes.try_into().expect("there are eight bytes"));
    assert!(becomes > 100 * size, "{size} bytes become {becomes}");
    let mapping = mapping_of(&path, &build_id(&path));
    let begin = file_offset(&path, symbol(&path, "exported", &[]));
    let (mut profile, locations) = profile_of(mapping, &[BASE + begin + 200_000]);
    assert_eq!(reasons(&symbolize(&mut profile)), "");
    let [frame] = &frames(&profile, locations[0])[..] else {
        panic!("one frame");
    };
    assert_eq!((frame.name.as_str(), frame.line), ("exported", 2));
}
