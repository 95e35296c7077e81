//! The library, and programs that are linked with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::process::{output, succeed};

/// The library, made by the command that the documentation has, but without optimization; or that
/// of `SIGPROF_TEST_LIBRARY`, which saves each test the third of a second that cargo takes to find
/// that nothing is to be made.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| match std::env::var_os("SIGPROF_TEST_LIBRARY") {
        Some(library) => library.into(),
        None => made("dev"),
    })
}

/// The library as a profile of cargo's has it.
pub fn made(profile: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["rustc", "--lib", "--all-features", "--crate-type", "cdylib"])
        .args(["--message-format=json", "--profile", profile])
        // Readers of profiles take seconds for what a build without optimization tells debuggers.
        .args(["--", "-C", "strip=debuginfo"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let said = succeed(&mut cargo).stdout;
    let said = String::from_utf8(said).unwrap();
    let path = said
        .split('"')
        .rfind(|word| word.ends_with("/libsigprof.so"))
        .expect("cargo says where the library is");
    path.into()
}

/// The C functions' header is found here.
pub fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// A program out of a source of `tests/capi/programs`, made by `compiler` and linked with the
/// library.
pub fn program(compiler: &str, source: &str, directory: &Path) -> PathBuf {
    compiled(compiler, source, directory, &linked())
}

/// What links a program with the library.
pub fn linked() -> Vec<String> {
    let beside = library().parent().expect("a file lies in a directory");
    let beside = beside.display();
    // Some systems' linkers leave out a library that nothing is called of.
    ["-Wl,--no-as-needed".into()]
        .into_iter()
        .chain([format!("-L{beside}"), "-lsigprof".into()])
        .chain([format!("-Wl,-rpath,{beside}")])
        .collect()
}

/// A library `libNAME.so` out of the source `NAME.c`, linked with what `flags` say.
pub fn shared(name: &str, directory: &Path, flags: &[String]) -> PathBuf {
    let file = directory.join(format!("lib{name}.so"));
    let shared = ["-shared", "-fPIC", "-o"].map(String::from);
    let flags = [&shared[..], &[file.display().to_string()], flags].concat();
    compiled("cc", &format!("{name}.c"), directory, &flags);
    file
}

/// The same, linked with what `flags` say.
pub fn compiled(compiler: &str, source: &str, directory: &Path, flags: &[String]) -> PathBuf {
    let program = try_compiled(compiler, source, directory, flags);
    program.unwrap_or_else(|| panic!("{source} cannot be made"))
}

/// The same, or `None`, after what the compiler says, where it cannot be made.
pub fn try_compiled(
    compiler: &str,
    source: &str,
    directory: &Path,
    flags: &[String],
) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/capi/programs");
    let program = directory.join(format!("{source}.{compiler}"));
    let language = if compiler == "c++" { "c++" } else { "c" };
    let mut compile = Command::new(compiler);
    compile
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-x", language])
        .arg(sources.join(source))
        .args(["-x", "none", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(include())
        .args(["-pthread", "-ldl"])
        .args(flags);
    let output = output(&mut compile).expect("the compiler can be started");
    if !output.status.success() {
        eprintln!("{compile:?}:\n{}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(program)
}

/// A program, without variables of ours.
pub fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        let ours: [&[u8]; 2] = [b"CPUPROFILE", b"CONTENTIONPROFILE"];
        if ours.iter().any(|name| bytes.starts_with(name)) || bytes == b"LD_PRELOAD" {
            command.env_remove(&name);
        }
    }
    command
}
