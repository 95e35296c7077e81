//! What the registers have at the places of a function.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::instruction::{Effect, Flow, Instruction, MOST_BYTES, Operand, RSP, decode};

/// Longer functions are not looked through.
const MOST_CODE: u64 = 64 * 1024;
/// Nor such that jumps lead to more places of.
const MOST_TARGETS: usize = 384;
/// Each pass over a function carries values along the jumps that lead back. Few need more than
/// three.
const MOST_PASSES: usize = 16;

/// What a register has at a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Value {
    Constant(u32),
    /// What another register has at the instruction that copies it, so many bytes into the
    /// function.
    Moved {
        from: u8,
        offset: u32,
    },
    /// What lies so many bytes above the stack pointer, unless something has been written there
    /// since the register took it from there.
    Stack(i32),
    /// What it had when the function was called.
    Given,
    /// One or another.
    Unknown,
}

/// A place that a jump leads to.
#[derive(Clone, Copy)]
struct Target {
    offset: u32,
    /// What the register in question has there, as far as is known yet; `None` where nothing has
    /// come there yet.
    value: Option<Value>,
}

/// The code of one function, from its first instruction to its last.
pub(super) struct Function<'r> {
    range: Range<u64>,
    /// Copies code from an address.
    read: &'r dyn Fn(u64, &mut [u8]) -> Option<()>,
    targets: [Target; MOST_TARGETS],
    /// How many of them there are, ascending.
    count: usize,
}

impl<'r> Function<'r> {
    /// `None` where the code cannot be followed: because it is long, cannot be read, has bytes that
    /// are no instruction, or jumps to where a register says. *Async-signal-safe* if `read` is.
    ///
    /// Takes 10 KiB of stack.
    pub(super) fn new(
        range: Range<u64>,
        read: &'r dyn Fn(u64, &mut [u8]) -> Option<()>,
    ) -> Option<Self> {
        (range.end.checked_sub(range.start)? <= MOST_CODE).then_some(())?;
        let none = Target {
            offset: 0,
            value: None,
        };
        let mut function = Self {
            range,
            read,
            targets: [none; MOST_TARGETS],
            count: 0,
        };
        function.find_targets()?;
        Some(function)
    }

    /// The address of a place.
    pub(super) fn address(&self, offset: u32) -> u64 {
        self.range.start.wrapping_add(offset.into())
    }

    fn find_targets(&mut self) -> Option<()> {
        let mut walk = Walk::new(self);
        while let Some(step) = walk.next()? {
            let target = match step.instruction.flow {
                Flow::Branch(_) | Flow::Jump(_) => step.target(),
                Flow::Computed => return None,
                _ => continue,
            };
            let size = self.range.end - self.range.start;
            let Some(offset) = target.filter(|&offset| u64::from(offset) < size) else {
                continue;
            };
            // A loop's beginning has many, one after the other.
            let last = self
                .count
                .checked_sub(1)
                .and_then(|last| self.targets.get(last));
            if last.is_some_and(|last| last.offset == offset) {
                continue;
            }
            let target = self.targets.get_mut(self.count)?;
            target.offset = offset;
            self.count += 1;
        }
        let targets = self.targets.get_mut(..self.count)?;
        targets.sort_unstable_by_key(|target| target.offset);
        let mut kept = 0_usize;
        for i in 0..self.count {
            let target = *self.targets.get(i)?;
            let last = kept.checked_sub(1).and_then(|last| self.targets.get(last));
            if last.is_none_or(|last| last.offset != target.offset) {
                *self.targets.get_mut(kept)? = target;
                kept += 1;
            }
        }
        self.count = kept;
        Some(())
    }

    /// What a register has before the instruction at an address, whichever way that is reached;
    /// `None` where the function has no instruction there, or the code cannot be
    /// followed. *Async-signal-safe.*
    ///
    /// What neither falls through nor is jumped to is reached from nobody knows where: a landing
    /// pad is. A part of the function that lies elsewhere may lead back, too; it is taken for
    /// granted that the value is the same there.
    pub(super) fn value_before(&mut self, place: u64, register: u8) -> Option<Value> {
        for target in &mut self.targets {
            target.value = None;
        }
        for _ in 0..MOST_PASSES {
            let (value, has_changed) = self.pass(place, register)?;
            if !has_changed {
                return value;
            }
        }
        None
    }

