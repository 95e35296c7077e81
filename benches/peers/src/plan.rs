//! Which measurements are taken, and the figures they came to.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sigprof_peers::child::{self, Fields};
use sigprof_peers::program::Folders;

use crate::Settings;
use crate::subjects::{GPERFTOOLS, GPERFTOOLS_MOST_HZ, Measurement, Role, Subject};

/// One measurement with its parameters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Case {
    Cost { depth: u32 },
    ColdCost { depth: u32 },
    Yield { threads: u32, hz: u32, late: bool },
    Rss { busy: bool, symbols: bool },
    Report { symbols: bool },
    Cycles,
    Shares { of: Of, hz: u32 },
    Overhead { hz: u32 },
    Start { threads: u32, hz: u32 },
    Threads { hz: u32 },
}

/// What the shares of are judged.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Of {
    Threads,
    Functions,
}

pub const DEPTHS: [u32; 3] = [8, 32, 96];
pub const COLD_DEPTHS: [u32; 2] = [32, 96];
pub const YIELD_THREADS: [u32; 3] = [1, 2, 8];
pub const YIELD_HZ: [u32; 3] = [100, 1000, 10_000];
/// The frequency at which threads are also born within the recording.
pub const LATE: Case = Case::Yield {
    threads: 8,
    hz: 1000,
    late: true,
};
pub const STACKS: u32 = 20_000;
pub const CYCLES: u32 = 200;
pub const SHARES_HZ: [u32; 3] = YIELD_HZ;
/// What most programs record at, and what those do that look closely.
pub const COMMON_HZ: [u32; 2] = [100, 1000];
/// Of a small program, and of a large one.
pub const IDLE_THREADS: [u32; 2] = [1, 1000];
/// Starts in one process.
pub const STARTS: u32 = 9;

impl Case {
    pub fn measurement(self) -> Measurement {
        match self {
            Self::Cost { .. } | Self::ColdCost { .. } => Measurement::Cost,
            Self::Yield { .. } => Measurement::Yield,
            Self::Rss { .. } => Measurement::Rss,
            Self::Report { .. } => Measurement::Report,
            Self::Cycles => Measurement::Cycles,
            Self::Shares { .. } => Measurement::Shares,
            Self::Overhead { .. } => Measurement::Overhead,
            Self::Start { .. } => Measurement::Start,
            Self::Threads { .. } => Measurement::Threads,
        }
    }

    fn all() -> Vec<Self> {
        let mut all: Vec<Self> = DEPTHS.map(|depth| Self::Cost { depth }).into();
        all.extend(COLD_DEPTHS.map(|depth| Self::ColdCost { depth }));
        for hz in YIELD_HZ {
            all.extend(YIELD_THREADS.map(|threads| Self::Yield {
                threads,
                hz,
                late: false,
            }));
        }
        all.push(LATE);
        for symbols in [false, true] {
            all.extend([false, true].map(|busy| Self::Rss { busy, symbols }));
        }
        all.extend([false, true].map(|symbols| Self::Report { symbols }));
        all.push(Self::Cycles);
        for of in [Of::Threads, Of::Functions] {
            all.extend(SHARES_HZ.map(|hz| Self::Shares { of, hz }));
        }
        all.extend(COMMON_HZ.map(|hz| Self::Overhead { hz }));
        for threads in IDLE_THREADS {
            all.extend(COMMON_HZ.map(|hz| Self::Start { threads, hz }));
        }
        all.extend(COMMON_HZ.map(|hz| Self::Threads { hz }));
        all
    }

    /// Whether this case says anything of that subject which another does not.
    fn concerns(self, subject: &Subject) -> bool {
        if !subject.measured.contains(&self.measurement()) {
            return false;
        }
        match self {
            // Only sigprof names frames at its stop; gperftools never does.
            Self::Rss { symbols: true, .. } => subject.role == Role::Sigprof,
            Self::Report { symbols: true } => subject.name != GPERFTOOLS,
            Self::Yield { hz, .. } if hz > GPERFTOOLS_MOST_HZ => subject.name != GPERFTOOLS,
            // The bare timers are armed for the threads that are there.
            Self::Yield { late: true, .. } => subject.role != Role::Reference,
            // Its file does not tell threads apart.
            Self::Shares {
                of: Of::Threads, ..
            } => subject.name != GPERFTOOLS,
            _ => true,
        }
    }

