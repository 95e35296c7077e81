//! Symbolizing real objects, with the system's own tools as judges.
#![cfg(feature = "symbolize")]

mod against_addr2line;
mod built;
mod compressed;
mod damaged;
mod debug_files;
mod files;
mod hostile;
mod labels;
mod live;
#[path = "../support/process.rs"]
mod process;
mod shapes;
mod split;
mod supplementary;
mod units;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sigprof::Profile;
use sigprof::profile::{Location, LocationId, Mapping};
use sigprof::symbolize::{Unsymbolized, symbolize};

/// Where mappings made by hand pretend to lie: nowhere near any real one.
const BASE: u64 = 0x1000_0000_0000;

/// A program that a test cannot do without; `None`, with a word on stderr, if it may be skipped.
fn tool(name: &str) -> Option<PathBuf> {
    let package = match name {
        "gcc" => "gcc",
        "xz" => "xz-utils",
        "go" => "golang-go",
        "dwz" => "dwz",
        "gdb" => "gdb",
        _ => "binutils",
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file());
    if found.is_none() {
        let required = std::env::var("SIGPROF_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
        assert!(
            !required,
            "this test needs `{name}`: apt-get install {package}"
        );
        process::skip(&format!("{name} is missing (apt-get install {package})"));
    }
    found
}

fn run(command: &mut Command) -> String {
    let output = process::output(command).expect("the tool starts");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    // A symbol need not be any.
    String::from_utf8_lossy(&output.stdout).into_owned()
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
}

impl Frame {
    /// The name that the linker knows.
    fn symbol(&self) -> &str {
        match self.system_name.as_str() {
            "" => &self.name,
            symbol => symbol,
        }
    }
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
    let id = notes.split_once("Build ID: ").map(|(_, id)| id);
    let id = id.and_then(|id| id.lines().next());
    id.unwrap_or_default().trim().to_owned()
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
struct pair { int first, second; } pair;
";

/// Another unit that has much in common with the first.
const MORE_SOURCE: &str = "\
#define exported exported_too
#define main main_too
#define pair pair_too
#include \"code.c\"
";

/// A directory with the C program in it, compiled to `name`.
fn compile(name: &str, flags: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let gcc = tool("gcc")?;
    tool("readelf")?;
    tool("nm")?;
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    fs::write(directory.path().join("code.c"), C_SOURCE).expect("it can be written");
    fs::write(directory.path().join("more.c"), MORE_SOURCE).expect("it can be written");
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
