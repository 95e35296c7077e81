//! One library more than once in a process.

use std::ffi::CString;
use std::path::Path;

use sigprof::Profile;
use sigprof::cpu::Profiler;

use crate::compile::{as_c_string, function, library};
use crate::process::{child, figure, succeed_and_show};

const SPIN: &str = "unsigned spin(unsigned n) { unsigned x = 1; for (unsigned i = 0; i < n; i++) x = x * 31 + i; return x; }
unsigned through(unsigned n) { volatile unsigned r = spin(n); return r + 1; }
";

/// A library's `through`, which calls its `spin`.
#[derive(Clone, Copy, Debug)]
struct Spin {
    through: extern "C" fn(libc::c_uint) -> libc::c_uint,
    spin: u64,
}

/// Opens a library, in the program's namespace or in one of its own.
fn open(path: &CString, apart: bool) -> Spin {
    // SAFETY: the library has no constructors, and stays; the function has this type.
    unsafe {
        let library = match apart {
            true => libc::dlmopen(libc::LM_ID_NEWLM, path.as_ptr(), libc::RTLD_NOW),
            false => libc::dlopen(path.as_ptr(), libc::RTLD_NOW),
        };
        assert!(!library.is_null());
        Spin {
            through: std::mem::transmute::<
                *mut libc::c_void,
                extern "C" fn(libc::c_uint) -> libc::c_uint,
            >(function(library, c"through")),
            spin: function(library, c"spin") as u64,
        }
    }
}

impl Spin {
    fn address(self) -> u64 {
        self.through as usize as u64
    }

    /// How many of the library's functions are in a stack whose leaf is at `address`: `through`
    /// alone, or `spin` (or the stub that jumps to it) and `through`.
    fn depth_at(self, address: u64) -> usize {
        let is_through = match self.address() > self.spin {
            true => address >= self.address(),
            false => (self.address()..self.spin).contains(&address),
        };
        if is_through { 1 } else { 2 }
    }
}

#[inline(never)]
fn call(spin: Spin) {
    for _ in 0..20 {
        std::hint::black_box((spin.through)(20_000_000));
    }
    // Each instruction of both functions is a leaf now and then.
    for _ in 0..20_000_000 {
        std::hint::black_box((spin.through)(0));
    }
}

/// Of the samples in the page of a function's code: all, and those that are whole, with `call`
/// behind the library's functions.
fn count(profile: &Profile, spin: Spin) -> [i64; 2] {
    let page = |address: u64| address & !0xfff;
    let mut counts = [0; 2];
    for sample in profile.samples() {
        let stack: Vec<u64> = sample
            .stack
            .iter()
            .map(|&id| profile.location(id).address)
            .collect();
        if page(stack[0]) != page(spin.address()) {
            continue;
        }
        counts[0] += sample.values[0];
        let call = call as *const () as u64;
        let is_called = stack
            .get(spin.depth_at(stack[0]))
            .is_some_and(|&a| (call..call + 512).contains(&a));
        let is_cut_short = stack.last() == Some(&0);
        if is_called && !is_cut_short {
            counts[1] += sample.values[0];
        } else {
            eprintln!("not whole: {stack:x?}, where {spin:x?} was called");
        }
    }
    counts
}

fn record(spins: &[Spin]) -> Profile {
    let profiler = Profiler::new().frequency_hz(1000);
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    let recording = profiler.start().unwrap();
    for &spin in spins {
        call(spin);
    }
    recording.stop().unwrap()
}

fn filename_at(profile: &Profile, spin: Spin) -> &str {
    let address = spin.address();
    let mapping = profile
        .mappings()
        .iter()
        .find(|mapping| (mapping.memory_start..mapping.memory_limit).contains(&address));
    mapping.map_or("", |mapping| &mapping.filename)
}

#[test]
fn a_library_and_its_copy_have_whole_stacks_and_their_own_names() {
    succeed_and_show(&mut child("namespaces::child_with_two_of_a_library"));
}

#[test]
#[ignore = "a child process"]
fn child_with_two_of_a_library() {
    let directory = tempfile::tempdir().unwrap();
    let first = library(directory.path(), "spin.c", SPIN, &["-fno-inline"]);
    let second = first.with_file_name("copy.so");
    std::fs::copy(&first, &second).unwrap();
    let spins = [&first, &second].map(|path| open(&as_c_string(path), false));
    let profile = record(&spins);
    for (spin, path) in spins.into_iter().zip([&first, &second]) {
        let [all, whole] = count(&profile, spin);
        figure!("{}: {whole} of {all} stacks are whole", name(path));
        assert!(all >= 20, "{all}");
        assert_eq!(whole, all);
        assert_eq!(Path::new(filename_at(&profile, spin)), path);
    }
}

fn name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

#[test]
fn a_library_in_a_namespace_of_its_own_has_whole_stacks() {
    succeed_and_show(&mut child("namespaces::child_with_a_namespace"));
}

#[test]
#[ignore = "a child process"]
fn child_with_a_namespace() {
    let directory = tempfile::tempdir().unwrap();
    for (file, flag) in [
        ("framed.c", "-fno-omit-frame-pointer"),
        ("bare.c", "-fomit-frame-pointer"),
    ] {
        let path = library(directory.path(), file, SPIN, &["-fno-inline", flag]);
        let path = as_c_string(&path);
        let spins = [open(&path, false), open(&path, true)];
        assert_ne!(spins[0].address(), spins[1].address());
        let profile = record(&spins);
        let [all, whole] = count(&profile, spins[0]);
        assert!(all >= 20 && whole == all, "{whole} of {all}");
        let [all, whole] = count(&profile, spins[1]);
        figure!("{file} in a namespace of its own: {whole} of {all} stacks are whole");
        assert!(all >= 20, "{all}");
        assert_eq!(whole, all);
        assert_eq!(filename_at(&profile, spins[1]), path.to_str().unwrap());
    }
}