    fn args(self, quick: bool, subject: &Subject) -> Vec<String> {
        let (name, args) = match self {
            Self::Cost { depth } => {
                let count = if quick { 1000 } else { 20_000 };
                ("cost", format!("depth={depth} count={count}"))
            }
            Self::ColdCost { depth } => {
                let count = if quick { 1000 } else { 20_000 };
                ("cold-cost", format!("depth={depth} count={count}"))
            }
            Self::Yield { threads, hz, late } => {
                // At its end each thread holds up to a period that has not expired: the window has
                // to be many of them.
                let ms = match (quick, hz) {
                    (true, 100) => 3000,
                    (true, _) => 1000,
                    (false, 100) => 6000,
                    (false, _) => 3000,
                };
                let late = u8::from(late);
                (
                    "yield",
                    format!("threads={threads} hz={hz} late={late} ms={ms}"),
                )
            }
            Self::Rss { busy, symbols } => {
                let (busy, symbols) = (u8::from(busy), u8::from(symbols));
                let ms = if quick { 1000 } else { 3000 };
                (
                    "rss",
                    format!("threads=8 busy={busy} symbols={symbols} hz=1000 ms={ms}"),
                )
            }
            Self::Report { symbols } => {
                let symbols = u8::from(symbols);
                ("report", format!("count={STACKS} symbols={symbols}"))
            }
            Self::Cycles => ("cycles", format!("count={CYCLES} hz=1000")),
            Self::Shares { of, hz } => {
                let name = match of {
                    Of::Threads => "thread-shares",
                    Of::Functions => "function-shares",
                };
                let hz = match subject.name {
                    GPERFTOOLS => hz.min(GPERFTOOLS_MOST_HZ),
                    _ => hz,
                };
                let ms = if quick { 1000 } else { 3000 };
                (name, format!("threads=8 hz={hz} symbols=1 ms={ms}"))
            }
            // 14,000 chains of calls on each thread are two seconds of CPU time, which keeps a
            // start's cold caches in proportion.
            Self::Overhead { hz } => {
                let pairs = if quick { 7 } else { 30 };
                (
                    "overhead",
                    format!("threads=8 hz={hz} count=14000 pairs={pairs}"),
                )
            }
            Self::Start { threads, hz } => {
                ("start", format!("threads={threads} hz={hz} count={STARTS}"))
            }
            Self::Threads { hz } => {
                let pairs = if quick { 7 } else { 15 };
                ("threads", format!("hz={hz} count=3000 pairs={pairs}"))
            }
        };
        std::iter::once(name.to_owned())
            .chain(args.split(' ').map(str::to_owned))
            .collect()
    }
}

/// What every round of every case came to.
#[derive(Debug, Default)]
pub struct Figures {
    rounds: BTreeMap<(Case, &'static str), Vec<Result<Fields, String>>>,
}

impl Figures {
    /// Takes all measurements. A case goes through all subjects before the next one begins, and all
    /// cases through a round: what is compared is measured side by side, and a machine that drifts
    /// does so for everyone.
    pub fn measure(
        settings: &Settings,
        subjects: &[&'static Subject],
        folders: &Folders,
        scratch: &Path,
    ) -> Self {
        let mut figures = Self::default();
        let profile = scratch.join("profile.pb.gz");
        let cases: Vec<Case> = Case::all()
            .into_iter()
            .filter(|case| settings.only.is_none_or(|only| only == case.measurement()))
            .collect();
        for round in 1..=settings.rounds {
            for &case in &cases {
                eprintln!("round {round} of {}: {case:?}", settings.rounds);
                for subject in subjects.iter().filter(|subject| case.concerns(subject)) {
                    let mut args = case.args(settings.quick, subject);
                    args.extend(subject.args.iter().map(|&arg| arg.to_owned()));
                    args.push(format!("path={}", profile.display()));
                    // The last subject's, which need not be there: this one may write none.
                    let _ = fs::remove_file(&profile);
                    let fields = child::measure(&folders.program(subject.program()), &args, &[]);
                    if let Err(error) = &fields {
                        eprintln!("  {}: {error}", subject.name);
                    }
                    figures
                        .rounds
                        .entry((case, subject.name))
                        .or_default()
                        .push(fields);
                }
            }
        }
        figures
    }

    pub fn has(&self, measurement: Measurement) -> bool {
        self.rounds
            .keys()
            .any(|(case, _)| case.measurement() == measurement)
    }

    /// The median over the rounds, of those that ended well.
    pub fn median(&self, case: Case, subject: &str, field: &str) -> Option<f64> {
        sigprof_peers::median(self.values(case, subject, field))
    }

    /// The lowest over the rounds.
    pub fn least(&self, case: Case, subject: &str, field: &str) -> Option<f64> {
        self.values(case, subject, field)
            .into_iter()
            .min_by(f64::total_cmp)
    }

    fn values(&self, case: Case, subject: &str, field: &str) -> Vec<f64> {
        self.rounds_of(case, subject)
            .iter()
            .filter_map(|round| round.as_ref().ok()?.get(field).copied())
            .collect()
    }

    /// What became of the rounds that did not end well: a hang or a crash is a finding too.
    pub fn failure(&self, case: Case, subject: &str) -> Option<&str> {
        self.rounds_of(case, subject)
            .iter()
            .find_map(|round| round.as_ref().err())
            .map(String::as_str)
    }

    /// Every failed case, with how many rounds of it failed.
    pub fn failures(&self) -> impl Iterator<Item = (Case, &'static str, usize, usize, &str)> {
        self.rounds.iter().filter_map(|(&(case, subject), rounds)| {
            let failed = rounds.iter().filter(|round| round.is_err()).count();
            let error = self.failure(case, subject)?;
            Some((case, subject, failed, rounds.len(), error))
        })
    }

    fn rounds_of(&self, case: Case, subject: &str) -> &[Result<Fields, String>] {
        self.rounds
            .iter()
            .find(|((c, s), _)| *c == case && *s == subject)
            .map_or(&[], |(_, rounds)| rounds)
    }
}
