//! The library, and programs that are linked with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::process::succeed;

/// The library, made by the command that the documentation has, but without optimization.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["rustc", "--lib", "--all-features", "--crate-type", "cdylib"])
            .arg("--message-format=json")
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        let said = succeed(&mut cargo).stdout;
        let said = String::from_utf8(said).unwrap();
        let path = said
            .split('"')
            .rfind(|word| word.ends_with("/libsigprof.so"))
            .expect("cargo says where the library is");
        path.into()
    })
}

/// The C functions' header is found here.
pub fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// A program out of a source of `tests/capi/programs`, made by `compiler` and linked with the
/// library.
pub fn program(compiler: &str, source: &str, directory: &Path) -> PathBuf {
    let beside = library().parent().expect("a file lies in a directory");
    let beside = beside.display();
    let flags = [
        format!("-L{beside}"),
        "-lsigprof".into(),
        format!("-Wl,-rpath,{beside}"),
    ];
    compiled(compiler, source, directory, &flags)
}

/// The same, linked with what `flags` say.
pub fn compiled(compiler: &str, source: &str, directory: &Path, flags: &[String]) -> PathBuf {
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
        .arg("-pthread")
        .args(flags);
    succeed(&mut compile);
    program
}

/// A program, without variables of ours.
pub fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"CPUPROFILE") || bytes == b"LD_PRELOAD" {
            command.env_remove(&name);
        }
    }
    command
}
