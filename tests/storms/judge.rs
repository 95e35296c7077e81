//! Whether a thread's stacks are what its work says they must be.

use std::collections::BTreeMap;

use sigprof::Profile;
use sigprof::profile::{LocationId, Sample};

use crate::measured::{frame_of_unseen, text_label};
use crate::process::figure;

/// What a thread's stacks must be.
pub struct Expected {
    /// Functions of which each whole stack has one: what the thread runs, and what its coroutines
    /// do.
    pub roots: &'static [&'static str],
    /// Hot functions, and who alone calls them.
    pub calls: &'static [(&'static str, &'static str)],
    /// The most of its samples that may be cut short, from 0 to 1.
    pub most_truncated: f64,
    /// The most that may be wrong and not say so: whole without its root, or with another caller of
    /// a hot function.
    pub most_wrong: f64,
    /// The most that may end at memory that cannot be read.
    pub most_unreadable: f64,
}

/// A thread's samples.
pub struct Verdict {
    all: i64,
    truncated: i64,
    wrong: i64,
    unreadable: i64,
}

impl Verdict {
    fn share(&self, part: i64) -> f64 {
        part as f64 / self.all.max(1) as f64
    }

    /// Holds the thread to what was expected of it.
    pub fn assert(&self, thread: &str, expected: &Expected) {
        assert!(self.all >= 100, "{thread}: {} samples", self.all);
        let truncated = self.share(self.truncated);
        assert!(
            truncated <= expected.most_truncated,
            "{thread}: {truncated:.4} of its samples are cut short"
        );
        let wrong = self.share(self.wrong);
        assert!(
            wrong <= expected.most_wrong,
            "{thread}: {wrong:.4} of its samples are wrong"
        );
        self.assert_readable(thread, expected.most_unreadable);
    }

    fn assert_readable(&self, thread: &str, most_unreadable: f64) {
        let unreadable = self.share(self.unreadable);
        assert!(
            unreadable <= most_unreadable,
            "{thread}: {unreadable:.4} of its samples end at memory that cannot be read"
        );
    }

    /// The same by elapsed time, of which a single look can stand for much.
    pub fn assert_mostly_right(&self, thread: &str, expected: &Expected) {
        let right = self.share(self.all - self.truncated - self.wrong);
        let least = (1.0 - expected.most_truncated - expected.most_wrong) / 2.0;
        assert!(
            right >= least,
            "{thread}: {right:.4} of its time is in right stacks"
        );
        self.assert_readable(thread, expected.most_unreadable * 10.0);
    }
}

/// A stack by names, leaf first, with the frames that were inlined.
struct Stack<'p> {
    names: Vec<&'p str>,
    /// Why it is not whole.
    truncated: Option<&'p str>,
}

impl<'p> Stack<'p> {
    fn of(profile: &'p Profile, sample: &Sample<'_>) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for &id in sample.stack {
            names.extend(names_of(profile, id));
        }
        let truncated = names.pop_if(|name| name.starts_with("[truncated"));
        Self { names, truncated }
    }

    fn has(&self, function: &str) -> bool {
        self.names.iter().any(|name| is_function(name, function))
    }
}

fn names_of(profile: &Profile, id: LocationId) -> Vec<&str> {
    let location = profile.location(id);
    if location.lines.is_empty() {
        let mapping = location.mapping.map(|id| profile.mapping(id));
        return vec![match mapping {
            Some(mapping) => mapping.filename.rsplit('/').next().unwrap_or_default(),
            None => "(made code)",
        }];
    }
    let names = location
        .lines
        .iter()
        .map(|line| profile.string(profile.function(line.function).name));
    names.collect()
}

/// Whether a full name is that of a function, whatever modules it is in, and of no closure in it.
fn is_function(name: &str, function: &str) -> bool {
    name.strip_suffix(function)
        .is_some_and(|before| before.is_empty() || before.ends_with("::"))
}

/// Where threads begin and end, outside of what they run: Rust's, and before and after that all
/// that sigprof hooks.
const NOT_ITS_OWN: [&str; 3] = [
    "new::thread_start",
    "trampoline::begin",
    "ending::destructor",
];

/// Judges the stacks of the threads of a name, and shows figures of them.
pub fn judge(profile: &Profile, thread: &str, expected: &Expected, turns: u64) -> Verdict {
    let mut all = 0;
    let [mut truncated, mut unreadable] = [0; 2];
    let mut rootless = BTreeMap::<String, i64>::new();
    let mut ends = BTreeMap::<(&str, &str), i64>::new();
    let mut calls = vec![[0_i64; 2]; expected.calls.len()];
    let mut wrong_callers = BTreeMap::<&str, i64>::new();
    for sample in profile.samples() {
        if text_label(profile, &sample, "thread") != Some(thread)
            || frame_of_unseen(profile, &sample).is_some()
        {
            continue;
        }
        let count = sample.values[0];
        all += count;
        let stack = Stack::of(profile, &sample);
        match stack.truncated {
            Some(why) => {
                truncated += count;
                if why == "[truncated: unreadable]" {
                    unreadable += count;
                }
                let last = stack.names.last().copied().unwrap_or_default();
                *ends.entry((why, last)).or_default() += count;
            }
            None if !NOT_ITS_OWN.iter().any(|function| stack.has(function))
                && !expected.roots.iter().any(|root| stack.has(root)) =>
            {
                *rootless.entry(stack.names.join(" < ")).or_default() += count;
            }
            None => {}
        }
        for ((callee, caller), counts) in expected.calls.iter().zip(&mut calls) {
            let Some(at) = stack
                .names
                .iter()
                .position(|name| is_function(name, callee))
            else {
                continue;
            };
            counts[0] += count;
            match stack.names.get(at + 1) {
                Some(name) if is_function(name, caller) => counts[1] += count,
                Some(name) => *wrong_callers.entry(name).or_default() += count,
                // Cut short there, which was counted.
                None => counts[0] -= count,
            }
        }
    }
    let share = truncated as f64 / all.max(1) as f64;
    figure!(
        "{thread}: {turns} turns, {all} samples, {truncated} truncated ({:.2} %)",
        share * 100.0
    );
    for (&(why, last), count) in most(&ends) {
        figure!("{thread}:     {count} {why} in {last}");
    }
    let rootless_count: i64 = rootless.values().sum();
    if rootless_count > 0 {
        figure!("{thread}:     {rootless_count} whole without its root");
    }
    for (stack, count) in most(&rootless) {
        figure!("{thread}:         {count} {stack}");
    }
    for ((callee, caller), [seen, right]) in expected.calls.iter().zip(&calls) {
        figure!("{thread}:     {callee} from {caller}: {right} of {seen}");
    }
    for (caller, count) in most(&wrong_callers) {
        figure!("{thread}:         {count} from {caller}");
    }
    Verdict {
        all,
        truncated,
        wrong: rootless_count + wrong_callers.values().sum::<i64>(),
        unreadable,
    }
}

fn most<K: Ord>(counts: &BTreeMap<K, i64>) -> Vec<(&K, i64)> {
    let mut counts: Vec<_> = counts.iter().map(|(key, &count)| (key, count)).collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    counts.truncate(8);
    counts
}
