//! The stacks of a profile -> arcs of the call graph.

use super::radix;
use super::records::{Arc, Arcs};
use crate::profile::{LocationId, Profile, StackId};
use crate::sys::memory::ZeroedNumbers;

/// Calls that are sorted at once: with as many beside them they stay in a CPU's second cache.
const PART: usize = 1 << 14;

/// The calls of stacks, which are arcs where they are counted.
///
/// There can be millions of both. A map of arcs would take ten times as long as sorting the calls of
/// all stacks, part by part; a list of them more memory than the calls.
#[derive(Debug)]
pub(super) struct Calls {
    ends: Ends,
    packing: Packing,
    parts: Parts,
    /// How many samples each stack has.
    samples: Samples,
}

impl Calls {
    /// Those of stacks that have so many samples each. Of each location `from` has the address as a
    /// caller, and `to` the one as a callee, where it has one.
    pub(super) fn of(
        profile: &Profile,
        samples: Vec<u64>,
        from: &[Option<u64>],
        to: &[Option<u64>],
    ) -> Self {
        let ends = Ends::of(from, to);
        let calls = || stacks_of(profile, &samples).flat_map(|(id, stack)| ends.calls(id, stack));
        let frames = stacks_of(profile, &samples).map(|(_, stack)| stack.len());
        let packing = Packing::of(&ends, samples.len(), frames.sum());
        let parts = Parts::of(packing.parts(&ends), || {
            calls().map(|call| packing.pack(call))
        });
        Self {
            ends,
            packing,
            parts,
            samples: Samples::of(samples),
        }
    }

    /// The arcs of a part, of which the calls are sorted. A call counts once for each sample of a
    /// stack that has it, however often it recurs there. What `arcs` held before does not matter.
    fn count<'a>(&self, part: usize, calls: &[u64], arcs: &'a mut Vec<Arc>) -> &'a [Arc] {
        arcs.resize(arcs.len().max(calls.len()), Arc::default());
        // Whether a call is the same arc as the one before is as good as random: no branch depends
        // on it.
        let (mut last, mut count, mut len) = (None, 0u64, 0);
        for &call in calls {
            let (ends, stack) = split(call, self.packing.stack_bits);
            let is_new = last.is_none_or(|last| split(last, self.packing.stack_bits).0 != ends);
            let samples = match last == Some(call) {
                true => 0,
                false => self.samples.of_stack(stack as usize),
            };
            count = match is_new {
                true => samples,
                false => count.saturating_add(samples),
            };
            len += usize::from(is_new);
            let (from, to) = self.packing.unpack(part, ends);
            arcs[len - 1] = Arc {
                from: self.ends.from[from],
                to: self.ends.to[to],
                count,
            };
            last = Some(call);
        }
        &arcs[..len]
    }
}

impl Arcs for Calls {
    fn most(&self) -> u64 {
        self.samples.sum()
    }

    fn try_for_each<E>(&self, mut f: impl FnMut(&[Arc]) -> Result<(), E>) -> Result<(), E> {
        let (mut scratch, mut arcs) = (radix::Scratch::default(), Vec::new());
        // Calls of one stack come before those of the next one already.
        let bits = self.packing.stack_bits..self.packing.bits();
        for (part, calls) in self.parts.iter().enumerate() {
            // While they are in the CPU's cache, calls are sorted and counted.
            let calls = radix::sorted(calls, bits.clone(), &mut scratch);
            f(self.count(part, calls, &mut arcs))?;
        }
        Ok(())
    }
}

/// How many samples each stack has.
#[derive(Debug)]
struct Samples {
    all: Vec<u64>,
    /// The same, or [`MANY`]: a table that stays in a CPU's second cache where `all` would not.
    few: Vec<u8>,
}

/// So many samples or more.
const MANY: u8 = u8::MAX;

impl Samples {
    fn of(all: Vec<u64>) -> Self {
        let few = |&samples: &u64| samples.min(MANY.into()) as u8;
        Self {
            few: all.iter().map(few).collect(),
            all,
        }
    }

    fn of_stack(&self, stack: usize) -> u64 {
        match self.few[stack] {
            MANY => self.all[stack],
            few => few.into(),
        }
    }

    fn sum(&self) -> u64 {
        (self.all.iter()).fold(0, |sum, &samples| sum.saturating_add(samples))
    }
}

/// The stacks that have samples.
fn stacks_of<'p>(
    profile: &'p Profile,
    samples: &[u64],
) -> impl Iterator<Item = (StackId, &'p [LocationId])> {
    let ids = (0..).map(StackId).zip(samples);
    let sampled = ids.filter(|(_, samples)| **samples > 0);
    sampled.map(|(id, _)| (id, profile.stacks().get(id)))
}

