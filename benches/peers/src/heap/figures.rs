//! Which measurements are taken, and the figures they came to.

use std::collections::BTreeMap;

use sigprof_peers::child::{self, Fields};
use sigprof_peers::program::Folders;

use crate::Settings;
use crate::subjects::{Role, SUBJECTS, Subject};

/// One measurement with its parameters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Case {
    Pair { threads: u32 },
    Sampled,
    Live,
    Churn,
    Server,
    TruthOfChurn,
    TruthOfServer,
}

impl Case {
    pub const ALL: [Self; 8] = [
        Self::Pair { threads: 1 },
        Self::Pair { threads: 8 },
        Self::Sampled,
        Self::Live,
        Self::Churn,
        Self::Server,
        Self::TruthOfChurn,
        Self::TruthOfServer,
    ];

    /// What the command line calls it.
    pub fn measurement(self) -> &'static str {
        match self {
            Self::Pair { .. } => "pair",
            Self::Sampled => "sampled",
            Self::Live => "live",
            Self::Churn => "churn",
            Self::Server => "server",
            Self::TruthOfChurn | Self::TruthOfServer => "truth",
        }
    }

    pub fn is_of_truth(self) -> bool {
        self.measurement() == "truth"
    }

    /// Bytes between two samples, where they are not the default's 512 KiB.
    pub fn interval(self) -> Option<u64> {
        match self {
            // Each block.
            Self::Sampled | Self::Live => Some(1),
            // Many samples, so that there is little chance in the figures.
            Self::TruthOfChurn | Self::TruthOfServer => Some(8192),
            Self::Pair { .. } | Self::Churn | Self::Server => None,
        }
    }

    /// The figure that is a cost.
    pub fn cost(self) -> &'static str {
        match self {
            Self::Pair { .. } => "pair_ns",
            Self::Sampled => "allocation_ns",
            Self::Live => "added_mib",
            Self::Churn | Self::TruthOfChurn => "part_ns",
            Self::Server | Self::TruthOfServer => "answer_ns",
        }
    }

    /// The figure that is what of the cost is the profiler's.
    fn added(self) -> &'static str {
        match self {
            Self::Pair { .. } => "added_ns",
            Self::Sampled => "sampled_ns",
            Self::Live => "added_mib",
            _ => "added_percent",
        }
    }

    fn args(self, quick: bool) -> Vec<String> {
        let seconds = if quick { 2 } else { 20 };
        let args = match self {
            Self::Pair { threads } => {
                let count = if quick { 20 } else { 1000 / threads };
                format!("pair threads={threads} count={count}")
            }
            Self::Sampled => format!("sampled depth=32 count={}", if quick { 10 } else { 200 }),
            // Thousands of blocks.
            Self::Live => format!("live count={}", if quick { 10 } else { 1000 }),
            Self::Churn => format!("churn count={}", if quick { 1 } else { 30 }),
            Self::Server => format!("server threads=2 seconds={seconds}"),
            Self::TruthOfChurn => "churn count=0".to_owned(),
            Self::TruthOfServer => "server threads=2 seconds=4".to_owned(),
        };
        args.split(' ').map(str::to_owned).collect()
    }
}

/// What every round of every case came to.
#[derive(Debug, Default)]
pub struct Figures(BTreeMap<(Case, &'static str), Vec<Result<Fields, String>>>);

impl Figures {
    /// Takes the measurements. A case goes through all subjects before the next one begins: what is
    /// compared is measured side by side.
    pub fn measure(settings: &Settings, cases: &[Case], folders: &Folders) -> Self {
        let mut figures = Self::default();
        for round in 1..=settings.rounds {
            for &case in cases {
                eprintln!("round {round} of {}: {case:?}", settings.rounds);
                for subject in SUBJECTS.iter().filter(|subject| subject.takes_part(case)) {
                    let program = folders.program(subject.program());
                    let mut args = case.args(settings.quick);
                    args.extend(subject.interval(case));
                    let fields = child::measure(&program, &args, &subject.environment(case));
                    if let Err(error) = &fields {
                        eprintln!("  {}: {error}", subject.name);
                    }
                    figures
                        .0
                        .entry((case, subject.name))
                        .or_default()
                        .push(fields);
                }
            }
        }
        figures
    }

    /// The median over the rounds, of those that ended well.
    pub fn median(&self, case: Case, subject: &str, field: &str) -> Option<f64> {
        let rounds = self.rounds(case, subject);
        sigprof_peers::median(rounds.filter_map(|round| figure(round, field)).collect())
    }

    /// What of a case's cost is the subject's profiler's, in the case's unit or in percent: the
    /// median over the rounds, in which it was measured in turn with the allocator alone. An
    /// allocator's own profiler is held against the allocator in another process.
    pub fn added(&self, case: Case, subject: &Subject) -> Option<f64> {
        let Role::Apart { from, .. } = subject.role else {
            return self.median(case, subject.name, case.added());
        };
        let cost = self.median(case, subject.name, case.cost())?;
        let alone = self.median(case, from, case.cost())?;
        Some(match case.added() {
            "added_percent" => (cost / alone - 1.0) * 100.0,
            _ => cost - alone,
        })
    }

    /// The furthest from 0 over the rounds.
    pub fn furthest(&self, case: Case, subject: &str, field: &str) -> Option<f64> {
        let rounds = self.rounds(case, subject);
        rounds
            .filter_map(|round| figure(round, field))
            .max_by(|a, b| a.abs().total_cmp(&b.abs()))
    }

    /// What every round that did not end well came to.
    pub fn failures(&self) -> impl Iterator<Item = (Case, &'static str, &str)> {
        self.0.iter().flat_map(|(&(case, subject), rounds)| {
            let errors = rounds.iter().filter_map(|round| round.as_ref().err());
            errors.map(move |error| (case, subject, error.as_str()))
        })
    }

    fn rounds(&self, case: Case, subject: &str) -> impl Iterator<Item = &Result<Fields, String>> {
        self.0
            .iter()
            .filter(move |((c, s), _)| *c == case && *s == subject)
            .flat_map(|(_, rounds)| rounds)
    }
}

fn figure(round: &Result<Fields, String>, field: &str) -> Option<f64> {
    round.as_ref().ok()?.get(field).copied()
}
