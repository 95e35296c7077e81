//! What is compared, and how each of them is built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One column or row of the tables.
#[derive(Debug)]
pub struct Subject {
    pub name: &'static str,
    pub role: Role,
    /// The feature of the subject package that puts this profiler into it; empty for the
    /// references.
    feature: &'static str,
    /// Arguments that every measurement gets.
    pub args: &'static [&'static str],
    frame_pointers: bool,
    /// The measurements that it takes part in.
    pub measured: &'static [Measurement],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// What the bars are for.
    Sigprof,
    /// sigprof with another setting than the default, for information.
    Variant,
    Peer,
    /// Not a profiler: what the kernel or an unwinder alone would do.
    Reference,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Measurement {
    Cost,
    Yield,
    Rss,
    Report,
    Cycles,
    Shares,
    Overhead,
    Start,
    Threads,
}

use Measurement::{Cost, Cycles, Overhead, Report, Rss, Shares, Start, Threads, Yield};

const ALL: &[Measurement] = &[
    Cost, Yield, Rss, Report, Cycles, Shares, Overhead, Start, Threads,
];

impl Measurement {
    /// By the name that the command line has for it.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "cost" => Cost,
            "yield" => Yield,
            "rss" => Rss,
            "report" => Report,
            "cycles" => Cycles,
            "shares" => Shares,
            "overhead" => Overhead,
            "start" => Start,
            "threads" => Threads,
            _ => return None,
        })
    }
}

/// Where nothing raises its signal it does nothing: what it adds to a
/// program then is the noise of the measurement.
pub const EMPTY_HANDLER: &str = "empty handler";

pub const GPERFTOOLS: &str = "gperftools 2.10 (libunwind)";

/// It samples at 100 Hz where more than this is asked for.
pub const GPERFTOOLS_MOST_HZ: u32 = 4000;

pub const SUBJECTS: &[Subject] = &[
    Subject {
        name: EMPTY_HANDLER,
        role: Role::Reference,
        feature: "",
        args: &[],
        frame_pointers: false,
        measured: &[Overhead, Threads],
    },
    Subject {
        name: "sigprof",
        role: Role::Sigprof,
        feature: "sigprof",
        args: &[],
        frame_pointers: false,
        measured: ALL,
    },
    // What the default falls back to where the system has no better engine.
    Subject {
        name: "sigprof, thread timer",
        role: Role::Variant,
        feature: "sigprof",
        args: &["engine=thread"],
        frame_pointers: false,
        measured: &[Yield, Shares],
    },
    Subject {
        name: "sigprof, process timer",
        role: Role::Variant,
        feature: "sigprof",
        args: &["engine=process"],
        frame_pointers: false,
        measured: &[Yield],
    },
    Subject {
        name: "pprof-rs 0.15, default (libgcc)",
        role: Role::Peer,
        feature: "pprof-libgcc",
        args: &[],
        frame_pointers: false,
        measured: ALL,
    },
    // The modes of pprof-rs differ in how they unwind: the timer, and what a stop leaves behind,
    // are the same.
    Subject {
        name: "pprof-rs 0.15, framehop-unwinder",
        role: Role::Peer,
        feature: "pprof-framehop",
        args: &[],
        frame_pointers: false,
        measured: &[Cost, Rss, Report],
    },
    Subject {
        name: "pprof-rs 0.15, frame-pointer",
        role: Role::Peer,
        feature: "pprof-frame-pointer",
        args: &[],
        frame_pointers: true,
        measured: &[Cost, Rss, Report],
    },
    Subject {
        name: GPERFTOOLS,
        role: Role::Peer,
        feature: "gperftools",
        args: &[],
        frame_pointers: false,
        measured: ALL,
    },
    Subject {
        name: "framehop 0.16 alone, nothing recorded",
        role: Role::Reference,
        feature: "framehop",
        args: &[],
        frame_pointers: false,
        measured: &[Cost],
    },
    Subject {
        name: "ITIMER_PROF (bare)",
        role: Role::Reference,
        feature: "",
        args: &["engine=interval"],
        frame_pointers: false,
        measured: &[Yield],
    },
    Subject {
        name: "per-thread CPU timer (bare)",
        role: Role::Reference,
        feature: "",
        args: &["engine=thread"],
        frame_pointers: false,
        measured: &[Yield],
    },
    // What sigprof's better engine costs without sigprof.
    Subject {
        name: "per-thread perf event (bare)",
        role: Role::Reference,
        feature: "",
        args: &["engine=perf"],
        frame_pointers: false,
        measured: &[Overhead],
    },
];

impl Subject {
    pub fn is_sigprof(&self) -> bool {
        matches!(self.role, Role::Sigprof | Role::Variant)
    }

    pub fn program(&self, built: &Path) -> PathBuf {
        let name = if self.feature.is_empty() {
            "references"
        } else {
            self.feature
        };
        built.join(name)
    }

    /// Builds the program of this subject, unless another subject of the same program has.
    pub fn build(&self, target: &Path, built: &Path) -> Result<(), String> {
        let program = self.program(built);
        if program.exists() {
            return Ok(());
        }
        eprintln!("building the subject of {}", self.name);
        // Set either way: what stands in the environment or in a configuration must not decide what
        // is compared.
        let rustflags = format!(
            "-Cforce-frame-pointers={}",
            if self.frame_pointers { "yes" } else { "no" }
        );
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--release", "--quiet", "--locked"])
            .arg("--manifest-path")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
            .args(["--package", "sigprof-peers-subject"])
            .args(["--features", self.feature])
            .arg("--target-dir")
            .arg(target)
            .env("RUSTFLAGS", rustflags)
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .stdin(Stdio::null())
            .status()
            .map_err(|e| format!("cannot run cargo: {e}"))?;
        if !status.success() {
            return Err(format!(
                "the subject of {} does not build{}",
                self.name,
                match self.feature {
                    "gperftools" => ": is libgoogle-perftools-dev installed?",
                    "sigprof" => ": --peers-only leaves it out",
                    _ => "",
                }
            ));
        }
        // The next subject's build replaces the program.
        fs::copy(target.join("release/sigprof-peers-subject"), &program)
            .map(drop)
            .map_err(|e| format!("cannot keep {}: {e}", program.display()))
    }
}
