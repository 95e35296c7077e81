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
    /// The subject whose costs are what a profiler's are over: the same allocator alone.
    pub alone: &'static str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// What the bars are for.
    Sigprof,
    /// As sigprof, and what is allocated is counted: for the truth, not for times.
    Counted,
    /// No profiler.
    Alone,
}

pub const SUBJECTS: &[Subject] = &[
    alone("System", "alone"),
    over("sigprof over System", "sigprof", "System"),
    alone("mimalloc", "mimalloc"),
    over("sigprof over mimalloc", "sigprof,mimalloc", "mimalloc"),
    alone("jemalloc", "jemalloc"),
    over("sigprof over jemalloc", "sigprof,jemalloc", "jemalloc"),
    counted("sigprof over System", "counted"),
    counted("sigprof over mimalloc", "counted,mimalloc"),
    counted("sigprof over jemalloc", "counted,jemalloc"),
];

const fn alone(name: &'static str, features: &'static str) -> Subject {
    Subject {
        name,
        features,
        role: Role::Alone,
        alone: name,
    }
}

const fn over(name: &'static str, features: &'static str, alone: &'static str) -> Subject {
    Subject {
        name,
        features,
        role: Role::Sigprof,
        alone,
    }
}

const fn counted(name: &'static str, features: &'static str) -> Subject {
    Subject {
        name,
        features,
        role: Role::Counted,
        alone: name,
    }
}

impl Subject {
    pub fn takes_part(&self, case: Case) -> bool {
        (self.role == Role::Counted) == case.is_of_truth()
    }

    /// The program's name.
    pub fn program(&self) -> &'static str {
        self.features
    }

    pub fn build(&self, folders: &Folders) -> Result<(), String> {
        let features = match self.features {
            "alone" => "",
            features => features,
        };
        folders.build(self.program(), "sigprof-peers-heap", features, false)
    }
}
