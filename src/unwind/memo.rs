//! Steps that were taken before.
//!
//! From a caller's frame, a step of the unwinder is a function of the code address, the stack and frame pointers, and the
//! words of the stack that it reads. Samples of one thread share most of their outer frames, so the memo keeps the last step
//! from each place of the stack and what it read: where all of that is the same, so is the result.

use std::io;

use crate::sys::memory::{Pages, StackReader};

/// Where unwinding stands, in a caller's frame.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct State {
    /// The return address.
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
}

/// Most words that a step reads to be kept: a return address and a frame pointer.
const MAX_READS: usize = 2;

/// Words that a step read.
#[derive(Debug, Default)]
pub(super) struct Reads {
    words: [(u64, u64); MAX_READS],
    count: usize,
}

impl Reads {
    /// Notes a word and its address. *Async-signal-safe.*
    pub(super) fn push(&mut self, address: u64, value: u64) {
        if let Some(word) = self.words.get_mut(self.count) {
            *word = (address, value);
        }
        // One too many says that the step cannot be kept.
        self.count += 1;
    }
}

/// A step, in one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Step {
    from: State,
    fp_after: u64,
    /// What was read; a single word stands here twice.
    values: [u64; MAX_READS],
    /// Where it was read: in words above the stack pointer, and below where that moved to.
    offsets: [u16; MAX_READS],
    /// How far the stack pointer moved up, in words; 0 in an empty step.
    advance: u16,
    /// Which of the values is the new return address.
    pc_index: u16,
    epoch: u32,
}

const _: () = assert!(size_of::<Step>() == 64);

const STEPS: usize = 512;

/// The last step from each place of the stack, found by the stack pointer.
#[derive(Debug)]
pub(super) struct Memo {
    /// `STEPS` steps; all zeros is an empty step.
    pages: Pages,
}

// SAFETY: memory that only `&mut self` writes.
unsafe impl Sync for Memo {}

impl Memo {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            pages: Pages::map(STEPS * size_of::<Step>())?,
        })
    }

    /// Forgets all steps and gives their memory back.
    pub(super) fn release_memory(&mut self) {
        // SAFETY: `&mut self` says that nobody else looks.
        unsafe { self.pages.discard() };
    }

    fn steps(&self) -> &[Step; STEPS] {
        // SAFETY: the pages are as large, aligned, and zeroed by the kernel, which is a valid step; `&self` says that nobody
        // writes.
        unsafe { &*self.pages.as_ptr().cast() }
    }

    fn steps_mut(&mut self) -> &mut [Step; STEPS] {
        // SAFETY: as above; `&mut self` says that nobody else looks.
        unsafe { &mut *self.pages.as_ptr().cast() }
    }

    fn index(sp: u64) -> usize {
        // Stack pointers at calls are multiples of 16 on both architectures, as a rule.
        (sp >> 4) as usize % STEPS
    }

    /// The state after the step from `from`, if it was taken before in this epoch and would read the same words now.
    ///
    /// *Async-signal-safe.*
    #[inline(always)] // A frame takes a few ns this way, twice as many with the state passed through memory.
    pub(super) fn recall(&self, from: State, epoch: u32, stack: &StackReader<'_>) -> Option<State> {
        let step = &self.steps()[Self::index(from.sp)];
        if step.from != from || step.epoch != epoch {
            return None;
        }
        // All that was read lies between the two stack pointers, so one look at the bounds will do.
        let words = stack.words(from.sp, step.advance.into())?;
        for (offset, value) in step.offsets.into_iter().zip(step.values) {
            if words.read(offset.into())? != value {
                return None;
            }
        }
        Some(State {
            pc: step.values[usize::from(step.pc_index) % MAX_READS],
            sp: from.sp.wrapping_add(u64::from(step.advance) * 8),
            fp: step.fp_after,
        })
    }

    /// Keeps a step, if it is one that can be kept. *Async-signal-safe.*
    pub(super) fn keep(&mut self, from: State, to: State, reads: &Reads, epoch: u32) {
        if let Some(step) = Step::new(from, to, reads, epoch) {
            self.steps_mut()[Self::index(from.sp)] = step;
        }
    }
}

