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
}

pub const SUBJECTS: &[Subject] = &[
    subject("System", "alone", Role::Alone),
    subject("sigprof over System", "sigprof", Role::Sigprof),
    subject("mimalloc", "mimalloc", Role::Alone),
    subject("sigprof over mimalloc", "sigprof,mimalloc", Role::Sigprof),
    subject("jemalloc", "jemalloc", Role::Alone),
    subject("sigprof over jemalloc", "sigprof,jemalloc", Role::Sigprof),
    subject("sigprof over System", "counted", Role::Counted),
    subject("sigprof over mimalloc", "counted,mimalloc", Role::Counted),
    subject("sigprof over jemalloc", "counted,jemalloc", Role::Counted),
];

const fn subject(name: &'static str, features: &'static str, role: Role) -> Subject {
    Subject {
        name,
        features,
        role,
    }
}

impl Subject {
    pub fn takes_part(&self, case: Case) -> bool {
        match self.role {
            Role::Alone => !case.is_of_truth() && case != Case::Sampled,
            Role::Sigprof => !case.is_of_truth(),
            Role::Counted => case.is_of_truth(),
        }
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
