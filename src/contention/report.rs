//! What was collected to a [`Profile`].
#![forbid(unsafe_code)]

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::collector::Collector;
use super::counted::Mark;
use super::sampling::Waits;
use super::wait::{self, Wait};
use crate::aggregate::{NamedFrames, locate_callers};
use crate::profile::{Label, LabelValue, LocationId, Profile, SliceTable, ValueType};
use crate::ring::Role;
#[cfg(feature = "symbolize")]
use crate::symbolize;

/// Which waits are shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum View {
    /// All but those of threads that have nothing to do.
    Busy,
    All,
}

/// The waits of one role so far, by the addresses of their stacks.
pub(super) struct Report {
    profile: Profile,
    /// By the number of the stack: where the waiter's call is, and then the stack.
    located: Vec<Vec<LocationId>>,
    /// What is waited for, by the number of the stack, where that is known without names.
    known: Vec<Option<Wait>>,
    waits: Vec<Waits>,
    lost: Waits,
}

impl Report {
    /// Copies what was collected since a moment, or since the process was first watched. What is
    /// left to do takes longer, and threads record meanwhile.
    pub(super) fn of(collector: &Collector, role: Role, since: Option<&Mark>) -> Self {
        let since = since.unwrap_or(collector.first());
        let delay = ValueType::fixed("delay", "nanoseconds");
        let contentions = ValueType::fixed("contentions", "count");
        let mut profile = Profile::new(vec![contentions.clone(), delay.clone()]);
        profile.default_sample_type = delay.r#type.to_string();
        // What samples stand for is in the values.
        profile.period_type = contentions;
        profile.period = 1;
        profile.time_nanos = since.time_nanos;
        // Scrapers refuse a profile that took no time.
        profile.duration_nanos = since.age_ns().max(1) as i64;
        let stacks = collector.stacks();
        let located = locate_callers(&mut profile, collector.publisher().layouts(), stacks);
        let (all, before) = (collector.counted(), &since.counted);
        let waits = (0..stacks.len() as u32)
            .map(|stack| all.waits(role, stack).minus(before.waits(role, stack)));
        // Behind the word with the layout.
        let known =
            (0..stacks.len() as u32).map(|stack| Wait::of_number(*stacks.get(stack).get(1)?));
        Self {
            known: known.collect(),
            waits: waits.collect(),
            lost: all.lost(role).minus(before.lost(role)),
            profile,
            located,
        }
    }

    /// The profile, with names.
    pub(super) fn profile(self, view: View) -> Profile {
        let Self {
            mut profile,
            located,
            known,
            waits,
            lost,
        } = self;
        #[cfg(feature = "symbolize")]
        symbolize::add_names(&mut profile);
        // Before the functions are taken off that say it.
        let kinds: Vec<Wait> = (located.iter().zip(known))
            .map(|(stack, known)| {
                if let Some(known) = known {
                    return known;
                }
                let (site, stack) = stack.split_at(1.min(stack.len()));
                let [of_stack, of_site] = [stack, site].map(|s| Wait::of(names(&profile, s)));
                match of_stack {
                    Wait::Other => of_site,
                    known => known,
                }
            })
            .collect();
        let is_plumbing = profile.take_off_plumbing(wait::is_plumbing);

        let mut callers = SliceTable::<LocationId>::default();
        let mut order = Vec::new();
        let mut sums: HashMap<(u32, Wait), Waits> = HashMap::new();
        let mut hidden = Waits::default();
        for ((stack, kind), waits) in located.iter().zip(kinds).zip(waits) {
            if waits.ns == 0 {
                continue;
            }
            if view == View::Busy && kind.is_idle() {
                hidden = hidden.plus(waits);
                continue;
            }
            let stack = stack.get(1..).unwrap_or_default();
            let leaf = stack.iter().position(|l| !is_plumbing[l.index()]);
            let key = (callers.intern(&stack[leaf.unwrap_or(0)..]), kind);
            match sums.entry(key) {
                Entry::Occupied(mut sum) => *sum.get_mut() = sum.get().plus(waits),
                Entry::Vacant(place) => {
                    order.push(key);
                    place.insert(waits);
                }
            }
        }
        let key = profile.intern("wait");
        for (stack, kind) in order {
            let value = LabelValue::Str(profile.intern(kind.as_str()));
            let waits = values(sums[&(stack, kind)]);
            profile.push_sample(callers.get(stack), &waits, &[Label { key, value }]);
        }
        if lost.ns > 0 {
            let frame = NamedFrames::default().of(&mut profile, "[lost]");
            profile.push_sample(&[frame], &values(lost), &[]);
        }
        if hidden.ns > 0 {
            profile.comments.push(format!(
                "hidden: {} waits for condition variables and of parked threads, {:.3} s",
                hidden.count.round(),
                hidden.ns as f64 / 1e9,
            ));
        }
        profile
    }
}

/// The names of a stack's functions, from the leaf on.
fn names<'p>(profile: &'p Profile, stack: &'p [LocationId]) -> impl Iterator<Item = &'p str> {
    let lines = stack.iter().flat_map(|&l| &profile.location(l).lines);
    lines.map(|line| profile.string(profile.function(line.function).name))
}

fn values(waits: Waits) -> [i64; 2] {
    [waits.count.round() as i64, waits.ns as i64]
}
