//! Functions, what each costs, and who calls whom.
//!
//! Source: google/pprof, `internal/graph/graph.go`.

use hashbrown::{HashMap, HashSet};

use super::{Location, Profile, Sample, StackId, StringId};

/// What tells functions apart: the name, or without one the object file and the line the function
/// begins at.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
struct NodeKey<'p> {
    name: &'p str,
    object: &'p str,
    start_line: i64,
}

impl NodeKey<'_> {
    fn printable(&self) -> String {
        match (self.name, self.object) {
            ("", "") => "<unknown>".to_owned(),
            ("", object) => format!("[{}]", base_name(object)),
            (name, _) => name.to_owned(),
        }
    }
}

pub(super) struct Node {
    pub name: String,
    pub flat: i64,
    pub cum: i64,
}

/// A call from one node to another.
struct Edge {
    weight: i64,
    inline: bool,
    /// The last stack that it was met in, by its position.
    last_stack: Option<usize>,
}

/// Nodes, and which of them each location's lines are, innermost first.
pub(super) struct Graph {
    pub nodes: Vec<Node>,
    of_location: Vec<Vec<u32>>,
    /// The stacks that have values other than 0, with the sums of these.
    stacks: Vec<(StackId, i64)>,
}

/// What a location adds to the calls of each stack that it is in, of the nodes to be shown.
struct Calls {
    /// The outermost node, and whether its caller in another location inlined it.
    outermost: Option<(u32, bool)>,
    innermost: Option<u32>,
    /// The calls within the location, all of them inlined; each once, in their order.
    within: Vec<(u32, u32)>,
}

/// Which of things numbered from 0 were met since the last [`clear`](Self::clear), which costs
/// nothing.
struct Seen {
    turns: Vec<u32>,
    turn: u32,
}

impl Seen {
    fn new(len: usize) -> Self {
        Self {
            turns: vec![0; len],
            turn: 0,
        }
    }

    /// At most as often as there are stacks, whose number has 32 bits.
    fn clear(&mut self) {
        self.turn += 1;
    }

    fn insert(&mut self, index: usize) -> bool {
        std::mem::replace(&mut self.turns[index], self.turn) != self.turn
    }
}

impl Graph {
    pub(super) fn new(profile: &Profile, index: usize) -> Self {
        let mut nodes = Vec::new();
        let mut of_key: HashMap<NodeKey, u32> = HashMap::new();
        let mut of_location = Vec::with_capacity(profile.locations().len());
        for location in profile.locations() {
            let keys = node_keys(profile, location);
            let ids = keys.into_iter().map(|key| {
                *of_key.entry(key).or_insert_with(|| {
                    nodes.push(Node {
                        name: key.printable(),
                        flat: 0,
                        cum: 0,
                    });
                    nodes.len() as u32 - 1
                })
            });
            of_location.push(ids.collect::<Vec<_>>());
        }
        let mut graph = Self {
            nodes,
            of_location,
            stacks: sums(profile, index),
        };
        graph.add_values(profile);
        graph
    }

    fn add_values(&mut self, profile: &Profile) {
        let mut seen = Seen::new(self.nodes.len());
        let distinct: Vec<Vec<u32>> = self
            .of_location
            .iter()
            .map(|ids| {
                seen.clear();
                ids.iter()
                    .copied()
                    .filter(|&id| seen.insert(id as usize))
                    .collect()
            })
            .collect();
        let mut seen = Seen::new(self.nodes.len());
        let mut seen_locations = Seen::new(self.of_location.len());
        for &(stack, value) in &self.stacks {
            seen.clear();
            seen_locations.clear();
            let stack = profile.stacks().get(stack);
            for location in stack {
                if !seen_locations.insert(location.index()) {
                    continue;
                }
                for &id in &distinct[location.index()] {
                    if seen.insert(id as usize) {
                        let node = &mut self.nodes[id as usize];
                        node.cum = node.cum.saturating_add(value);
                    }
                }
            }
            if let Some(leaf) = stack.first() {
                let id = self.of_location[leaf.index()][0];
                let node = &mut self.nodes[id as usize];
                node.flat = node.flat.saturating_add(value);
            }
        }
    }

