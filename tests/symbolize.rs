//! Symbolizing real objects, with the system's own tools as judges.
#![cfg(feature = "symbolize")]

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sigprof::Profile;
use sigprof::profile::{Location, LocationId, Mapping};
use sigprof::symbolize::{Unsymbolized, symbolize};

/// Where mappings made by hand pretend to lie: nowhere near any real one.
const BASE: u64 = 0x1000_0000_0000;

/// A program that a test cannot do without; `None`, with a word on stderr, if it may be skipped.
fn tool(name: &str) -> Option<PathBuf> {
    let package = match name {
        "gcc" => "gcc",
        "go" => "golang-go",
        _ => "binutils",
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file());
    if found.is_none() {
        let required = std::env::var("SIGPROF_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
        assert!(!required, "{name} is missing: apt-get install {package}");
        eprintln!("skipped: {name} is missing (apt-get install {package})");
    }
    found
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the tool starts");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("the tool speaks UTF-8")
}

/// A mapping made by hand: the whole file from its first byte at [`BASE`].
fn mapping_of(path: &Path, build_id: &str) -> Mapping {
    Mapping {
        memory_start: BASE,
        memory_limit: BASE + 0x1000_0000,
        file_offset: 0,
        filename: path.to_str().expect("the path is UTF-8").to_owned(),
        build_id: build_id.to_owned(),
        ..Mapping::default()
    }
}

fn profile_of(mapping: Mapping, addresses: &[u64]) -> (Profile, Vec<LocationId>) {
    let mut profile = Profile::new(Vec::new());
    let id = profile.push_mapping(mapping);
    let locations = addresses
        .iter()
        .map(|&address| {
            profile.push_location(Location {
                mapping: Some(id),
                address,
                ..Location::default()
            })
        })
        .collect();
    (profile, locations)
}

#[derive(Clone, Debug, PartialEq)]
struct Frame {
    name: String,
    system_name: String,
    file: String,
    line: i64,
    start_line: i64,
}

fn frames(profile: &Profile, location: LocationId) -> Vec<Frame> {
    profile
        .location(location)
        .lines
        .iter()
        .map(|line| {
            let function = profile.function(line.function);
            Frame {
                name: profile.string(function.name).to_owned(),
                system_name: profile.string(function.system_name).to_owned(),
                file: profile.string(function.filename).to_owned(),
                line: line.line,
                start_line: function.start_line,
            }
        })
        .collect()
}

fn reasons(unsymbolized: &[Unsymbolized]) -> String {
    let reasons: Vec<_> = unsymbolized.iter().map(ToString::to_string).collect();
    reasons.join("\n")
}

/// The build id as binutils reads it.
fn build_id(path: &Path) -> String {
    let notes = run(Command::new("readelf").arg("-nW").arg(path));
    notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "))
        .unwrap_or_default()
        .to_owned()
}

/// Name, address, file offset and size of a section.
fn sections(path: &Path) -> Vec<(String, u64, u64, u64)> {
    let table = run(Command::new("readelf").arg("-SW").arg(path));
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    table
        .lines()
        .filter_map(|line| {
            let mut words = line.split_once(']')?.1.split_whitespace();
            let name = words.next()?.to_owned();
            words.next()?;
            Some((
                name,
                hex(words.next()?)?,
                hex(words.next()?)?,
                hex(words.next()?)?,
            ))
        })
        .collect()
}

/// Offset in the file of a linked address of its code.
fn file_offset(path: &Path, address: u64) -> u64 {
    let (_, start, offset, _) = sections(path)
        .into_iter()
        .find(|&(_, start, _, size)| start != 0 && (start..start + size).contains(&address))
        .expect("the address lies in a section");
    address - start + offset
}

/// The linked address of a symbol.
fn symbol(path: &Path, name: &str, extra: &[&str]) -> u64 {
    let symbols = run(Command::new("nm").args(extra).arg(path));
    symbols
        .lines()
        .find_map(|line| {
            let (address, rest) = line.split_once(' ')?;
            (rest.split_once(' ')?.1 == name).then(|| u64::from_str_radix(address, 16).ok())?
        })
        .unwrap_or_else(|| panic!("{name} is a symbol of {}", path.display()))
}

/// What addr2line says about linked addresses: name, file and line, innermost first.
fn addr2line(tool: &Path, path: &Path, addresses: &[u64]) -> Vec<Vec<(String, String, i64)>> {
    let mut child = Command::new(tool)
        .args(["-f", "-i", "-a", "-e"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("addr2line starts");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let input: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("addr2line ends");
    writer
        .join()
        .expect("the writer lives")
        .expect("addr2line reads");

    let output = String::from_utf8_lossy(&output.stdout);
    let mut answers: Vec<Vec<(String, String, i64)>> = Vec::new();
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let position = lines.next().expect("a name is followed by a position");
        let position = position.split(" (discriminator").next().unwrap_or(position);
        let (file, number) = position.rsplit_once(':').expect("a position has a colon");
        answers.last_mut().expect("an address comes first").push((
            line.to_owned(),
            file.to_owned(),
            number.parse().unwrap_or(0),
        ));
    }
    assert_eq!(answers.len(), addresses.len());
    answers
}

/// The path without `.` and `..`, which tools resolve to different degrees.
fn plain(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Random addresses in the functions of a file: between them, addr2line takes the nearest one.
fn sample(path: &Path, count: usize) -> Vec<u64> {
    let symbols = run(Command::new("nm").args(["-S", "--defined-only"]).arg(path));
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let functions: Vec<(u64, u64)> = symbols
        .lines()
        .filter_map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let [start, size, "t" | "T" | "w" | "W" | "i", _] = words[..] else {
                return None;
            };
            Some((hex(start)?, hex(size)?)).filter(|&(_, size)| size > 0)
        })
        .collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut addresses = HashSet::new();
    for _ in 0..2 * count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (start, size) = functions[state as usize % functions.len()];
        addresses.insert(start + (state >> 32) % size);
    }
    addresses.into_iter().take(count).collect()
}

