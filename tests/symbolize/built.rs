//! A library as it was built, to be held against what becomes of it.

use super::*;
use crate::against_addr2line::{addr2line, plain};

/// Its copy, which stays as it was built.
const WHOLE: &str = "whole.so";

/// A library as it was built, and what addr2line says of some of its addresses.
pub(super) struct Built {
    _directory: Option<tempfile::TempDir>,
    pub(super) path: PathBuf,
    /// Offsets in the file, which no shape changes for code.
    offsets: Vec<u64>,
    /// Name, file and line, innermost first.
    expected: Vec<Vec<(String, String, i64)>>,
}

impl Built {
    pub(super) fn new(flags: &[&str]) -> Option<Self> {
        tool("addr2line")?;
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
        fs::copy(&path, directory.path().join(WHOLE)).expect("it can be copied");
        let built = Self::at(directory.path());
        Some(Self {
            _directory: Some(directory),
            ..built
        })
    }

    /// The one that lies in a directory, whatever has become of it.
    pub(super) fn at(directory: &Path) -> Self {
        let whole = directory.join(WHOLE);
        let functions = ["exported", "hidden"].into_iter();
        let addresses: Vec<_> = functions.flat_map(|name| range(&whole, name)).collect();
        let expected = addr2line("addr2line".as_ref(), &whole, &addresses);
        let inlined = expected.iter().filter(|frames| frames.len() > 1);
        assert!(inlined.count() > 10, "the library has inlined calls");
        let offsets = addresses
            .iter()
            .map(|&address| file_offset(&whole, address));
        Self {
            _directory: None,
            path: directory.join("library.so"),
            offsets: offsets.collect(),
            expected,
        }
    }

    pub(super) fn directory(&self) -> &Path {
        self.path.parent().expect("it lies in a directory")
    }

    /// How many of the addresses lie in a function.
    pub(super) fn count(&self, function: &str) -> usize {
        let lasts = self.expected.iter().filter_map(|frames| frames.last());
        lasts.filter(|(name, _, _)| name == function).count()
    }

    /// Runs a tool in the library's directory.
    pub(super) fn run(&self, command: &str) {
        let mut words = command.split(' ');
        let tool = words.next().expect("a command has a name");
        run(Command::new(tool).args(words).current_dir(self.directory()));
    }

    /// Symbolizes it as it is now: the frames, and what stood in the way.
    pub(super) fn symbolize(&self) -> (Vec<Vec<Frame>>, String) {
        let addresses: Vec<_> = self.offsets.iter().map(|offset| BASE + offset).collect();
        let (mut profile, locations) =
            profile_of(mapping_of(&self.path, &build_id(&self.path)), &addresses);
        let left = symbolize(&mut profile);
        let frames = locations.iter().map(|&location| frames(&profile, location));
        (frames.collect(), reasons(&left))
    }

    /// Functions, files, lines and inlined frames are those of addr2line.
    #[track_caller]
    pub(super) fn assert_whole(&self) {
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
    pub(super) fn assert_named(&self, functions: &[&str]) -> String {
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
