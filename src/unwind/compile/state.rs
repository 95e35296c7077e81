//! The instructions of a function, each of which changes a rule.
#![forbid(unsafe_code)]

use super::expression::{cfa_of, from_register};
use super::{Common, Instruction};
use crate::sys::arch::{CALLEE_SAVED, FP, REGISTERS, RETURN_ADDRESS, SP};
use crate::unwind::rule::{Kind, Place, Rule};

/// Where the instructions of a function stand.
pub(super) struct State {
    /// Not finished: its places may be complex, each by itself.
    pub(super) rule: Rule,
    initial: Rule,
    data_factor: i64,
    is_signal: bool,
    /// The caller's stack pointer is not the CFA, but what the code will load. From there to the
    /// function's end it is not known which of the two stacks it is on.
    is_leaving: bool,
}

/// The place of a return address that the kernel has put into a signal's frame, which an expression
/// says.
const IN_SIGNAL_FRAME: Place = Place::COMPLEX;

impl State {
    /// At the beginning of a function, whose rule there is `initial`.
    pub(super) fn at_beginning(initial: Rule, entry: &Common<'_>) -> Self {
        Self {
            rule: initial,
            initial,
            data_factor: entry.data_alignment_factor(),
            is_signal: entry.is_signal_trampoline(),
            is_leaving: false,
        }
    }

    /// From here on nothing is known.
    pub(super) fn give_up(&mut self) {
        self.rule = Rule::COMPLEX;
        self.is_signal = false;
    }

    /// Does what an instruction says, which may have an expression elsewhere in the `section`.
    pub(super) fn apply(&mut self, instruction: &Instruction, section: &[u8]) {
        let factor = self.data_factor;
        let signed = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
        let factored = |offset: i64| offset.checked_mul(factor).unwrap_or(i64::MAX);
        match *instruction {
            Instruction::DefCfa { register, offset } => {
                self.define(register.0, Some(signed(offset)));
            }
            Instruction::DefCfaSf {
                register,
                factored_offset,
            } => self.define(register.0, Some(factored(factored_offset))),
            Instruction::DefCfaRegister { register } => match self.rule.kind {
                Kind::Register => self.define(register.0, Some(self.rule.cfa_offset.into())),
                _ => self.define(register.0, None),
            },
            Instruction::DefCfaOffset { offset } => self.move_by(signed(offset)),
            Instruction::DefCfaOffsetSf { factored_offset } => {
                self.move_by(factored(factored_offset));
            }
            Instruction::DefCfaExpression { expression } => match cfa_of(expression, section) {
                Some(cfa) => {
                    self.rule.kind = cfa.kind;
                    self.rule.cfa_register = cfa.cfa_register;
                    self.rule.cfa_offset = cfa.cfa_offset;
                    self.rule.loaded_offset = cfa.loaded_offset;
                }
                None => self.rule.kind = Kind::Complex,
            },
            Instruction::Undefined { register } => self.put(register.0, Place::UNDEFINED, false),
            Instruction::SameValue { register } => self.put(register.0, Place::SAME, false),
            Instruction::Offset {
                register,
                factored_offset,
            } => {
                let offset = factored(signed(factored_offset));
                self.put(register.0, Place::at(offset), false);
            }
            Instruction::OffsetExtendedSf {
                register,
                factored_offset,
            } => self.put(register.0, Place::at(factored(factored_offset)), false),
            Instruction::Register {
                dest_register,
                src_register,
            } => self.put(dest_register.0, Place::in_register(src_register.0), false),
            Instruction::Expression {
                register,
                expression,
            } => match from_register(expression, section) {
                Some((base, offset)) if base == u16::from(FP) => {
                    self.put(register.0, Place::at(offset), true);
                }
                _ => self.put(register.0, Place::COMPLEX, false),
            },
            Instruction::ValOffset { register, .. }
            | Instruction::ValOffsetSf { register, .. }
            | Instruction::ValExpression { register, .. } => {
                // The stack pointer is the CFA, which is what they say of it.
                if register.0 != u16::from(SP) {
                    self.put(register.0, Place::COMPLEX, false);
                }
            }
            Instruction::Restore { register } => self.restore(register.0),
            // How many bytes of arguments lie there, and whether the return address is signed,
            // which is taken off anyhow.
            Instruction::ArgsSize { .. } | Instruction::NegateRaState | Instruction::Nop => {}
            // Where to go on, and what was put aside, is up to the caller.
            Instruction::SetLoc { .. }
            | Instruction::AdvanceLoc { .. }
            | Instruction::RememberState
            | Instruction::RestoreState => {}
        }
    }

    fn define(&mut self, register: u16, offset: Option<i64>) {
        let offset = offset.and_then(|offset| i32::try_from(offset).ok());
        match (u8::try_from(register), offset) {
            (Ok(register), Some(offset)) if usize::from(register) < REGISTERS => {
                self.rule.kind = Kind::Register;
                self.rule.cfa_register = register;
                self.rule.cfa_offset = offset;
                self.rule.loaded_offset = 0;
            }
            _ => self.rule.kind = Kind::Complex,
        }
    }

    fn move_by(&mut self, offset: i64) {
        match (self.rule.kind, i32::try_from(offset)) {
            (Kind::Register, Ok(offset)) => self.rule.cfa_offset = offset,
            _ => self.rule.kind = Kind::Complex,
        }
    }

    fn put(&mut self, register: u16, place: Place, is_from_frame_pointer: bool) {
        if register == RETURN_ADDRESS {
            self.rule.return_address = match is_from_frame_pointer {
                true => Place::COMPLEX,
                false => place,
            };
            return;
        }
        if register == u16::from(SP) && place != Place::SAME {
            self.is_leaving = true;
        }
        if let Some(index) = index_of(register)
            && let Some(saved) = self.rule.saved.get_mut(index)
        {
            // In another register: seen in no compiler's output.
            *saved = match place.register() {
                Some(_) => Place::COMPLEX,
                None => place,
            };
            let bit = 1 << index;
            match is_from_frame_pointer {
                true => self.rule.from_frame_pointer |= bit,
                false => self.rule.from_frame_pointer &= !bit,
            }
        }
    }

    fn restore(&mut self, register: u16) {
        let initial = self.initial;
        if register == RETURN_ADDRESS {
            self.rule.return_address = initial.return_address;
        } else if let Some(index) = index_of(register)
            && let Some(&place) = initial.saved.get(index)
        {
            self.put(
                register,
                place,
                initial.from_frame_pointer >> index & 1 == 1,
            );
        }
    }

    /// The rule as a row has it.
    pub(super) fn finished(&self) -> Rule {
        let rule = self.rule;
        // What the kernel made for a signal has registers where it puts them; a signal's frame that
        // a runtime made for itself is described like any other.
        if self.is_signal
            && (rule.return_address == IN_SIGNAL_FRAME || cfg!(target_arch = "aarch64"))
        {
            return Rule::SIGNAL;
        }
        if self.is_leaving {
            return Rule::of(Kind::Leaving);
        }
        if rule.return_address == Place::UNDEFINED {
            return Rule::ROOT;
        }
        let is_complex = rule.kind == Kind::Complex
            || rule.return_address == Place::COMPLEX
            || rule.saved.contains(&Place::COMPLEX);
        if is_complex {
            Rule::COMPLEX
        } else {
            rule.finished()
        }
    }
}

fn index_of(register: u16) -> Option<usize> {
    CALLEE_SAVED
        .iter()
        .position(|&saved| u16::from(saved) == register)
}