/// Pairs of symbols for the same code, of which every tool may choose its own.
fn aliases(path: &Path) -> HashSet<(String, String)> {
    let symbols = run(Command::new("nm").args(["-n", "--defined-only"]).arg(path));
    let symbols: Vec<(&str, &str)> = symbols
        .lines()
        .filter_map(|line| Some((line.get(..16)?, line.get(19..)?)))
        .collect();
    symbols
        .chunk_by(|a, b| a.0 == b.0)
        .flat_map(|same| {
            same.iter()
                .flat_map(|a| same.iter().map(|b| (a.1.to_owned(), b.1.to_owned())))
        })
        .collect()
}

/// Compares with addr2line on random addresses; answers how many there were and how many differ.
fn compare(tool: &Path, path: &Path, count: usize) -> (usize, usize) {
    let (_, start, offset, _) = sections(path)
        .into_iter()
        .find(|section| section.0 == ".text")
        .expect("there is code");
    let addresses = sample(path, count);
    let expected = addr2line(tool, path, &addresses);
    let in_memory: Vec<u64> = addresses
        .iter()
        .map(|address| BASE + address - start + offset)
        .collect();
    let (mut profile, locations) = profile_of(mapping_of(path, &build_id(path)), &in_memory);
    symbolize(&mut profile);

    let aliases = aliases(path);
    let (mut known, mut different) = (0, 0);
    for ((&location, expected), address) in locations.iter().zip(&expected).zip(addresses) {
        if expected.iter().any(|(name, _, _)| name == "??") {
            continue;
        }
        known += 1;
        let found: Vec<_> = frames(&profile, location)
            .into_iter()
            .map(|frame| {
                let name = match frame.system_name.as_str() {
                    "" => frame.name,
                    _ => frame.system_name,
                };
                (name, plain(&frame.file), frame.line)
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, file, line)| {
                // Without a line, the file is the one that the symbol table names for a local symbol.
                let file = match *line == 0 && !file.starts_with('/') {
                    true => String::new(),
                    false => plain(file),
                };
                (name.clone(), file, *line)
            })
            .collect();
        let is_alias = match (&found[..], &expected[..]) {
            ([(here, _, 0)], [(there, _, 0)]) => aliases.contains(&(here.clone(), there.clone())),
            _ => false,
        };
        if found != expected && !is_alias {
            different += 1;
            eprintln!("{address:#x}\n  here: {found:?}\n  addr2line: {expected:?}");
        }
    }
    (known, different)
}

