//! What is compared.

use sigprof_peers::program::Folders;

use crate::figures::Case;

/// A program with an allocator.
#[derive(Debug)]
pub struct Subject {
    pub name: &'static str,
    /// Features of the program, which name its file as well.
    features: &'static str,
    pub role: Role,
    /// A shared library that has the allocator.
    preload: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// What the bars are for.
    Sigprof,
    /// As sigprof, and what is allocated is counted: for the truth, not for times.
    Counted,
    /// No profiler: the allocator in turn with itself. A figure is as good as its figures are near
    /// 0.
    Alone,
    /// Another profiler over the system's allocator, in turn with it.
    Peer,
    /// An allocator with a profiler of its own, which cannot be switched off and on: held against
    /// the subject of this name, in another process.
    Apart { from: &'static str, profiler: Own },
}

/// Whose profiler an allocator's own is, which says how it is turned on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Own {
    Jemalloc,
    Tcmalloc,
}

const TCMALLOC: &str = "libtcmalloc.so.4";

pub const SUBJECTS: &[Subject] = &[
    subject("System", "alone", Role::Alone),
    subject("sigprof over System", "sigprof", Role::Sigprof),
    subject("rpprof 0.18 over System", "rpprof", Role::Peer),
    subject("dial9 0.5 over System", "dial9", Role::Peer),
    subject("mimalloc", "mimalloc", Role::Alone),
    subject("sigprof over mimalloc", "sigprof,mimalloc", Role::Sigprof),
    subject("jemalloc", "jemalloc", Role::Alone),
    subject("sigprof over jemalloc", "sigprof,jemalloc", Role::Sigprof),
    apart(
        "jemalloc, prof:true",
        "jemalloc-prof",
        "jemalloc",
        Own::Jemalloc,
    ),
    Subject {
        preload: Some(TCMALLOC),
        ..subject("tcmalloc (gperftools)", "alone", Role::Alone)
    },
    Subject {
        preload: Some(TCMALLOC),
        ..apart(
            "tcmalloc (gperftools), sampling",
            "alone",
            "tcmalloc (gperftools)",
            Own::Tcmalloc,
        )
    },
    subject("sigprof over System", "counted", Role::Counted),
    subject("sigprof over mimalloc", "counted,mimalloc", Role::Counted),
    subject("sigprof over jemalloc", "counted,jemalloc", Role::Counted),
];

const fn subject(name: &'static str, features: &'static str, role: Role) -> Subject {
    Subject {
        name,
        features,
        role,
        preload: None,
    }
}

const fn apart(
    name: &'static str,
    features: &'static str,
    from: &'static str,
    profiler: Own,
) -> Subject {
    subject(name, features, Role::Apart { from, profiler })
}

impl Subject {
    pub fn takes_part(&self, case: Case) -> bool {
        match self.role {
            Role::Alone | Role::Peer | Role::Apart { .. } => {
                !case.is_of_truth() && case != Case::Live
            }
            Role::Sigprof => !case.is_of_truth(),
            Role::Counted => case.is_of_truth(),
        }
    }

    /// The program's name.
    pub fn program(&self) -> &'static str {
        self.features
    }

    /// The option that has the profiler in the program sample so often, if there is one.
    pub fn interval(&self, case: Case) -> Option<String> {
        let is_in_program = !matches!(self.role, Role::Alone | Role::Apart { .. });
        let interval = case.interval().filter(|_| is_in_program)?;
        Some(format!("interval={interval}"))
    }

    /// The environment that has the allocator in the program, and its own profiler sample so often.
    pub fn environment(&self, case: Case) -> Vec<(&'static str, String)> {
        let preload = self
            .preload
            .map(|library| ("LD_PRELOAD", library.to_owned()));
        let interval = case.interval().unwrap_or(512 * 1024);
        let own = match self.role {
            Role::Apart { profiler, .. } => Some(match profiler {
                Own::Jemalloc => {
                    let log = interval.ilog2();
                    let options = format!("prof:true,lg_prof_sample:{log}");
                    ("_RJEM_MALLOC_CONF", options)
                }
                Own::Tcmalloc => ("TCMALLOC_SAMPLE_PARAMETER", interval.to_string()),
            }),
            _ => None,
        };
        preload.into_iter().chain(own).collect()
    }

    pub fn build(&self, folders: &Folders) -> Result<(), String> {
        let features = match self.features {
            "alone" => "",
            features => features,
        };
        let needs_frame_pointers = features == "dial9";
        let program = self.program();
        folders.build(
            program,
            "sigprof-peers-heap",
            features,
            needs_frame_pointers,
        )
    }
}
