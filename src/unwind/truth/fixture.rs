//! Programs to unwind, compiled by whatever compilers there are, and loaded into this process.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process;

/// A source in `tests/unwind/fixtures`, and how it is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixture {
    pub(super) source: &'static str,
    /// One shared object for each.
    pub(super) options: &'static [&'static str],
    /// A signal that comes from outside, every so many steps.
    pub(super) signal: Option<(i32, u64)>,
}

const C: &[&str] = &[
    "-O0",
    "-O1",
    "-O2 -fcf-protection=full -Wl,-z,ibtplt",
    "-O3",
];
/// Those, and without `.eh_frame`.
const C_AND_FOR_DEBUGGERS: &[&str] = &[
    C[0],
    C[1],
    C[2],
    C[3],
    "-O2 -g -fno-asynchronous-unwind-tables -fno-exceptions",
];
const VECTORS: &[&str] = &[
    "-O0 -mavx",
    "-O1 -mavx -fstack-clash-protection",
    "-O2 -mavx -fstack-protector-all",
    "-O3 -mavx -fcf-protection=full",
];
const RUST: &[&str] = &["0", "1", "2", "3"];

impl Fixture {
    pub(super) const ALL: &[Self] = &[
        Self::of("calls.c", C_AND_FOR_DEBUGGERS),
        Self::of("stack.c", VECTORS),
        Self::of("tail_calls.c", C_AND_FOR_DEBUGGERS),
        Self::of("exceptions.cc", C),
        Self::of("lazy.c", C),
        Self::of("vdso.c", C),
        Self {
            // A prime, so that the signals do not keep step with the program.
            signal: Some((libc::SIGUSR1, 1009)),
            ..Self::of("signals.c", C)
        },
        Self::of("coroutines.c", C),
        Self::of("plain.rs", RUST),
    ];

    const fn of(source: &'static str, options: &'static [&'static str]) -> Self {
        Self {
            source,
            options,
            signal: None,
        }
    }

    /// Compiles it with one of its options. An error says which program is missing, or what it
    /// said.
    pub(super) fn build(self, options: &str, directory: &Path) -> Result<PathBuf, String> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unwind/fixtures");
        let name: String = format!("{} {options}", self.source)
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let output = directory.join(format!("{name}.so"));
        let mut command = match self.source.rsplit_once('.') {
            Some((_, "rs")) => {
                let mut command = Command::new("rustc");
                command.args(["--edition=2024", "--crate-type=cdylib", "-Cpanic=unwind"]);
                command.args(["-Cforce-frame-pointers=no", "-Clink-arg=-Wl,-z,lazy"]);
                command.arg(format!("-Copt-level={options}"));
                command
            }
            other => {
                let is_c = other.is_some_and(|(_, extension)| extension == "c");
                let mut command = Command::new(if is_c { "cc" } else { "c++" });
                command.args(["-shared", "-fPIC", "-fomit-frame-pointer", "-Wl,-z,lazy"]);
                command.args(options.split(' '));
                command
            }
        };
        command
            .arg("-o")
            .arg(&output)
            .arg(sources.join(self.source));
        let ended = process::output(&mut command);
        let ended = ended.map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        match ended.status.success() {
            true => Ok(output),
            false => Err(format!(
                "{command:?}: {}",
                String::from_utf8_lossy(&ended.stderr)
            )),
        }
    }
}

/// Loads a fixture for good; its functions in other objects are bound when they are first called.
pub(super) fn load(path: &Path) -> extern "C" fn() {
    let name = CString::new(path.as_os_str().as_bytes()).expect("a path of this test's own");
    // SAFETY: a fixture, which has no initializers of its own, and is never closed.
    let function = unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL);
        assert!(!handle.is_null(), "{path:?} cannot be loaded");
        libc::dlsym(handle, c"fixture".as_ptr())
    };
    assert!(!function.is_null(), "{path:?} has no function `fixture`");
    // SAFETY: each fixture defines it so.
    unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(function) }
}

/// Whether the machine has the vectors that some fixtures use.
pub(super) fn can_run(options: &str) -> bool {
    !options.contains("-mavx") || std::arch::is_x86_feature_detected!("avx")
}