#[test]
fn the_test_binary_as_addr2line_sees_it() {
    let Some(tool) = tool("addr2line") else {
        return;
    };
    let path = std::env::current_exe().expect("this is a program");
    let (known, different) = compare(&tool, &path, 2000);
    assert!(known > 1000, "addr2line knows {known} addresses");
    assert!(
        different * 100 <= known,
        "{different} of {known} addresses differ"
    );
}

const C_SOURCE: &str = "\
static int innermost(int x) { return x * 3 + 1; }
static inline __attribute__((always_inline)) int inner(volatile int *x) {
    *x = innermost(*x);
    return *x + 1;
}
__attribute__((noinline)) static int hidden(volatile int *x) { return inner(x) - 7; }
int exported(volatile int *x) {
    int sum = 0;
    for (int i = 0; i < *x; i++)
        sum += inner(x) + hidden(x);
    return sum;
}
int main(int argc, char **argv) { (void)argv; return exported((volatile int *)&argc); }
";

/// A directory with the C program in it, compiled to `name`.
fn compile(name: &str, flags: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let gcc = tool("gcc")?;
    tool("readelf")?;
    tool("nm")?;
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    fs::write(directory.path().join("code.c"), C_SOURCE).expect("it can be written");
    let path = directory.path().join(name);
    run(Command::new(gcc)
        .current_dir(directory.path())
        .args(["-O2", "-Wl,--build-id", "-o", name])
        .args(flags)
        .arg("code.c"));
    Some((directory, path))
}

/// Symbolizes the instructions of one function of a file in a mapping made by hand.
fn symbolize_function(
    path: &Path,
    mapping: Mapping,
    name: &str,
) -> (Profile, Vec<LocationId>, Vec<Unsymbolized>) {
    let offset = file_offset(path, symbol(path, name, &[]));
    let addresses: Vec<u64> = (0..16).map(|into| BASE + offset + into).collect();
    let (mut profile, locations) = profile_of(mapping, &addresses);
    let left = symbolize(&mut profile);
    (profile, locations, left)
}

#[test]
fn c_code_of_every_kind_as_addr2line_sees_it() {
    let Some(tool) = tool("addr2line") else {
        return;
    };
    for (name, flags) in [
        ("library.so", &["-g", "-shared", "-fPIC"][..]),
        ("pie", &["-g", "-pie", "-fPIE"]),
        ("fixed", &["-g", "-no-pie"]),
        ("fixed-static", &["-g", "-no-pie", "-static"]),
        ("static-pie", &["-g", "-static-pie", "-fPIE"]),
        ("compressed.so", &["-g", "-gz=zlib", "-shared", "-fPIC"]),
        ("dwarf4.so", &["-gdwarf-4", "-shared", "-fPIC"]),
        (
            "dwarf3.so",
            &["-gdwarf-3", "-gstrict-dwarf", "-shared", "-fPIC"],
        ),
        ("no-ranges-table.so", &["-g", "-shared", "-fPIC"]),
    ] {
        let Some((_directory, path)) = compile(name, flags) else {
            return;
        };
        if name == "no-ranges-table.so" {
            // As clang leaves it.
            let Some(objcopy) = self::tool("objcopy") else {
                return;
            };
            run(Command::new(objcopy)
                .args(["-R", ".debug_aranges"])
                .arg(&path));
        }
        let (known, different) = compare(&tool, &path, 100);
        assert!(known > 50, "{name}: {known} are known");
        assert_eq!(different, 0, "{name}");
    }
}