    pub(super) fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    /// For each of the nodes to be shown, whether its callers among them inlined it.
    pub(super) fn inline_labels(
        &self,
        profile: &Profile,
        shown: &[u32],
        edge_cutoff: i64,
    ) -> Vec<&'static str> {
        let calls = self.calls(shown);
        let mut edges: HashMap<(u32, u32), Edge> = HashMap::new();
        let mut seen_locations = Seen::new(calls.len());
        for (turn, &(stack, value)) in self.stacks.iter().enumerate() {
            seen_locations.clear();
            // A call counts once in a stack, and as what it is where the stack has it first.
            let mut add = |caller, id, is_inlined| {
                if caller == id {
                    return;
                }
                let edge = edges.entry((caller, id)).or_insert(Edge {
                    weight: 0,
                    inline: true,
                    last_stack: None,
                });
                if edge.last_stack != Some(turn) {
                    edge.last_stack = Some(turn);
                    edge.weight = edge.weight.saturating_add(value);
                    edge.inline &= is_inlined;
                }
            };
            let mut parent = None;
            for location in profile.stacks().get(stack).iter().rev() {
                let calls = &calls[location.index()];
                if let (Some(caller), Some((id, is_inlined))) = (parent, calls.outermost) {
                    add(caller, id, is_inlined);
                }
                if seen_locations.insert(location.index()) {
                    for &(caller, id) in &calls.within {
                        add(caller, id, true);
                    }
                }
                parent = calls.innermost.or(parent);
            }
        }
        let mut callers: HashMap<u32, (bool, bool)> = HashMap::new();
        for ((_, id), edge) in edges {
            if edge.weight.saturating_abs() >= edge_cutoff {
                let (inline, plain) = callers.entry(id).or_default();
                *inline |= edge.inline;
                *plain |= !edge.inline;
            }
        }
        let label = |id| match callers.get(id) {
            Some((true, false)) => " (inline)",
            Some((true, true)) => " (partial-inline)",
            _ => "",
        };
        shown.iter().map(label).collect()
    }

    /// Each location's calls.
    fn calls(&self, shown: &[u32]) -> Vec<Calls> {
        let mut is_shown = vec![false; self.nodes.len()];
        for &id in shown {
            is_shown[id as usize] = true;
        }
        let calls = |ids: &Vec<u32>| {
            let outermost = ids.iter().rposition(|&id| is_shown[id as usize]);
            let inward = ids.iter().rev().copied();
            let chain = inward.filter(|&id| is_shown[id as usize]);
            let mut seen: HashSet<(u32, u32)> = HashSet::new();
            let within = chain.clone().zip(chain.skip(1));
            Calls {
                outermost: outermost.map(|i| (ids[i], i + 1 != ids.len())),
                innermost: ids.iter().copied().find(|&id| is_shown[id as usize]),
                within: within.filter(|call| seen.insert(*call)).collect(),
            }
        };
        self.of_location.iter().map(calls).collect()
    }
}

/// The sums of the samples' values by stack. A stack whose values cancel out is one that was met.
fn sums(profile: &Profile, index: usize) -> Vec<(StackId, i64)> {
    let mut sums: Vec<Option<i64>> = vec![None; profile.stacks().len()];
    for sample in profile.samples() {
        let value = value_of(&sample, index);
        if value != 0 {
            let sum = sums[sample.stack_id.index()].get_or_insert(0);
            *sum = sum.saturating_add(value);
        }
    }
    let stacks = (0..).map(StackId).zip(sums);
    stacks.filter_map(|(id, sum)| Some((id, sum?))).collect()
}

/// The value of a sample type that may not exist: a profile need not have any.
pub(super) fn value_of(sample: &Sample<'_>, index: usize) -> i64 {
    sample.values.get(index).copied().unwrap_or(0)
}

/// What a location's lines are, innermost first; a location without lines counts as its object
/// file.
fn node_keys<'p>(profile: &'p Profile, location: &Location) -> Vec<NodeKey<'p>> {
    let object = location
        .mapping
        .map_or("", |m| profile.mapping(m).filename.as_str());
    if location.lines.is_empty() {
        return vec![NodeKey {
            name: "",
            object,
            start_line: 0,
        }];
    }
    let key = |function: &super::Function| match function.name {
        id if id == StringId::default() => NodeKey {
            name: "",
            object,
            start_line: function.start_line,
        },
        id => NodeKey {
            name: profile.string(id),
            object: "",
            start_line: 0,
        },
    };
    let lines = location.lines.iter();
    lines
        .map(|line| key(profile.function(line.function)))
        .collect()
}

/// The last element of a path.
pub(super) fn base_name(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit('/').next() {
        Some(name) if !name.is_empty() => name,
        _ => "/",
    }
}
