//! Recordings to be judged, and the clocks that judge.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::time::Duration;

use sigprof::Profile;
use sigprof::cpu::{Engine, Profiler, Recording, Stats};
use sigprof::profile::{LabelValue, Sample};

/// CPU time of the process by `getrusage`.
pub fn rusage() -> Duration {
    // SAFETY: zeros are a valid `rusage`, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// A step of the times in /proc/stat, which rounds down.
const STEP: Duration = Duration::from_millis(10);

/// Times of all CPUs together, in steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    /// What programs and the kernel used.
    pub busy: Duration,
    /// What a hypervisor gave to others while the CPUs wanted to run. A thread's CPU clock leaves
    /// it out, and a perf event's timer does not.
    pub stolen: Duration,
}

impl Machine {
    /// Since the machine was started.
    pub fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        // "cpu", then times in hundredths of a second (proc_stat(5)): user, nice, system, idle,
        // iowait, irq, softirq, steal.
        let ticks: Vec<u64> = stat
            .split_whitespace()
            .skip(1)
            .map_while(|ticks| ticks.parse().ok())
            .take(8)
            .collect();
        let time = |ticks: &[u64]| {
            Duration::from_millis(STEP.as_millis() as u64 * ticks.iter().sum::<u64>())
        };
        match *ticks {
            [user, nice, system, _, _, irq, softirq, steal] => Self {
                busy: time(&[user, nice, system, irq, softirq]),
                stolen: time(&[steal]),
            },
            _ => Self::default(),
        }
    }

    /// What a hypervisor took since then, at most: nearly a step can lie between two equal readings.
    /// Nothing on a machine that no hypervisor ever took time from.
    fn stolen_since(&self, then: &Self) -> Duration {
        match self.stolen.is_zero() {
            true => Duration::ZERO,
            false => self.stolen - then.stolen + STEP,
        }
    }
}

/// A recording between two readings of the process's clock.
pub struct Measured {
    recording: Recording,
    before_start: Duration,
    after_start: Duration,
    machine: Machine,
}

/// A recording that has been stopped.
pub struct Outcome {
    pub profile: Profile,
    pub stats: Stats,
    /// CPU time from the end of the start to the beginning of the stop.
    inner: Duration,
    /// CPU time with the start and the stop themselves.
    outer: Duration,
    /// What a hypervisor took meanwhile, at most.
    pub stolen: Duration,
    /// CPU time of other programs meanwhile.
    pub others: Duration,
}

impl Measured {
    pub fn start(profiler: Profiler) -> Self {
        let before_start = rusage();
        let recording = profiler.start().expect("nothing else records");
        Self {
            recording,
            before_start,
            after_start: rusage(),
            machine: Machine::now(),
        }
    }

    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    pub fn stop(self) -> Outcome {
        let before_stop = rusage();
        let profile = self.recording.stop().expect("it has not been stopped");
        let machine = Machine::now();
        let outer = rusage() - self.before_start;
        Outcome {
            profile,
            stats: self.recording.stats(),
            inner: before_stop - self.after_start,
            outer,
            stolen: machine.stolen_since(&self.machine),
            others: (machine.busy - self.machine.busy).saturating_sub(outer),
        }
    }
}

impl Outcome {
    /// The profile's total is the process's CPU time less the profiler's, to 1 % and `slack`. The
    /// clock has the recording between two readings: within its start and stop.
    pub fn assert_total_within(&self, slack: Duration) {
        let total = Duration::from_nanos(self.profile.total(1) as u64);
        let own = self.own_cpu();
        let least = self
            .inner
            .saturating_sub(own)
            .mul_f64(0.99)
            .saturating_sub(slack);
        // An event's timer runs on in stolen time, the process's clock does not.
        let stolen = match self.stats.engine {
            Engine::PerfEvent => self.stolen,
            _ => Duration::ZERO,
        };
        let most = self.outer.saturating_sub(own).mul_f64(1.01) + slack.max(stolen);
        assert!(
            (least..=most).contains(&total),
            "the profile has {total:?}, the process's clock {:?} to {:?}, of which {own:?} are the profiler's\n{}",
            self.inner,
            self.outer,
            self.stats
        );
    }

    /// CPU time of the profiler's thread that the profile leaves out: one timer of the process
    /// cannot.
    fn own_cpu(&self) -> Duration {
        match self.stats.engine {
            Engine::ProcessTimer => Duration::ZERO,
            _ => self.stats.own_cpu,
        }
    }