impl Step {
    fn new(from: State, to: State, reads: &Reads, epoch: u32) -> Option<Self> {
        let words = reads.words.get(..reads.count)?;
        let advance = words_above(from.sp, to.sp)?;
        let mut step = Self {
            from,
            fp_after: to.fp,
            advance,
            pc_index: words.iter().position(|&(_, value)| value == to.pc)? as u16,
            epoch,
            ..Self::default()
        };
        for (i, &(address, value)) in words.iter().cycle().take(MAX_READS).enumerate() {
            let offset = words_above(from.sp, address)?;
            if offset >= advance {
                return None;
            }
            *step.offsets.get_mut(i)? = offset;
            *step.values.get_mut(i)? = value;
        }
        Some(step)
    }
}

/// How many whole words `address` lies above `sp`.
fn words_above(sp: u64, address: u64) -> Option<u16> {
    let bytes = address.checked_sub(sp)?;
    match bytes.is_multiple_of(8) {
        true => u16::try_from(bytes / 8).ok(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory::Window;

    #[test]
    fn a_step_is_recalled_while_it_would_read_the_same() {
        let mut words = [7_u64, 0x1234, 0x5678, 9];
        let sp = words.as_ptr() as u64;
        let from = State {
            pc: 0x1000,
            sp,
            fp: 5,
        };
        let to = State {
            pc: 0x5678,
            sp: sp + 24,
            fp: 0x1234,
        };
        let mut reads = Reads::default();
        reads.push(sp + 8, 0x1234);
        reads.push(sp + 16, 0x5678);
        let mut memo = Memo::new().unwrap();
        let recall = |memo: &Memo, from, epoch| {
            let mut window = Window::new();
            // SAFETY: the words lie on this thread's stack.
            let stack = unsafe { StackReader::new(sp, sp + 32, sp..sp + 32, 0, &mut window) };
            memo.recall(from, epoch, &stack)
        };
        assert_eq!(recall(&memo, from, 1), None);
        memo.keep(from, to, &reads, 1);
        assert_eq!(recall(&memo, from, 1), Some(to));
        assert_eq!(recall(&memo, from, 2), None, "other modules");
        assert_eq!(recall(&memo, State { fp: 6, ..from }, 1), None);
        assert_eq!(recall(&memo, State { pc: 0x1001, ..from }, 1), None);
        words[2] = 0x9999;
        std::hint::black_box(&mut words);
        assert_eq!(recall(&memo, from, 1), None, "another caller");
    }

    #[test]
    fn what_does_not_fit_is_not_kept() {
        let from = State {
            pc: 1,
            sp: 0x1000,
            fp: 0,
        };
        let step = |to_sp: u64, reads: &[(u64, u64)]| {
            let mut noted = Reads::default();
            reads.iter().for_each(|&(a, v)| noted.push(a, v));
            let to = State {
                pc: 2,
                sp: to_sp,
                fp: 0,
            };
            Step::new(from, to, &noted, 1).is_some()
        };
        assert!(step(0x1010, &[(0x1008, 2)]));
        assert!(!step(0x1010, &[]), "the new pc was not read");
        assert!(!step(0x1010, &[(0x1008, 3)]), "nor here");
        assert!(!step(0xff0, &[(0x1008, 2)]), "the stack pointer went down");
        assert!(!step(0x1000 + 8 * 65536, &[(0x1008, 2)]), "too far");
        assert!(!step(0x1010, &[(0x1010, 2)]), "beyond where it moved to");
        assert!(!step(0x1010, &[(0xff8, 2)]), "below where it was");
        assert!(!step(0x1000, &[(0x1000, 2)]), "it did not move");
        assert!(
            !step(0x1010, &[(0x1000, 2), (0x1008, 2), (0x1010, 2)]),
            "too many"
        );
    }
}
