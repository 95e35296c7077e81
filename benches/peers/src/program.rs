//! Programs that are measured: each is the same package with other features.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where programs are built, and where they are kept.
#[derive(Debug)]
pub struct Folders {
    target: PathBuf,
    built: PathBuf,
}

impl Folders {
    /// Empties what programs of one package are kept in: one of an earlier run may be of other
    /// code.
    pub fn prepare(package: &str) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
        // <target>/release/<this program>
        let target = this
            .ancestors()
            .nth(2)
            .unwrap_or(Path::new("target"))
            .join("subjects");
        let built = target.join("programs").join(package);
        // It is not there in the first run.
        let _ = fs::remove_dir_all(&built);
        fs::create_dir_all(&built).map_err(|e| format!("cannot make {}: {e}", built.display()))?;
        Ok(Self { target, built })
    }

    /// The program of that name.
    pub fn program(&self, name: &str) -> PathBuf {
        self.built.join(name)
    }

    /// Builds a package, unless there is a program of that name.
    pub fn build(
        &self,
        name: &str,
        package: &str,
        features: &str,
        frame_pointers: bool,
    ) -> Result<(), String> {
        let program = self.program(name);
        if program.exists() {
            return Ok(());
        }
        eprintln!("building {package} with {name}");
        // Set either way: what stands in the environment or in a configuration must not decide what
        // is compared.
        let rustflags = format!(
            "-Cforce-frame-pointers={}",
            if frame_pointers { "yes" } else { "no" }
        );
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--release", "--quiet", "--locked"])
            .arg("--manifest-path")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
            .args(["--package", package])
            .args(["--features", features])
            .arg("--target-dir")
            .arg(&self.target)
            .env("RUSTFLAGS", rustflags)
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .stdin(Stdio::null())
            .status()
            .map_err(|e| format!("cannot run cargo: {e}"))?;
        if !status.success() {
            return Err(format!("{name} does not build"));
        }
        // The next build of the package replaces the program.
        fs::copy(self.target.join("release").join(package), &program)
            .map(drop)
            .map_err(|e| format!("cannot keep {}: {e}", program.display()))
    }
}