#[test]
fn inlined_calls_come_innermost_first_and_marks_are_set() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let mapping = mapping_of(&path, &build_id(&path));
    let (profile, locations, left) = symbolize_function(&path, mapping, "exported");
    assert_eq!(reasons(&left), "");
    let deepest = locations
        .iter()
        .map(|&location| frames(&profile, location))
        .max_by_key(Vec::len)
        .expect("there are locations");
    let names: Vec<_> = deepest.iter().map(|frame| frame.name.as_str()).collect();
    assert!(
        names.ends_with(&["inner", "exported"]) || names == ["exported"],
        "{names:?}"
    );
    let function = deepest.last().expect("it has frames");
    assert_eq!(function.system_name, "exported");
    assert_eq!(function.start_line, 7);
    assert!(Path::new(&function.file).ends_with("code.c"));

    let mapping = &profile.mappings()[0];
    assert!(mapping.has_functions && mapping.has_filenames && mapping.has_line_numbers);
    let functions: HashSet<_> = profile.functions().iter().collect();
    assert_eq!(
        functions.len(),
        profile.functions().len(),
        "each is there once"
    );
}

#[test]
fn split_debug_information_gives_lines_and_symbols() {
    let flags = ["-g", "-gsplit-dwarf", "-shared", "-fPIC"];
    let Some((_directory, path)) = compile("split.so", &flags) else {
        return;
    };
    let mapping = mapping_of(&path, &build_id(&path));
    let (profile, locations, left) = symbolize_function(&path, mapping, "exported");
    assert_eq!(reasons(&left), "");
    for location in locations {
        let frames = frames(&profile, location);
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].name, "exported");
        assert!(frames[0].line > 0);
    }
}

#[test]
fn lines_that_are_there_stay() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let mapping = mapping_of(&path, &build_id(&path));
    let (mut profile, _, _) = symbolize_function(&path, mapping, "exported");
    let once = profile.clone();
    assert!(symbolize(&mut profile).is_empty());
    assert_eq!(profile, once);
}

#[test]
fn a_stripped_library_gives_the_names_it_exports() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let Some(strip) = tool("strip") else { return };
    let exported = file_offset(&path, symbol(&path, "exported", &[]));
    let hidden = file_offset(&path, symbol(&path, "hidden", &[]));
    run(Command::new(strip).arg("--strip-all").arg(&path));

    let mapping = mapping_of(&path, &build_id(&path));
    let (mut profile, locations) = profile_of(mapping, &[BASE + exported, BASE + hidden]);
    let left = symbolize(&mut profile);
    let [frame] = &frames(&profile, locations[0])[..] else {
        panic!("one frame");
    };
    assert_eq!((frame.name.as_str(), frame.line), ("exported", 0));
    assert_eq!(frames(&profile, locations[1]), []);
    assert!(reasons(&left).contains("1 address without a name: no symbol covers"));

    let mapping = &profile.mappings()[0];
    assert!(mapping.has_functions);
    assert!(!mapping.has_filenames && !mapping.has_line_numbers && !mapping.has_inline_frames);
}

#[test]
fn a_program_without_any_symbols_stays_as_it_is() {
    let Some((_directory, path)) = compile("bare", &["-no-pie", "-static"]) else {
        return;
    };
    let Some(strip) = tool("strip") else { return };
    let main = file_offset(&path, symbol(&path, "main", &[]));
    run(Command::new(strip).arg("--strip-all").arg(&path));
    let (mut profile, locations) = profile_of(mapping_of(&path, &build_id(&path)), &[BASE + main]);
    let left = symbolize(&mut profile);
    assert_eq!(frames(&profile, locations[0]), []);
    assert!(reasons(&left).contains("neither debug information nor symbols"));
    assert!(!profile.mappings()[0].has_functions);
}

#[test]
fn another_build_is_refused_and_says_so() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let mapping = mapping_of(&path, "00112233445566778899aabbccddeeff00112233");
    let (profile, locations, left) = symbolize_function(&path, mapping, "exported");
    assert!(locations.iter().all(|&l| frames(&profile, l).is_empty()));
    let reasons = reasons(&left);
    assert!(reasons.contains("another build"), "{reasons}");
    assert!(reasons.contains(&build_id(&path)), "{reasons}");
    assert!(!profile.mappings()[0].has_functions);
}