    pub fn assert_total(&self) {
        self.assert_total_within(Duration::ZERO);
    }

    /// The profile's total by the process's clock.
    pub fn ratio(&self) -> f64 {
        let clock = self.inner.saturating_sub(self.own_cpu());
        self.profile.total(1) as f64 / clock.as_nanos() as f64
    }

    /// Time by thread name and frame name, the latter empty for stacks.
    pub fn times(&self) -> Times {
        Times::of(&self.profile)
    }
}

/// Time by thread and by frame, empty for stacks.
#[derive(Debug)]
pub struct Times(BTreeMap<(String, String), Duration>);

impl Times {
    pub fn of(profile: &Profile) -> Self {
        let mut times = BTreeMap::new();
        for sample in profile.samples() {
            let thread = text_label(profile, &sample, "thread").unwrap_or_default();
            let frame = frame_of_unseen(profile, &sample).unwrap_or_default();
            *times
                .entry((thread.to_owned(), frame.to_owned()))
                .or_default() += Duration::from_nanos(sample.values[1] as u64);
        }
        Self(times)
    }

    /// Time of threads whose names begin so, in frames of this name; in stacks for `""`.
    pub fn of_threads(&self, prefix: &str, frame: &str) -> Duration {
        let of = |((thread, f), time): (&(String, String), &Duration)| {
            (thread.starts_with(prefix) && f == frame).then_some(*time)
        };
        self.0.iter().filter_map(of).sum()
    }
}

/// The frame of a sample that is no stack.
pub fn frame_of_unseen<'p>(profile: &'p Profile, sample: &Sample<'_>) -> Option<&'p str> {
    let [location] = sample.stack else {
        return None;
    };
    let location = profile.location(*location);
    let line = location
        .lines
        .first()
        .filter(|_| location.mapping.is_none())?;
    let name = profile.string(profile.function(line.function).name);
    name.starts_with('[').then_some(name)
}

/// The text under a key of a sample.
pub fn text_label<'p>(profile: &'p Profile, sample: &Sample<'_>, key: &str) -> Option<&'p str> {
    sample.labels.iter().find_map(|label| match label.value {
        LabelValue::Str(value) if profile.string(label.key) == key => Some(profile.string(value)),
        _ => None,
    })
}

/// Sums of both values over the stacks of a profile, and over the frames that say why time is in no
/// stack.
pub fn sums(profile: &Profile) -> ([i64; 2], [i64; 2]) {
    let (mut stacks, mut frames) = ([0; 2], [0; 2]);
    for sample in profile.samples() {
        let leaf = profile.location(sample.stack[0]);
        let name = leaf
            .lines
            .first()
            .map(|line| profile.string(profile.function(line.function).name));
        let is_frame = leaf.address == 0 && name.is_some_and(|name| name.starts_with('['));
        let sums = if is_frame { &mut frames } else { &mut stacks };
        sums[0] += sample.values[0];
        sums[1] += sample.values[1];
    }
    (stacks, frames)
}

/// Ticks in the stacks of a profile.
pub fn ticks(profile: &Profile) -> i64 {
    sums(profile).0[0]
}

/// What every stopped recording owes: each tick that was delivered is in a stack or lost for a
/// stated cause, and all CPU time is in a stack or in a frame that says why not.
pub fn assert_exact(stats: &Stats, profile: &Profile) {
    assert_eq!(stats.ticks, stats.samples + stats.lost.total(), "{stats}");
    let (stacks, frames) = sums(profile);
    assert_eq!(stacks[0] as u64, stats.samples, "{stats}");
    let cpu = stats.cpu;
    let sent = stats.sent as u128 * profile.period as u128;
    assert_eq!(
        stacks[1] as u128,
        cpu.in_stacks.as_nanos() + sent,
        "{stats}"
    );
    // Less than a period each, where the clocks saw less than the ticks come to.
    assert!(stacks[1] <= stacks[0] * profile.period, "{stats}");
    let unseen = cpu.lost + cpu.unsampled + cpu.kernel + cpu.kernel_workers;
    assert_eq!(frames[1] as u128, unseen.as_nanos(), "{stats}");
    let found = cpu.in_stacks + unseen + cpu.filtered;
    assert_eq!(found, cpu.total, "{stats}");
}
