//! What is compared, and how each of them is built.

use sigprof_peers::program::Folders;

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
        name: "rpprof 0.18, default (framehop)",
        role: Role::Peer,
        feature: "rpprof",
        args: &[],
        frame_pointers: false,
        measured: ALL,
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

    /// The program's name.
    pub fn program(&self) -> &'static str {
        if self.feature.is_empty() {
            "references"
        } else {
            self.feature
        }
    }

    /// Builds the program of this subject, unless another subject of the same program has.
    pub fn build(&self, folders: &Folders) -> Result<(), String> {
        let built = folders.build(
            self.program(),
            "sigprof-peers-subject",
            self.feature,
            self.frame_pointers,
        );
        built.map_err(|error| match self.feature {
            "gperftools" => format!("{error}: is libgoogle-perftools-dev installed?"),
            "sigprof" => format!("{error}: --peers-only leaves it out"),
            _ => error,
        })
    }
}