#[test]
fn one_bad_module_leaves_the_others_alone() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let garbage = path.with_file_name("garbage.so");
    fs::write(&garbage, b"\x7fELF, but not really").expect("it can be written");
    // The headers are whole and the debug information is not.
    let torn = path.with_file_name("torn.so");
    let mut bytes = fs::read(&path).expect("it can be read");
    let (_, _, offset, size) = sections(&path)
        .into_iter()
        .find(|section| section.0 == ".debug_info")
        .expect("there is debug information");
    bytes[offset as usize..(offset + size) as usize].fill(0xa5);
    fs::write(&torn, bytes).expect("it can be written");

    let offset = file_offset(&path, symbol(&path, "exported", &[]));
    let mut profile = Profile::new(Vec::new());
    let mut locations = Vec::new();
    let missing = path.with_file_name("missing.so");
    for path in [
        &garbage,
        &missing,
        Path::new("[heap]"),
        Path::new(""),
        &torn,
        &path,
    ] {
        let mapping = profile.push_mapping(mapping_of(path, ""));
        locations.push(profile.push_location(Location {
            mapping: Some(mapping),
            address: BASE + offset,
            ..Location::default()
        }));
    }
    let left = symbolize(&mut profile);
    assert_eq!(left.len(), 4, "{}", reasons(&left));
    for &location in &locations[..4] {
        assert_eq!(frames(&profile, location), []);
    }
    assert_eq!(frames(&profile, locations[4])[0].name, "exported");
    assert_eq!(frames(&profile, locations[5])[0].start_line, 7);
}

#[test]
fn damaged_files_do_no_harm() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let offset = file_offset(&path, symbol(&path, "exported", &[]));
    let addresses: Vec<u64> = (0..32).map(|into| BASE + offset + into).collect();
    let whole = fs::read(&path).expect("it can be read");
    let damaged = path.with_file_name("damaged.so");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..=round % 40 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let position = state as usize % bytes.len();
            bytes[position] = (state >> 32) as u8;
        }
        if round % 4 == 0 {
            bytes.truncate(state as usize % bytes.len());
        }
        fs::write(&damaged, bytes).expect("it can be written");
        let (mut profile, _) = profile_of(mapping_of(&damaged, ""), &addresses);
        symbolize(&mut profile);
    }
}

/// The mappings of this process that hold code, without build ids.
fn live_mappings() -> Vec<Mapping> {
    let maps = fs::read_to_string("/proc/self/maps").expect("it can be read");
    maps.lines()
        .filter_map(|line| {
            let mut words = line.splitn(6, ' ');
            let (start, limit) = words.next()?.split_once('-')?;
            let permissions = words.next()?;
            let offset = words.next()?;
            let path = words.nth(2)?.trim_start();
            let hex = |word| u64::from_str_radix(word, 16).expect("maps are in hex");
            permissions.contains('x').then(|| Mapping {
                memory_start: hex(start),
                memory_limit: hex(limit),
                file_offset: hex(offset),
                filename: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
                ..Mapping::default()
            })
        })
        .collect()
}

fn symbolize_live(address: u64, build_id: &str) -> (Vec<Frame>, String) {
    let mut mapping = live_mappings()
        .into_iter()
        .find(|mapping| (mapping.memory_start..mapping.memory_limit).contains(&address))
        .expect("the address is mapped");
    mapping.build_id = build_id.to_owned();
    let (mut profile, locations) = profile_of(mapping, &[address]);
    let left = symbolize(&mut profile);
    (frames(&profile, locations[0]), reasons(&left))
}

struct Held<T>(T);

impl<T> std::ops::Deref for Held<T> {
    type Target = T;

    #[inline(never)]
    fn deref(&self) -> &T {
        std::hint::black_box(&self.0)
    }
}

#[test]
fn names_of_generics_are_whole() {
    let address = <Held<u64> as std::ops::Deref>::deref as *const () as u64;
    let (frames, left) = symbolize_live(address, "");
    assert_eq!(left, "");
    let frame = frames.last().expect("it has frames");
    assert!(frame.name.starts_with("<symbolize::Held<"), "{frame:?}");
    assert!(
        frame.name.ends_with("> as core::ops::deref::Deref>::deref"),
        "{frame:?}"
    );
    assert!(frame.system_name.starts_with("_"), "{frame:?}");
    assert!(Path::new(&frame.file).ends_with("tests/symbolize.rs"));
    assert!(frame.start_line > 0 && frame.line >= frame.start_line);
}

