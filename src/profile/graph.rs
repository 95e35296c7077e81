//! Functions, what each costs, and who calls whom.
//!
//! Source: google/pprof, `internal/graph/graph.go`.

use hashbrown::{HashMap, HashSet};

use super::{Location, Profile, Sample, StringId};

/// What tells functions apart: the name, or without one the object file and the line the function begins at.
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
}

/// Nodes, and which of them each location's lines are, innermost first.
pub(super) struct Graph {
    pub nodes: Vec<Node>,
    of_location: Vec<Vec<u32>>,
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
        let mut graph = Self { nodes, of_location };
        let mut seen: HashSet<u32> = HashSet::new();
        for sample in profile.samples() {
            let value = value_of(&sample, index);
            if value == 0 {
                continue;
            }
            seen.clear();
            let mut leaf = None;
            for location in sample.stack.iter().rev() {
                for &id in graph.of_location[location.index()].iter().rev() {
                    if seen.insert(id) {
                        let node = &mut graph.nodes[id as usize];
                        node.cum = node.cum.saturating_add(value);
                    }
                    leaf = Some(id);
                }
            }
            if let Some(id) = leaf {
                let node = &mut graph.nodes[id as usize];
                node.flat = node.flat.saturating_add(value);
            }
        }
        graph
    }

    pub(super) fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    /// For each of the nodes to be shown, whether its callers among them inlined it.
    pub(super) fn inline_labels(
        &self,
        profile: &Profile,
        index: usize,
        shown: &[u32],
        edge_cutoff: i64,
    ) -> Vec<&'static str> {
        let is_shown: HashSet<u32> = shown.iter().copied().collect();
        let mut edges: HashMap<(u32, u32), Edge> = HashMap::new();
        let mut seen: HashSet<(u32, u32)> = HashSet::new();
        for sample in profile.samples() {
            let value = value_of(&sample, index);
            if value == 0 {
                continue;
            }
            seen.clear();
            let mut parent = None;
            for location in sample.stack.iter().rev() {
                let ids = &self.of_location[location.index()];
                for (i, &id) in ids.iter().enumerate().rev() {
                    if !is_shown.contains(&id) {
                        continue;
                    }
                    if let Some(caller) = parent
                        && caller != id
                        && seen.insert((caller, id))
                    {
                        let is_inlined = i + 1 != ids.len();
                        let edge = edges.entry((caller, id)).or_insert(Edge {
                            weight: 0,
                            inline: true,
                        });
                        edge.weight = edge.weight.saturating_add(value);
                        edge.inline &= is_inlined;
                    }
                    parent = Some(id);
                }
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
}

/// The value of a sample type that may not exist: a profile need not have any.
pub(super) fn value_of(sample: &Sample<'_>, index: usize) -> i64 {
    sample.values.get(index).copied().unwrap_or(0)
}

/// What a location's lines are, innermost first; a location without lines counts as its object file.
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
