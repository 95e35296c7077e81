//! Counts to a profile of addresses, ready to be symbolized.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{Layouts, StackTable};
use crate::profile::{
    Label, LabelValue, Location, LocationId, Mapping, MappingId, Profile, SliceTable, ValueType,
};
use crate::sys::modules::{Object, Segment};

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
    pub(crate) period_ns: u64,
    pub(crate) start_realtime_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) comments: Vec<String>,
}

/// Makes a CPU profile of what `table` counted. `thread` tells the labels of a thread by the number it was counted under.
pub(crate) fn build(
    table: &StackTable,
    layouts: &Layouts,
    thread: impl Fn(u32) -> Option<ThreadLabels>,
    recorded: Recorded,
) -> Profile {
    let cpu = ValueType::new("cpu", "nanoseconds");
    let mut profile = Profile::new(vec![ValueType::new("samples", "count"), cpu.clone()]);
    profile.period = recorded.period_ns as i64;
    profile.default_sample_type = cpu.r#type.to_string();
    profile.period_type = cpu;
    profile.time_nanos = recorded.start_realtime_ns as i64;
    // Readers divide by it.
    profile.duration_nanos = recorded.duration_ns.max(1) as i64;
    profile.comments = recorded.comments;

    let mut places = Places::new(&mut profile, layouts);
    let mut stacks = SliceTable::<LocationId>::default();
    let mut stack = Vec::new();
    // Chains of two layouts can turn out to be one stack of the profile.
    let stack_of_chain: Vec<u32> = table
        .chains()
        .map(|(layout, frames)| {
            stack.clear();
            stack.extend(frames.iter().enumerate().map(|(depth, &frame)| {
                // A return address points behind its call; one less is inside it (see `Location`).
                let address = if depth == 0 {
                    frame
                } else {
                    frame.wrapping_sub(1)
                };
                places.locate(&mut profile, layout, address)
            }));
            stacks.intern(&stack)
        })
        .collect();

    let mut order = Vec::new();
    let mut weights = HashMap::<(u32, u32), u64>::new();
    for (chain, thread, weight) in table.weights() {
        let key = (stack_of_chain[chain as usize], thread);
        *weights.entry(key).or_insert_with(|| {
            order.push(key);
            0
        }) += weight;
    }
    let mut labels = ThreadLabelCache::new(&mut profile);
    for key @ (stack, number) in order {
        let weight = weights[&key];
        let labels = labels.of(&mut profile, number, &thread);
        let values = [
            weight as i64,
            weight.saturating_mul(recorded.period_ns) as i64,
        ];
        profile.push_sample(stacks.get(stack), &values, labels);
    }
    profile
}

/// Addresses to locations, each once.
struct Places<'l> {
    layouts: &'l Layouts,
    locations: HashMap<(u32, u64), LocationId>,
    mappings: HashMap<(Segment, Arc<Object>), MappingId>,
    /// Locations by what the file will say of them: two layouts can agree on an address.
    by_mapping: HashMap<(Option<MappingId>, u64), LocationId>,
}

impl<'l> Places<'l> {
    fn new(profile: &mut Profile, layouts: &'l Layouts) -> Self {
        let mut places = Self {
            layouts,
            locations: HashMap::new(),
            mappings: HashMap::new(),
            by_mapping: HashMap::new(),
        };
        if let Some(current) = layouts.current() {
            // Readers take the first mapping for the main executable.
            let (main, others): (Vec<_>, Vec<_>) =
                current.segments().partition(|(_, object)| object.is_main);
            for (segment, object) in main.into_iter().chain(others) {
                places.map(profile, segment, object);
            }
        }
        places
    }

    fn map(&mut self, profile: &mut Profile, segment: &Segment, object: &Arc<Object>) -> MappingId {
        *self
            .mappings
            .entry((*segment, object.clone()))
            .or_insert_with(|| {
                profile.push_mapping(Mapping {
                    memory_start: segment.start,
                    memory_limit: segment.end,
                    file_offset: segment.file_offset,
                    filename: object.path.clone(),
                    build_id: object.build_id.iter().map(|b| format!("{b:02x}")).collect(),
                    ..Mapping::default()
                })
            })
    }

    fn locate(&mut self, profile: &mut Profile, layout: u32, address: u64) -> LocationId {
        if let Some(&known) = self.locations.get(&(layout, address)) {
            return known;
        }
        let mapping = self
            .layouts
            .get(layout)
            .and_then(|layout| layout.find(address))
            .map(|(segment, object)| self.map(profile, segment, object));
        let id = *self
            .by_mapping
            .entry((mapping, address))
            .or_insert_with(|| {
                profile.push_location(Location {
                    mapping,
                    address,
                    ..Location::default()
                })
            });
        self.locations.insert((layout, address), id);
        id
    }
}

/// The label sets of threads, each made once.
struct ThreadLabelCache {
    thread: crate::profile::StringId,
    thread_id: crate::profile::StringId,
    unit: crate::profile::StringId,
    labels: HashMap<u32, Vec<Label>>,
}

impl ThreadLabelCache {
    fn new(profile: &mut Profile) -> Self {
        Self {
            thread: profile.intern("thread"),
            thread_id: profile.intern("thread_id"),
            unit: profile.intern("id"),
            labels: HashMap::new(),
        }
    }

    fn of(
        &mut self,
        profile: &mut Profile,
        number: u32,
        thread: impl Fn(u32) -> Option<ThreadLabels>,
    ) -> &[Label] {
        let Self {
            thread: thread_key,
            thread_id,
            unit,
            labels,
        } = self;
        labels.entry(number).or_insert_with(|| {
            let Some(known) = thread(number) else {
                return Vec::new();
            };
            let mut labels = Vec::with_capacity(2);
            if !known.name.is_empty() {
                labels.push(Label {
                    key: *thread_key,
                    value: LabelValue::Str(profile.intern(&known.name)),
                });
            }
            labels.push(Label {
                key: *thread_id,
                value: LabelValue::Num {
                    value: known.tid.into(),
                    unit: *unit,
                },
            });
            labels
        })
    }
}
