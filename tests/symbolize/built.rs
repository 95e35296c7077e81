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
        let build_id = unique_build_id();
        let mut all = vec!["-shared", "-fPIC", &build_id];
        all.extend(flags);
        let (directory, path) = compile("library.so", &all)?;
        fs::copy(&path, directory.path().join(WHOLE)).expect("it can be copied");
        Some(Self::at(directory.path()).owning(directory))
    }

    /// One whose debug information the compiler splits off. Its code is that of one of the same
    /// version of DWARF whose debug information stays.
    pub(super) fn split(version: &str, flags: &[&str]) -> Option<Self> {
        let built = Self::new(&[version])?;
        let mut gcc = Command::new(tool("gcc")?);
        gcc.args(["-O2", "-shared", "-fPIC", "-gsplit-dwarf"])
            .args(["-o", "library.so", version, &unique_build_id()])
            .args(flags)
            .arg("code.c");
        run(gcc.current_dir(built.directory()));
        Some(built)
    }

    /// A Rust program whose code and debug information are where these flags say. Its code is that
    /// of one whose debug information stays.
    pub(super) fn rust(flags: &[&str]) -> Option<Self> {
        tool("addr2line")?;
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        fs::write(directory.path().join("code.rs"), RUST_SOURCE).expect("it can be written");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let compile = |name: &str, flags: &[&str]| {
            let mut command = Command::new(&rustc);
            command
                .args(["-O", "-g", "code.rs", "-o", name])
                .args(flags);
            run(command.current_dir(directory.path()));
        };
        // binutils 2.40 misses some calls that were inlined, where DWARF 5 has them.
        compile(WHOLE, &["-Cdwarf-version=4", "-Csplit-debuginfo=off"]);
        compile("library.so", flags);
        Some(Self::at(directory.path()).owning(directory))
    }

    /// The one that lies in a directory, whatever has become of it.
    pub(super) fn at(directory: &Path) -> Self {
        let whole = directory.join(WHOLE);
        let (mut addresses, mut offsets) = (Vec::new(), Vec::new());
        for function in ["exported", "hidden"] {
            let range = range(&whole, function);
            let begin = file_offset(&whole, range.start);
            offsets.extend(range.clone().map(|address| address - range.start + begin));
            addresses.extend(range);
        }
        let expected = addr2line("addr2line".as_ref(), &whole, &addresses);
        let inlined = expected.iter().filter(|frames| frames.len() > 1);
        assert!(inlined.count() > 10, "the library has inlined calls");
        Self {
            _directory: None,
            path: directory.join("library.so"),
            offsets,
            expected,
        }
    }

    fn owning(self, directory: tempfile::TempDir) -> Self {
        Self {
            _directory: Some(directory),
            ..self
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
    pub(super) fn run(&self, command: &str) -> String {
        let mut words = command.split(' ');
        let tool = words.next().expect("a command has a name");
        run(Command::new(tool).args(words).current_dir(self.directory()))
    }

    /// Whether objcopy can compress by zstd, as that of binutils 2.40 and later can where it was
    /// built with zstd's library.
    pub(super) fn has_zstd(&self) -> bool {
        let mut objcopy = Command::new("objcopy");
        objcopy.args(["--compress-debug-sections=zstd", "library.so", "zstd.so"]);
        let output = process::output(objcopy.current_dir(self.directory()));
        let has_zstd = output.expect("the tool starts").status.success();
        if !has_zstd {
            process::skip("objcopy does not know zstd (binutils 2.40 does)");
        }
        has_zstd
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
                .map(|frame| (frame.symbol().to_owned(), plain(&frame.file), frame.line))
                .collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|(name, file, line)| (name.clone(), plain(file), *line))
                .collect();
            assert_eq!(found, expected, "at {offset:#x}");
        }
    }

    /// Each address has its functions, inlined ones too.
    #[track_caller]
    pub(super) fn assert_functions(&self) -> String {
        let (found, left) = self.symbolize();
        for (found, expected) in found.iter().zip(&self.expected) {
            let found: Vec<_> = found.iter().map(Frame::symbol).collect();
            let expected: Vec<_> = expected.iter().map(|(name, _, _)| name.as_str()).collect();
            assert_eq!(found, expected, "{left}");
        }
        left
    }

    /// Each address has its line, and the function that it is in, but not what was inlined there.
    #[track_caller]
    pub(super) fn assert_lines(&self) -> String {
        let (found, left) = self.symbolize();
        for (found, expected) in found.iter().zip(&self.expected) {
            let [frame] = &found[..] else {
                panic!("{found:?} instead of {expected:?}: {left}");
            };
            let (_, file, line) = &expected[0];
            let (function, _, _) = &expected[expected.len() - 1];
            let found = (frame.symbol(), plain(&frame.file), frame.line);
            assert_eq!(found, (function.as_str(), plain(file), *line), "{left}");
        }
        left
    }

    /// Each address has the function that it is in, and the line there. What was inlined there has
    /// no name.
    #[track_caller]
    pub(super) fn assert_outermost(&self) -> String {
        let (found, left) = self.symbolize();
        for (found, expected) in found.iter().zip(&self.expected) {
            let [frame] = &found[..] else {
                panic!("{found:?} instead of {expected:?}: {left}");
            };
            let (function, file, line) = &expected[expected.len() - 1];
            let found = (frame.symbol(), plain(&frame.file), frame.line);
            assert_eq!(found, (function.as_str(), plain(file), *line), "{left}");
        }
        left
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

    /// Each address has some name.
    #[track_caller]
    pub(super) fn assert_any_names(&self) -> String {
        let (found, left) = self.symbolize();
        assert!(found.iter().all(|frames| !frames.is_empty()), "{left}");
        left
    }
}

/// An option for the linker: a build id of its own, for the directory that all programs share.
fn unique_build_id() -> String {
    format!(
        "-Wl,--build-id=0x{:032x}{:08x}",
        process_nonce(),
        std::process::id()
    )
}

const RUST_SOURCE: &str = "\
use std::hint::black_box;
#[inline(always)]
fn innermost(x: u64) -> u64 { black_box(x).rotate_left(7) ^ 0x55 }
#[inline(always)]
fn inner(x: u64) -> u64 { innermost(x) + innermost(x + 1) }
#[no_mangle]
#[inline(never)]
pub fn hidden(values: &mut Vec<u64>) -> u64 {
    values.sort_by(|a, b| inner(*a).cmp(&inner(*b)));
    values.iter().copied().map(inner).fold(0, |a, b| a ^ b)
}
#[no_mangle]
#[inline(never)]
pub fn exported(values: &[u64]) -> Option<u64> {
    values.iter().map(|&x| inner(x)).max()
}
fn main() {
    let mut values: Vec<u64> = (0..black_box(100)).collect();
    println!(\"{:?} {}\", exported(&values), hidden(&mut values));
}
";

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
