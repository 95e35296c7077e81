//! Shared libraries and programs made for a test, by the system's compilers and by Rust's.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::succeed;

/// A shared library out of the source of a `.c` or a `.cc` file, in `directory`.
///
/// # Panics
///
/// If the compiler is missing, or does not take the source.
pub fn library(directory: &Path, file: &str, source: &str, flags: &[&str]) -> PathBuf {
    let path = directory.join(file);
    std::fs::write(&path, source).unwrap();
    let library = path.with_extension("so");
    let compiler = match path.extension() {
        Some(extension) if extension == "cc" => "c++",
        _ => "cc",
    };
    let mut compile = Command::new(compiler);
    compile
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .args([&library, &path])
        .args(flags);
    succeed(&mut compile);
    library
}

/// A path as the loader takes it.
pub fn as_c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// The address of a function of a library that is open.
///
/// # Panics
///
/// If it has no such function.
///
/// # Safety
///
/// `library` is a handle of the loader's that has not been closed.
pub unsafe fn function(library: *mut libc::c_void, name: &CStr) -> *mut libc::c_void {
    // SAFETY: the caller's contract; the name ends in zero.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!address.is_null(), "{name:?}");
    address
}

/// A program out of a source file of this repository, in `directory`: linked, with flags of
/// rustc's, with the library that the calling test was linked with.
pub fn program(directory: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let (library, dependencies) = this_library();
    let program = directory.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut extern_library = OsString::from("sigprof=");
    extern_library.push(library);
    let mut search = OsString::from("dependency=");
    search.push(dependencies);
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let mut compile = Command::new(rustc);
    compile
        .args(["--edition", "2024", "--crate-type", "bin", "-g", "--extern"])
        .arg(extern_library)
        .arg("-L")
        .arg(search)
        .args(flags)
        .arg("-o")
        .args([&program, &source]);
    succeed(&mut compile);
    program
}

/// The library that this test was linked from, which lies beside it; and where those lie that it
/// depends on. It is the last one that was made before the test: others have other features.
fn this_library() -> (PathBuf, PathBuf) {
    let program = std::env::current_exe().unwrap();
    let directory = program.parent().unwrap();
    let made = |path: &Path| {
        std::fs::metadata(path)
            .and_then(|data| data.modified())
            .unwrap()
    };
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libsigprof-") && name.ends_with(".rlib"))
            && made(path) <= made(&program)
    };
    let libraries = std::fs::read_dir(directory).unwrap();
    let library = libraries
        .map(|entry| entry.unwrap().path())
        .filter(is_library)
        .max_by_key(|path| made(path))
        .expect("the library lies beside its tests");
    (library, directory.to_owned())
}