/// A call in a stack: the ranks of the caller's and of the callee's address.
struct Call {
    from: u32,
    to: u32,
    stack: StackId,
}

/// What locations are as callers and as callees.
#[derive(Debug)]
struct Ends {
    /// All addresses of callers, and all of callees, each once, ascending.
    from: Vec<u64>,
    to: Vec<u64>,
    /// The position of each location's addresses there, or [`NONE`].
    ranks: Vec<(u32, u32)>,
}

const NONE: u32 = u32::MAX;

impl Ends {
    fn of(from: &[Option<u64>], to: &[Option<u64>]) -> Self {
        let [(from, from_ranks), (to, to_ranks)] = [from, to].map(ranks);
        Self {
            from,
            to,
            ranks: from_ranks.into_iter().zip(to_ranks).collect(),
        }
    }

    /// The calls of a stack from one address to another.
    fn calls(&self, id: StackId, stack: &[LocationId]) -> impl Iterator<Item = Call> {
        let mut ranks = stack.iter().map(|location| self.ranks[location.index()]);
        let mut callee = ranks.next().map_or(NONE, |(_, to)| to);
        ranks.filter_map(move |(from, to)| {
            let call = Call {
                from,
                to: std::mem::replace(&mut callee, to),
                stack: id,
            };
            (call.from != NONE && call.to != NONE).then_some(call)
        })
    }
}

/// Each address once, ascending; and the position of each there, or [`NONE`].
fn ranks(addresses: &[Option<u64>]) -> (Vec<u64>, Vec<u32>) {
    let mut sorted: Vec<u64> = addresses.iter().flatten().copied().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let rank = |address: &Option<u64>| {
        let found = address.and_then(|address| sorted.binary_search(&address).ok());
        found.map_or(NONE, |rank| rank as u32)
    };
    let ranks = addresses.iter().map(rank).collect();
    (sorted, ranks)
}

/// How a call is a part, by the highest bits of the caller, and a number that has the rest; both in
/// the order of calls.
#[derive(Clone, Copy, Debug)]
struct Packing {
    from_bits: u32,
    to_bits: u32,
    stack_bits: u32,
}

impl Packing {
    fn of(ends: &Ends, stacks: usize, calls: usize) -> Self {
        // Of numbers below the count, which has at most 32 bits itself.
        let bits = |count: usize| usize::BITS - count.saturating_sub(1).leading_zeros();
        let to_bits = bits(ends.to.len());
        let stack_bits = bits(stacks);
        let part_bits = bits(calls / PART);
        let from_bits = bits(ends.from.len()).saturating_sub(part_bits);
        Self {
            from_bits: from_bits.min(u64::BITS - to_bits - stack_bits),
            to_bits,
            stack_bits,
        }
    }

    fn bits(self) -> u32 {
        self.from_bits + self.to_bits + self.stack_bits
    }

    fn parts(self, ends: &Ends) -> usize {
        (ends.from.len() >> self.from_bits) + 1
    }

    fn pack(self, call: Call) -> (usize, u64) {
        let (part, from) = split(call.from.into(), self.from_bits);
        let ends = from << self.to_bits | u64::from(call.to);
        (
            part as usize,
            ends << self.stack_bits | u64::from(call.stack.0),
        )
    }

    /// The ranks of caller and callee, of a number without its stack.
    fn unpack(self, part: usize, ends: u64) -> (usize, usize) {
        let (from, to) = split(ends, self.to_bits);
        (part << self.from_bits | from as usize, to as usize)
    }
}

/// A number's highest bits, and so many of its lowest: at most 32.
fn split(number: u64, bits: u32) -> (u64, u64) {
    (number >> bits, number & ((1 << bits) - 1))
}

/// Numbers, one part after the other.
#[derive(Debug)]
struct Parts {
    numbers: ZeroedNumbers,
    ends: Vec<usize>,
}

impl Parts {
    /// So many parts of what `numbers` gives each time.
    fn of<I: Iterator<Item = (usize, u64)>>(parts: usize, numbers: impl Fn() -> I) -> Self {
        let mut ends = vec![0; parts];
        numbers().for_each(|(part, _)| ends[part] += 1);
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        let mut all = ZeroedNumbers::new(sum);
        numbers().for_each(|(part, number)| {
            all[ends[part]] = number;
            ends[part] += 1;
        });
        Self { numbers: all, ends }
    }

    fn iter(&self) -> impl Iterator<Item = &[u64]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins
            .zip(&self.ends)
            .map(|(begin, &end)| &self.numbers[begin..end])
    }
}
