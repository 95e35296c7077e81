//! Files made of any bytes, for the fuzzer and the tests: whatever they are, a reader's answer is an
//! error or a profile, and a profile can be shown, written, and read again.
#![forbid(unsafe_code)]

use super::{EXTENSIONS, Format, collapsed, cpuprofile, gmon, legacy, pprof};
use crate::{Error, ErrorKind, Profile, Result};

/// Bytes of memory that a reader may take, and bytes that a compressed file may unfold to.
const LIMIT: u64 = 1 << 26;

/// Bytes for a profile.proto, bare or in gzip.
pub(crate) fn pprof(data: &[u8]) {
    judge(match data {
        [0x1f, 0x8b, ..] => pprof::read_gzip(data, LIMIT),
        _ => pprof::read_uncompressed(data, LIMIT),
    });
}

/// Bytes for a gperftools CPU profile.
pub(crate) fn cpuprofile(data: &[u8]) {
    if let Some(slots) = cpuprofile::sniff(data) {
        judge(cpuprofile::read(slots, LIMIT));
    }
}

/// Bytes for a gmon.out file, GNU's or BSD's.
pub(crate) fn gmon(data: &[u8]) {
    if gmon::sniff(data) {
        judge(gmon::read(data, LIMIT));
    } else if let Some(read) = gmon::read_bsd(data, LIMIT).transpose() {
        judge(read);
    }
}

/// Bytes for a heap, growth, contention, thread or count profile as text.
pub(crate) fn legacy(data: &[u8]) {
    if let Some(kind) = legacy::sniff(data) {
        judge(legacy::read(data, kind, LIMIT));
    }
}

/// Bytes for collapsed stacks.
pub(crate) fn collapsed(data: &[u8]) {
    judge(collapsed::read(data, LIMIT));
}

fn judge(read: Result<Profile>) {
    match read {
        Ok(profile) => use_up(&profile),
        Err(error) => check(&error),
    }
}

/// An error has a reason and the kind of a wrong file.
fn check(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert!(!error.to_string().is_empty());
}

/// Does with a profile what there is to be done.
fn use_up(profile: &Profile) {
    let shown = profile.to_string();
    let _ = profile.top(5).to_string();
    let mut bytes = Vec::new();
    for (_, format) in EXTENSIONS {
        bytes.clear();
        // Not every format holds every profile; those that do, hold it readably.
        if profile.write(format, &mut bytes).is_ok() {
            let again = Profile::read(&bytes);
            let again = again.unwrap_or_else(|error| panic!("{format:?}: {error}\n{shown}"));
            if matches!(format, Format::Pprof | Format::PprofUncompressed) {
                assert_eq!(again.to_string(), shown, "{format:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::process::soak;

    type Judge = fn(&[u8]);

    /// The targets of `fuzz/`.
    const TARGETS: [(&str, Judge); 5] = [
        ("pprof", pprof),
        ("cpuprofile", cpuprofile),
        ("gmon", gmon),
        ("legacy", legacy),
        ("collapsed", collapsed),
    ];

    /// What the fuzzer of a target begins with.
    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
        let files = std::fs::read_dir(directory.join(target)).unwrap();
        files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .collect()
    }

    #[derive(Clone, Debug)]
    enum Damage {
        Byte(Index, u8),
        Bytes(Index, Vec<u8>),
        Removal(Index, usize),
        Copy(Index, usize, Index),
        Cut(Index),
    }

    impl Damage {
        fn any() -> impl Strategy<Value = Self> {
            prop_oneof![
                4 => any::<(Index, u8)>().prop_map(|(at, byte)| Self::Byte(at, byte)),
                2 => (any::<Index>(), prop::collection::vec(any::<u8>(), 1..9))
                    .prop_map(|(at, bytes)| Self::Bytes(at, bytes)),
                2 => (any::<Index>(), 1..40usize).prop_map(|(at, len)| Self::Removal(at, len)),
                2 => (any::<Index>(), 1..80usize, any::<Index>())
                    .prop_map(|(from, len, to)| Self::Copy(from, len, to)),
                1 => any::<Index>().prop_map(Self::Cut),
            ]
        }

        fn is_done_to(&self, bytes: &mut Vec<u8>) {
            let place = |at: &Index| at.index(bytes.len() + 1);
            let range = |at: &Index, len: usize| place(at)..bytes.len().min(place(at) + len);
            match self {
                Self::Byte(at, byte) => {
                    let at = place(at);
                    if let Some(there) = bytes.get_mut(at) {
                        *there = *byte;
                    }
                }
                Self::Bytes(at, new) => {
                    let at = place(at);
                    bytes.splice(at..at, new.iter().copied());
                }
                Self::Removal(at, len) => {
                    let range = range(at, *len);
                    bytes.drain(range);
                }
                Self::Copy(from, len, to) => {
                    let (to, copy) = (place(to), bytes[range(from, *len)].to_vec());
                    bytes.splice(to..to, copy);
                }
                Self::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
            }
        }
    }

    #[test]
    fn damaged_seeds_do_no_harm() {
        let rounds = (100.0 * soak()) as u32;
        for (target, judge) in TARGETS {
            let seeds = seeds(target);
            assert!(!seeds.is_empty(), "{target}");
            for seed in seeds {
                judge(&seed);
                let damages = prop::collection::vec(Damage::any(), 1..6);
                proptest!(ProptestConfig::with_cases(rounds), |(damages in damages)| {
                    let mut bytes = seed.clone();
                    for damage in damages {
                        damage.is_done_to(&mut bytes);
                    }
                    judge(&bytes);
                });
            }
        }
    }
}
