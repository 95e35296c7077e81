//! Counts to a profile of addresses, ready to be symbolized.

use hashbrown::HashMap;

use super::places::{NamedFrames, Places};
use super::{Layouts, Stack, StackTable, State, Sums, Tag, Weight};
use crate::profile::{Label, LabelValue, LocationId, Profile, SliceTable, StringId, ValueType};
use crate::unwind::StopReason;

/// What the labels of a thread's samples say.
#[derive(Clone, Debug)]
pub(crate) struct ThreadLabels {
    /// The thread's name; empty where it was not known.
    pub(crate) name: String,
    /// The kernel's id.
    pub(crate) tid: i32,
}

/// When and how the counts were taken.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// What the samples' time is: `cpu` or `wall`.
    pub(crate) time: &'static str,
    pub(crate) period_ns: u64,
    pub(crate) start_realtime_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) comments: Vec<String>,
    /// What is to be made of the time in `sums`: a fraction of it, the same for all.
    pub(crate) worth: (u64, u64),
}

/// Time that is in no stack, under a frame that says why not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unseen {
    /// The frame's name.
    pub(crate) why: &'static str,
    /// The thread's serial number; 0 where it is not known whose time it was.
    pub(crate) thread: u32,
    pub(crate) weight: Weight,
}

/// Labels by the numbers that samples are counted under.
pub(crate) trait Labels {
    /// What a thread's samples are labelled with.
    fn of_thread(&self, serial: u32) -> Option<ThreadLabels>;
    /// Keys and values of a set of the program's labels.
    fn of_set(&self, number: u32) -> &[(String, String)];
}

/// Makes a profile of what `sums` has of the chains of `table`, and of what was not seen.
pub(crate) fn build(
    table: &StackTable,
    sums: &Sums,
    layouts: &Layouts,
    labels: &impl Labels,
    unseen: &[Unseen],
    recorded: Recorded,
) -> Profile {
    let time = ValueType::new(recorded.time, "nanoseconds");
    let mut profile = Profile::new(vec![ValueType::new("samples", "count"), time.clone()]);
    profile.period = recorded.period_ns as i64;
    profile.default_sample_type = time.r#type.to_string();
    profile.period_type = time;
    profile.time_nanos = recorded.start_realtime_ns as i64;
    // Readers divide by it.
    profile.duration_nanos = recorded.duration_ns.max(1) as i64;
    profile.comments = recorded.comments;
    let mut worth = Worth::new(recorded.worth);

    let mut places = Places::new(&mut profile, layouts);
    let mut unseen_frames = NamedFrames::default();
    let mut stacks = SliceTable::<LocationId>::default();
    let mut stack = Vec::new();
    let mut stack_of = |profile: &mut Profile, chain: Stack<'_>| {
        stack.clear();
        stack.extend(chain.frames.iter().enumerate().map(|(depth, &frame)| {
            // A return address points behind its call; one less is inside it (see `Location`).
            let address = if depth == 0 {
                frame
            } else {
                frame.wrapping_sub(1)
            };
            places.locate(profile, chain.layout, address)
        }));
        // So that a part of a stack never looks like a whole one.
        stack.extend(why_truncated(chain.ended).map(|why| unseen_frames.of(profile, why)));
        stacks.intern(&stack)
    };

    let mut order = Vec::new();
    let mut weights = HashMap::<(u32, Tag), Weight>::new();
    // Chains of two layouts can turn out to be one stack of the profile.
    let mut stack_of_chain = vec![None; table.len()];
    for (chain, tag, weight) in sums.weights() {
        let stack = *stack_of_chain[chain as usize]
            .get_or_insert_with(|| stack_of(&mut profile, table.chain(chain)));
        let key = (stack, tag);
        let sum = weights.entry(key).or_insert_with(|| {
            order.push(key);
            Weight::default()
        });
        sum.count += weight.count;
        sum.ns = sum.ns.saturating_add(weight.ns);
    }
    let mut label_sets = LabelCache::new(&mut profile, labels);
    for key @ (stack, tag) in order {
        let labels = label_sets.of(&mut profile, tag);
        let weight = worth.of(weights[&key]);
        profile.push_sample(stacks.get(stack), &values(weight), labels);
    }
    for unseen in unseen {
        let frame = unseen_frames.of(&mut profile, unseen.why);
        let tag = Tag {
            thread: unseen.thread,
            ..Tag::default()
        };
        let labels = label_sets.of(&mut profile, tag);
        profile.push_sample(&[frame], &values(unseen.weight), labels);
    }
    profile
}

/// A fraction of many times, each rounded so that their sum is right.
struct Worth {
    fraction: (u64, u64),
    before_ns: u128,
    after_ns: u128,
}

impl Worth {
    fn new(fraction: (u64, u64)) -> Self {
        Self {
            fraction,
            before_ns: 0,
            after_ns: 0,
        }
    }

    fn of(&mut self, weight: Weight) -> Weight {
        let (part, whole) = self.fraction;
        if part == whole {
            return weight;
        }
        self.before_ns += u128::from(weight.ns);
        let after_ns = self.before_ns * u128::from(part) / u128::from(whole.max(1));
        let ns = (after_ns - self.after_ns) as u64;
        self.after_ns = after_ns;
        Weight { ns, ..weight }
    }
}

fn values(weight: Weight) -> [i64; 2] {
    [weight.count as i64, weight.ns as i64]
}

/// The frame at the root of a stack that is not whole.
pub(crate) fn why_truncated(ended: StopReason) -> Option<&'static str> {
    match ended {
        StopReason::Root => None,
        StopReason::Depth => Some("[truncated: depth]"),
        StopReason::NoUnwindData => Some("[truncated: no unwind data]"),
        StopReason::Unreadable => Some("[truncated: unreadable]"),
        StopReason::NotAdvancing => Some("[truncated: not advancing]"),
    }
}

/// The label sets of tags, each made once.
struct LabelCache<'l, L> {
    source: &'l L,
    thread: StringId,
    thread_id: StringId,
    unit: StringId,
    sets: HashMap<Tag, Vec<Label>>,
}

impl<'l, L: Labels> LabelCache<'l, L> {
    fn new(profile: &mut Profile, source: &'l L) -> Self {
        Self {
            source,
            thread: profile.intern("thread"),
            thread_id: profile.intern("thread_id"),
            unit: profile.intern("id"),
            sets: HashMap::new(),
        }
    }

    fn of(&mut self, profile: &mut Profile, tag: Tag) -> &[Label] {
        let Self {
            source,
            thread,
            thread_id,
            unit,
            sets,
        } = self;
        sets.entry(tag).or_insert_with(|| {
            let mut labels = Vec::new();
            let mut add = |key, value| labels.push(Label { key, value });
            if let Some(known) = source.of_thread(tag.thread) {
                if !known.name.is_empty() {
                    add(*thread, LabelValue::Str(profile.intern(&known.name)));
                }
                let value = known.tid.into();
                add(*thread_id, LabelValue::Num { value, unit: *unit });
            }
            let said = match tag.state {
                State::Unsaid => None,
                State::Running => Some("running"),
                State::Waiting => Some("waiting"),
            };
            if let Some(said) = said {
                add(
                    profile.intern("state"),
                    LabelValue::Str(profile.intern(said)),
                );
            }
            for (key, value) in source.of_set(tag.labels) {
                let key = profile.intern(key);
                add(key, LabelValue::Str(profile.intern(value)));
            }
            labels
        })
    }
}
