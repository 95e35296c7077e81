//! Where names can lie: one library in each shape that distributions and tools give it, with what
//! addr2line says of it as it was built.

use super::*;
use crate::against_addr2line::{addr2line, plain};

/// A library as it was built, and what addr2line says of some of its addresses.
struct Built {
    _directory: tempfile::TempDir,
    path: PathBuf,
    /// Offsets in the file, which no shape changes for code.
    offsets: Vec<u64>,
    /// Name, file and line, innermost first.
    expected: Vec<Vec<(String, String, i64)>>,
}

impl Built {
    fn new(flags: &[&str]) -> Option<Self> {
        let addr2line_tool = tool("addr2line")?;
        tool("objcopy")?;
        // A build id of its own, for the directory that all programs share.
        let build_id = format!(
            "-Wl,--build-id=0x{:032x}{:08x}",
            process_nonce(),
            std::process::id()
        );
        let mut all = vec!["-shared", "-fPIC", &build_id];
        all.extend(flags);
        let (directory, path) = compile("library.so", &all)?;
        let mut addresses = Vec::new();
        for function in ["exported", "hidden"] {
            addresses.extend(range(&path, function));
        }
        let expected = addr2line(&addr2line_tool, &path, &addresses);
        let inlined = expected.iter().filter(|frames| frames.len() > 1);
        assert!(
            inlined.count() > 10,
            "{flags:?}: the library has inlined calls"
        );
        let offsets = addresses.iter().map(|&address| file_offset(&path, address));
        Some(Self {
            offsets: offsets.collect(),
            expected,
            _directory: directory,
            path,
        })
    }

    fn directory(&self) -> &Path {
        self.path.parent().expect("it lies in a directory")
    }

    /// How many of the addresses lie in a function.
    fn count(&self, function: &str) -> usize {
        let lasts = self.expected.iter().filter_map(|frames| frames.last());
        lasts.filter(|(name, _, _)| name == function).count()
    }

    /// Runs a tool in the library's directory.
    fn run(&self, command: &str) {
        let mut words = command.split(' ');
        let tool = words.next().expect("a command has a name");
        run(Command::new(tool).args(words).current_dir(self.directory()));
    }

    /// Symbolizes it as it is now: the frames, and what stood in the way.
    fn symbolize(&self) -> (Vec<Vec<Frame>>, String) {
        let addresses: Vec<_> = self.offsets.iter().map(|offset| BASE + offset).collect();
        let (mut profile, locations) =
            profile_of(mapping_of(&self.path, &build_id(&self.path)), &addresses);
        let left = symbolize(&mut profile);
        let frames = locations.iter().map(|&location| frames(&profile, location));
        (frames.collect(), reasons(&left))
    }

    /// Functions, files, lines and inlined frames are those of addr2line.
    #[track_caller]
    fn assert_whole(&self) {
        let (found, left) = self.symbolize();
        assert_eq!(left, "");
        for ((found, expected), offset) in found.iter().zip(&self.expected).zip(&self.offsets) {
            let found: Vec<_> = found
                .iter()
                .map(|frame| (frame.name.clone(), plain(&frame.file), frame.line))
                .collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|(name, file, line)| (name.clone(), plain(file), *line))
                .collect();
            assert_eq!(found, expected, "at {offset:#x}");
        }
    }

    /// The functions have their names, and nothing more.
    #[track_caller]
    fn assert_named(&self, functions: &[&str]) -> String {
        let (found, left) = self.symbolize();
        for (found, expected) in found.iter().zip(&self.expected) {
            let (expected, _, _) = expected.last().expect("addr2line knows it");
            let found: Vec<_> = found.iter().map(|frame| frame.name.as_str()).collect();
            match functions.contains(&expected.as_str()) {
                true => assert_eq!(found, [expected], "{left}"),
                false => assert_eq!(found, [""; 0], "{left}"),
            }
        }
        left
    }

    /// Puts the symbols of functions into `.gnu_debugdata`, as RPM's `find-debuginfo` does.
    fn move_symbols_to_debugdata(&self) -> Option<PathBuf> {
        tool("xz")?;
        self.run("objcopy --only-keep-debug library.so whole.debug");
        self.run("objcopy -S --keep-symbol=hidden whole.debug mini");
        self.run("xz --keep mini");
        self.run("objcopy --strip-all library.so");
        self.run("objcopy --add-section .gnu_debugdata=mini.xz library.so");
        Some(self.directory().join("mini.xz"))
    }

    /// Puts other bytes in the place of `.gnu_debugdata`.
    fn set_debugdata(&self, bytes: &[u8]) {
        fs::write(self.directory().join("mini.xz"), bytes).expect("it can be written");
        self.run("objcopy --remove-section .gnu_debugdata library.so");
        self.run("objcopy --add-section .gnu_debugdata=mini.xz library.so");
    }
}

/// The linked addresses of a function.
fn range(path: &Path, function: &str) -> std::ops::Range<u64> {
    let symbols = run(Command::new("nm").arg("-S").arg(path));
    let hex = |word: &str| u64::from_str_radix(word, 16).expect("nm speaks hex");
    let begin_and_size = symbols.lines().find_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let [begin, size, _, name] = words[..] else {
            return None;
        };
        (name == function).then(|| (hex(begin), hex(size)))
    });
    let (begin, size) = begin_and_size.expect("the function has a symbol");
    begin..begin + size
}

/// A number that no other run of this program has.
fn process_nonce() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("the clock is past 1970").as_nanos()
}

/// Bytes with some bits of theirs flipped, each round others.
fn flipped(bytes: &[u8], round: u64) -> Vec<u8> {
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
    if built.move_symbols_to_debugdata().is_none() {
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
    let Some(debugdata) = built.move_symbols_to_debugdata() else {
        return;
    };
    let whole = fs::read(&debugdata).expect("it can be read");
    let expected = format!(
        "{path}: {} addresses without a name: .gnu_debugdata of {path} cannot be read: ",
        built.count("hidden"),
        path = built.path.display()
    );
    for len in [0, 1, 12, 100, whole.len() / 2, whole.len() - 1] {
        built.set_debugdata(&whole[..len]);
        let left = built.assert_named(&["exported"]);
        assert!(left.starts_with(&expected), "{len} bytes: {left}");
    }
    for round in 0..100 {
        built.set_debugdata(&flipped(&whole, round));
        let left = built.assert_named(&["exported"]);
        assert!(left.starts_with(&expected), "round {round}: {left}");
    }
    built.set_debugdata(b"no xz");
    let left = built.assert_named(&["exported"]);
    assert!(left.starts_with(&expected), "{left}");
    assert_eq!(left.lines().count(), 1, "{left}");
}