    /// Carries the values once through the function: the one at `place`, and whether a jump has
    /// carried a new one.
    fn pass(&mut self, place: u64, register: u8) -> Option<(Option<Value>, bool)> {
        let (mut found, mut has_changed) = (None, false);
        let mut value = Some(Value::Given);
        let mut falls_through = true;
        let mut next_target = 0;
        let mut walk = Walk::new(self);
        while let Some(step) = walk.next()? {
            let mut is_target = false;
            while let Some(target) = self.targets.get_mut(..self.count)?.get_mut(next_target) {
                if target.offset >= step.end {
                    break;
                }
                // A jump may leave `lock` out.
                let is_past_lock = step.is_locked && target.offset == step.offset + 1;
                (target.offset == step.offset || is_past_lock).then_some(())?;
                if falls_through || is_target {
                    has_changed |= target.join(value);
                }
                value = target.value;
                is_target = true;
                next_target += 1;
            }
            if !falls_through && !is_target {
                if step.is_padding {
                    continue;
                }
                value = Some(Value::Unknown);
            }
            if self.address(step.offset) == place {
                found = value;
            }
            // Whatever has not come here yet goes no further.
            value = value.map(|value| step.value_after(register, value));
            let flow = step.instruction.flow;
            if let (Flow::Branch(_) | Flow::Jump(_), Some(offset)) = (flow, step.target()) {
                let targets = self.targets.get_mut(..self.count)?;
                if let Ok(i) = targets.binary_search_by_key(&offset, |target| target.offset) {
                    has_changed |= targets.get_mut(i)?.join(value);
                }
            }
            falls_through = !matches!(flow, Flow::Jump(_) | Flow::Computed | Flow::End);
        }
        Some((found, has_changed))
    }
}

impl Target {
    /// Takes in what comes there; whether that changes what is there.
    fn join(&mut self, value: Option<Value>) -> bool {
        let Some(value) = value else { return false };
        let joined = match self.value {
            None => value,
            Some(own) if own == value => value,
            Some(_) => Value::Unknown,
        };
        self.value.replace(joined) != Some(joined)
    }
}

/// An instruction in its place.
struct Step {
    offset: u32,
    /// Where the next one begins.
    end: u32,
    is_locked: bool,
    /// What compilers put before the beginning of a loop, where nothing comes by.
    is_padding: bool,
    instruction: Instruction,
}

impl Step {
    /// Where a jump leads, if that is not before the function.
    fn target(&self) -> Option<u32> {
        match self.instruction.flow {
            Flow::Branch(distance) | Flow::Jump(distance) => self.end.checked_add_signed(distance),
            _ => None,
        }
    }

    fn value_after(&self, register: u8, before: Value) -> Value {
        match self.instruction.effect {
            Effect::Sets {
                register: set,
                operand,
            } if set == register => match operand {
                Operand::Constant(value) => Value::Constant(value),
                Operand::Register(from) => Value::Moved {
                    from,
                    offset: self.offset,
                },
                Operand::Stack(offset) => Value::Stack(offset),
            },
            Effect::Changes(registers) if registers.has(register) => Value::Unknown,
            _ => match before {
                Value::Stack(_) if self.moves_sp() => Value::Unknown,
                _ => before,
            },
        }
    }

    fn moves_sp(&self) -> bool {
        match self.instruction.effect {
            Effect::Sets { register, .. } => register == RSP,
            Effect::Changes(registers) => registers.has(RSP),
        }
    }
}

/// The instructions of a function, one after the other.
struct Walk<'r> {
    range: Range<u64>,
    read: &'r dyn Fn(u64, &mut [u8]) -> Option<()>,
    /// Bytes of the function that are behind.
    done: u32,
    copy: [u8; Walk::CHUNK],
    /// What the copy is of.
    copied: Range<u32>,
}

impl<'r> Walk<'r> {
    const CHUNK: usize = 512;

    fn new(function: &Function<'r>) -> Self {
        Self {
            range: function.range.clone(),
            read: function.read,
            done: 0,
            copy: [0; Self::CHUNK],
            copied: 0..0,
        }
    }

    /// The next instruction; `Some(None)` at the end, `None` where what stands there is no
    /// instruction.
    fn next(&mut self) -> Option<Option<Step>> {
        let offset = self.done;
        let left = u32::try_from(self.range.end - self.range.start).ok()? - offset;
        if left == 0 {
            return Some(None);
        }
        if self.copied.end - offset < left.min(MOST_BYTES as u32) {
            let length = left.min(Self::CHUNK as u32);
            let place = self.range.start + u64::from(offset);
            (self.read)(place, self.copy.get_mut(..length as usize)?)?;
            self.copied = offset..offset + length;
        }
        let at = |offset: u32| (offset - self.copied.start) as usize;
        let code = self.copy.get(at(offset)..at(self.copied.end))?;
        let instruction = decode(code)?;
        self.done += instruction.length as u32;
        Some(Some(Step {
            offset,
            end: self.done,
            is_locked: code.first() == Some(&0xf0),
            is_padding: is_padding(code),
            instruction,
        }))
    }
}

/// Whether code begins with an instruction that does nothing, in the forms of assemblers.
fn is_padding(mut code: &[u8]) -> bool {
    while let [0x66 | 0x2e, rest @ ..] = code {
        code = rest;
    }
    matches!(code, [0x90, ..] | [0x0f, 0x1f, ..])
}
