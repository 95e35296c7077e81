//! The truth: call stacks by what was seen of calls, returns and signals, without any unwind data.
//!
//! A call is an instruction behind which the stack pointer is a word lower and that word holds the
//! address of the next instruction. Its entry is alive until the stack pointer has left the word
//! behind, however that comes about: by a return, a `longjmp`, or an exception. A jump to another
//! function leaves it alone, as it should. Each mapping that is used as a stack has entries of its
//! own, so that a coroutine keeps its calls while others run.

use std::collections::BTreeMap;
use std::ops::Range;

/// The longest call: an address of 32 bits, a base and an index, and prefixes.
const LONGEST_CALL: u64 = 11;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where the return address lies; of an interrupted frame, where the kernel's frame begins
    /// behind it.
    slot: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Called { return_address: u64 },
    Interrupted { pc: u64, sp: u64, stack: u64 },
}

/// All stacks of a thread, and which one it is on.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    /// By the start of the mapping; entries in the order in which they were made, so slots descend.
    stacks: BTreeMap<u64, Vec<Entry>>,
    mapping: Range<u64>,
    /// The call that a coroutine waited in, when it was just changed to: the return address is
    /// pushed once more.
    resumed: Option<Entry>,
    pc: u64,
    sp: u64,
}

impl Shadow {
    /// An instruction has run, or the thread stands still at its first one.
    pub(super) fn step(
        &mut self,
        pc: u64,
        sp: u64,
        read: impl Fn(u64) -> Option<u64>,
        mapping: impl Fn(u64) -> Option<Range<u64>>,
    ) {
        let called = (self.sp.wrapping_sub(8) == sp)
            .then(|| read(sp))
            .flatten()
            .filter(|&word| {
                let length = word.wrapping_sub(self.pc);
                (1..=LONGEST_CALL).contains(&length) && pc != word
            });
        let stack = self.mapping.start;
        let last = self.arrive(pc, sp, mapping);
        if self.mapping.start != stack {
            self.forget_overwritten(&read);
            self.resumed = last.filter(|entry| entry.slot.wrapping_add(8) == sp);
        }
        if let Some(entry) = self.resumed
            && sp <= entry.slot
        {
            self.resumed = None;
            self.push(entry.slot, entry.what);
            self.forget_overwritten(&read);
        }
        if let Some(return_address) = called {
            self.push(sp, What::Called { return_address });
        }
    }

    /// A signal was delivered: the thread stands at the first instruction of its handler.
    pub(super) fn enter_handler(
        &mut self,
        pc: u64,
        sp: u64,
        read: impl Fn(u64) -> Option<u64>,
        mapping: impl Fn(u64) -> Option<Range<u64>>,
    ) {
        let (interrupted_pc, interrupted_sp) = (self.pc, self.sp);
        let stack = self.mapping.start;
        self.arrive(pc, sp, mapping);
        if self.mapping.start != stack {
            // An alternate stack is begun anew.
            self.stacks.remove(&self.mapping.start);
        }
        let what = What::Interrupted {
            pc: interrupted_pc,
            sp: interrupted_sp,
            stack,
        };
        self.push(sp + 8, what);
        if let Some(return_address) = read(sp) {
            self.push(sp, What::Called { return_address });
        }
    }

    /// The pc, and all return addresses that are alive, in the words of
    /// [`Snapshot::unwind`](crate::unwind::Snapshot::unwind).
    pub(super) fn frames(&self, frames: &mut Vec<u64>) {
        frames.clear();
        frames.push(self.pc);
        let (mut stack, mut sp) = (self.mapping.start, self.sp);
        'stacks: loop {
            let entries = self.stacks.get(&stack).map_or(&[][..], Vec::as_slice);
            for entry in entries.iter().rev().filter(|entry| entry.slot >= sp) {
                match entry.what {
                    What::Called { return_address } => frames.push(return_address),
                    What::Interrupted {
                        pc,
                        sp: its_sp,
                        stack: its_stack,
                    } => {
                        frames.push(pc + 1);
                        (stack, sp) = (its_stack, its_sp);
                        continue 'stacks;
                    }
                }
            }
            return;
        }
    }

    /// Whether the word at the stack pointer is not the return address of a call that is alive.
    pub(super) fn stands_above_last_call(&self) -> bool {
        let stack = self.stacks.get(&self.mapping.start);
        stack
            .and_then(|entries| entries.last())
            .is_none_or(|entry| entry.slot != self.sp)
    }

    /// Goes to a place; the answer is the last call that was left.
    fn arrive(
        &mut self,
        pc: u64,
        sp: u64,
        mapping: impl Fn(u64) -> Option<Range<u64>>,
    ) -> Option<Entry> {
        self.pc = pc;
        self.sp = sp;
        if !self.mapping.contains(&sp) {
            self.mapping = mapping(sp).unwrap_or(sp..sp);
        }
        let entries = self.stacks.get_mut(&self.mapping.start)?;
        let mut left = None;
        while entries.last().is_some_and(|entry| entry.slot < sp) {
            left = entries.pop();
        }
        left
    }

    /// A coroutine's stack can be made anew while another runs.
    fn forget_overwritten(&mut self, read: &impl Fn(u64) -> Option<u64>) {
        if let Some(entries) = self.stacks.get_mut(&self.mapping.start) {
            entries.retain(|entry| match entry.what {
                What::Called { return_address } => read(entry.slot) == Some(return_address),
                What::Interrupted { .. } => true,
            });
        }
    }

    fn push(&mut self, slot: u64, what: What) {
        let entries = self.stacks.entry(self.mapping.start).or_default();
        entries.push(Entry { slot, what });
    }
}
