//! The stacks of a profile -> arcs of the call graph.

use super::records::Arc;
use crate::profile::{LocationId, Profile, StackId};

/// The arcs of stacks that have so many samples each, in the order of their addresses. Of each
/// location `from` has the address as a caller, and `to` the one as a callee, where it has one: a
/// call is counted once for each sample of a stack that has it, however often it recurs there.
pub(super) fn arcs(
    profile: &Profile,
    samples: &[u64],
    from: &[Option<u64>],
    to: &[Option<u64>],
) -> Vec<Arc> {
    let [from, to] = [from, to].map(Ranks::of);
    // All calls of a caller, one caller after the other, as numbers that are in the order of callees
    // and then of stacks. A map of arcs would take ten times as long: there can be millions.
    let mut ends = vec![0; from.sorted.len()];
    for_each_call(profile, samples, &from, &to, |call| ends[call.from] += 1);
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    let mut calls = vec![0u64; sum];
    for_each_call(profile, samples, &from, &to, |call| {
        let end = &mut ends[call.from];
        calls[*end] = (call.to as u64) << 32 | u64::from(call.stack.0);
        *end += 1;
    });
    let mut arcs = Vec::new();
    let mut begin = 0;
    for (&caller, end) in from.sorted.iter().zip(ends) {
        let calls = &mut calls[begin..end];
        begin = end;
        calls.sort_unstable();
        let same_callee = |a: &u64, b: &u64| a >> 32 == b >> 32;
        for calls in calls.chunk_by(same_callee) {
            let stacks = calls.chunk_by(|a, b| a == b).map(|calls| calls[0] as u32);
            arcs.push(Arc {
                from: caller,
                to: to.sorted[(calls[0] >> 32) as usize],
                count: stacks.fold(0, |sum, stack| sum.saturating_add(samples[stack as usize])),
            });
        }
    }
    arcs
}

/// A call in a stack: ranks of the caller's and of the callee's address.
struct Call {
    from: usize,
    to: usize,
    stack: StackId,
}

fn for_each_call(
    profile: &Profile,
    samples: &[u64],
    from: &Ranks,
    to: &Ranks,
    mut f: impl FnMut(Call),
) {
    for (i, _) in samples
        .iter()
        .enumerate()
        .filter(|(_, samples)| **samples > 0)
    {
        let stack = StackId(i as u32);
        for pair in profile.stacks().get(stack).windows(2) {
            if let (Some(to), Some(from)) = (to.rank(pair[0]), from.rank(pair[1])) {
                f(Call { from, to, stack });
            }
        }
    }
}

/// Addresses of locations, by their order.
struct Ranks {
    /// Each address once.
    sorted: Vec<u64>,
    /// The position of each location's address there; one that is in no table where it has none.
    of_location: Vec<u32>,
}

impl Ranks {
    const NONE: u32 = u32::MAX;

    fn of(addresses: &[Option<u64>]) -> Self {
        let mut sorted: Vec<u64> = addresses.iter().flatten().copied().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let rank = |address: &Option<u64>| {
            let found = address.and_then(|address| sorted.binary_search(&address).ok());
            found.map_or(Self::NONE, |rank| rank as u32)
        };
        Self {
            of_location: addresses.iter().map(rank).collect(),
            sorted,
        }
    }

    fn rank(&self, location: LocationId) -> Option<usize> {
        let rank = self.of_location[location.index()];
        (rank != Self::NONE).then_some(rank as usize)
    }
}
