//! Shared libraries made for a test, by the system's compilers.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::ffi::{CStr, CString};
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