#[test]
fn the_vdso_is_read_from_memory() {
    let Some(vdso) = live_mappings().into_iter().find(|m| m.filename == "[vdso]") else {
        eprintln!("skipped: this kernel maps no vDSO");
        return;
    };
    let addresses: Vec<u64> = (vdso.memory_start..vdso.memory_limit).step_by(16).collect();
    let (mut profile, locations) = profile_of(vdso, &addresses);
    symbolize(&mut profile);
    let names: HashSet<_> = locations
        .iter()
        .flat_map(|&location| frames(&profile, location))
        .map(|frame| frame.name)
        .collect();
    assert!(
        names.iter().any(|n| n.contains("clock_gettime")),
        "{names:?}"
    );
}

#[test]
fn libc_has_names_whatever_it_was_stripped_of() {
    let (frames, left) = symbolize_live(libc::qsort as *const () as usize as u64, "");
    assert_eq!(left, "");
    let frame = frames.last().expect("it has frames");
    assert!(frame.name.contains("qsort"), "{frame:?}");
}

fn open_library(path: &Path) -> u64 {
    let path = std::ffi::CString::new(path.to_str().expect("it is UTF-8")).expect("it has no NUL");
    // SAFETY: the library is this test's own; its only code is what `C_SOURCE` says.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "the library opens");
    // SAFETY: the handle is a live one and the name ends in NUL.
    let function = unsafe { libc::dlsym(library, c"exported".as_ptr()) };
    assert!(!function.is_null(), "it exports the function");
    function as u64
}

/// Names from the file that was mapped, or none and a reason; never from the file that took its place.
fn assert_true_or_refused(frames: &[Frame], left: &str) {
    match frames {
        [] => assert!(
            left.contains("deleted or replaced while it was mapped"),
            "{left}"
        ),
        frames => {
            let function = frames.last().expect("it has frames");
            assert_eq!(
                (function.name.as_str(), function.start_line),
                ("exported", 7)
            );
        }
    }
}

#[test]
fn a_library_that_was_deleted_while_it_was_mapped() {
    let Some((_directory, path)) = compile("deleted.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let build_id = build_id(&path);
    let address = open_library(&path);
    let (frames, _) = symbolize_live(address, &build_id);
    assert_eq!(frames.last().expect("it has frames").start_line, 7);

    fs::remove_file(&path).expect("it can be removed");
    for build_id in [build_id.as_str(), ""] {
        let (frames, left) = symbolize_live(address, build_id);
        assert_true_or_refused(&frames, &left);
    }
}

#[test]
fn a_library_that_was_replaced_while_it_was_mapped() {
    let Some((directory, path)) = compile("replaced.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let build_id = build_id(&path);
    let address = open_library(&path);
    let source = directory.path().join("code.c");
    fs::write(
        &source,
        format!("int first(int x) {{ return x; }}\n\n{C_SOURCE}"),
    )
    .expect("it can be written");
    fs::remove_file(&path).expect("it can be removed");
    run(Command::new("gcc")
        .current_dir(directory.path())
        .args(["-O0", "-g", "-shared", "-fPIC", "-Wl,--build-id", "-o"])
        .args(["replaced.so", "code.c"]));
    for build_id in [build_id.as_str(), ""] {
        let (frames, left) = symbolize_live(address, build_id);
        assert_true_or_refused(&frames, &left);
    }
}

const CHILD: &str = "SIGPROF_TEST_DELETES_ITSELF";

#[test]
fn a_program_that_was_deleted_while_it_runs() {
    if std::env::var_os(CHILD).is_some() {
        fs::remove_file(std::env::current_exe().expect("it has a path")).expect("it goes");
        let (frames, left) = symbolize_live(names_of_generics_are_whole as *const () as u64, "");
        assert_eq!(left, "");
        assert_eq!(
            frames.last().expect("it has frames").name,
            "symbolize::names_of_generics_are_whole"
        );
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let copy = directory.path().join("symbolize");
    fs::copy(std::env::current_exe().expect("this is a program"), &copy).expect("it can be copied");
    run(Command::new(&copy)
        .args(["--exact", "a_program_that_was_deleted_while_it_runs"])
        .env(CHILD, "1"));
    assert!(!copy.exists(), "the copy deleted itself");
}
