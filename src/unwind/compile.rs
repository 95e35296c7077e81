//! `.eh_frame` to a [`Table`], in ordinary code: gimli parses, and each instruction changes a rule.
#![forbid(unsafe_code)]

use std::ops::Range;

use gimli::{
    BaseAddresses, CallFrameInstruction, CommonInformationEntry, EhFrame, EhFrameHdr,
    EhFrameOffset, EndianSlice, NativeEndian, Operation, Reader as _, UnwindExpression,
    UnwindSection as _,
};
use hashbrown::HashMap;

use super::rule::{Kind, Place, Rule};
use super::table::{Builder, Table};
use crate::sys::arch::{CALLEE_SAVED, FP, REGISTERS, RETURN_ADDRESS, SP};
use crate::sys::modules::Module;

type Bytes<'m> = EndianSlice<'m, NativeEndian>;
type Entry<'m> = CommonInformationEntry<Bytes<'m>>;
type Instruction = CallFrameInstruction<usize>;

/// States that `DW_CFA_remember_state` can put aside; compilers nest them two or three deep.
const MOST_REMEMBERED: usize = 64;

/// The rules of all code of a module, by offset from its beginning; without those of its `.eh_frame` where it has none, and without
/// what cannot be made sense of.
pub(super) fn compile(module: &Module) -> Table {
    let signal_return = module
        .signal_return
        .map(|address| address.wrapping_sub(module.range.start));
    let Some(eh_frame) = &module.eh_frame else {
        let mut builder = Builder::default();
        push_gap(&mut builder, 0..u64::MAX, signal_return);
        return builder.finish();
    };
    let beginning = module.range.start.wrapping_sub(module.bias);
    let mut section = EhFrame::new(&eh_frame.bytes, NativeEndian);
    section.set_address_size(8);
    section.set_vendor(gimli::Vendor::AArch64);
    let mut bases = BaseAddresses::default().set_eh_frame(eh_frame.address);
    if let Some(hdr) = &module.eh_frame_hdr {
        bases = bases.set_eh_frame_hdr(hdr.address);
    }
    let offsets = function_offsets(module, &section, &bases);
    let mut compiler = Compiler {
        section,
        bases,
        beginning,
        entries: HashMap::new(),
        // Usual code has some eleven rows a function, a few of them the same.
        builder: Builder::with_capacity(offsets.len() * 11),
        remembered: Vec::new(),
        end: 0,
        signal_return,
    };
    for (_, offset) in offsets {
        // What cannot be read leaves its code without a rule; other functions are not to suffer.
        let _ = compiler.add_function(offset);
    }
    compiler.end_of_function(u64::MAX);
    compiler.builder.finish()
}

/// Where the frame description entries lie in the section, in the order of the addresses that they begin at: from the search
/// table, or else from the section itself.
fn function_offsets(
    module: &Module,
    section: &EhFrame<Bytes<'_>>,
    bases: &BaseAddresses,
) -> Vec<(u64, usize)> {
    let eh_frame = bases.eh_frame.section.unwrap_or(0);
    let mut offsets: Vec<(u64, usize)> = Vec::new();
    if let Some(hdr) = &module.eh_frame_hdr
        && let Ok(parsed) = EhFrameHdr::new(&hdr.bytes, NativeEndian).parse(bases, 8)
        && let Some(table) = parsed.table()
    {
        let mut entries = table.iter(bases);
        while let Ok(Some((gimli::Pointer::Direct(address), gimli::Pointer::Direct(entry)))) =
            entries.next()
        {
            let offset = usize::try_from(entry.wrapping_sub(eh_frame)).unwrap_or(usize::MAX);
            offsets.push((address, offset));
        }
    }
    if offsets.is_empty() {
        let mut entries = section.entries(bases);
        let mut known = HashMap::new();
        while let Ok(Some(entry)) = entries.next() {
            if let gimli::CieOrFde::Fde(partial) = entry
                && let Ok(function) = partial.parse(|section, bases, offset| {
                    cached(&mut known, offset, || {
                        section.cie_from_offset(bases, offset)
                    })
                })
            {
                offsets.push((function.initial_address(), function.offset()));
            }
        }
    }
    offsets.sort_unstable();
    offsets
}

fn cached<'m>(
    known: &mut HashMap<usize, Entry<'m>>,
    offset: EhFrameOffset,
    parse: impl FnOnce() -> gimli::Result<Entry<'m>>,
) -> gimli::Result<Entry<'m>> {
    if let Some(entry) = known.get(&offset.0) {
        return Ok(entry.clone());
    }
    let entry = parse()?;
    known.insert(offset.0, entry.clone());
    Ok(entry)
}

struct Compiler<'m> {
    section: EhFrame<Bytes<'m>>,
    bases: BaseAddresses,
    /// The link-time address that places count from.
    beginning: u64,
    /// Common information entries that were met, each with the rule that its functions begin with.
    entries: HashMap<usize, (Entry<'m>, Option<Rule>)>,
    builder: Builder,
    remembered: Vec<Rule>,
    /// Where the last function ends.
    end: u64,
    /// Where handlers return to, if it is here.
    signal_return: Option<u64>,
}

impl<'m> Compiler<'m> {
    fn add_function(&mut self, offset: usize) -> gimli::Result<()> {
        let Self {
            section,
            bases,
            entries,
            ..
        } = self;
        let function =
            section.fde_from_offset(bases, EhFrameOffset(offset), |section, bases, at| {
                if let Some((entry, _)) = entries.get(&at.0) {
                    return Ok(entry.clone());
                }
                let entry = section.cie_from_offset(bases, at)?;
                entries.insert(at.0, (entry.clone(), None));
                Ok(entry)
            })?;
        let entry = function.cie();
        let initial = match entries.get(&entry.offset()) {
            Some((_, Some(rule))) => *rule,
            _ => {
                let rule = initial_rule(entry, section, bases);
                entries.insert(entry.offset(), (entry.clone(), Some(rule)));
                rule
            }
        };
        let begin = function.initial_address().wrapping_sub(self.beginning);
        let Some(end) = begin.checked_add(function.len()) else {
            return Ok(());
        };
        if begin > self.end {
            self.end_of_function(begin);
        }
        let mut state = State {
            rule: initial,
            initial,
            code_factor: entry.code_alignment_factor(),
            data_factor: entry.data_alignment_factor(),
            is_signal: entry.is_signal_trampoline(),
            is_leaving: false,
        };
        self.remembered.clear();
        let mut place = begin;
        let mut instructions = function.instructions(&self.section, &self.bases);
        loop {
            let instruction = match instructions.next() {
                Ok(Some(instruction)) => instruction,
                Ok(None) => break,
                Err(_) => {
                    // From here on nothing is known.
                    state.rule = Rule::COMPLEX;
                    state.is_signal = false;
                    break;
                }
            };
            let next = match instruction {
                Instruction::SetLoc { address } => address.wrapping_sub(self.beginning),
                Instruction::AdvanceLoc { delta } => {
                    place.saturating_add(u64::from(delta).saturating_mul(state.code_factor))
                }
                Instruction::RememberState => {
                    if self.remembered.len() == MOST_REMEMBERED {
                        state.rule = Rule::COMPLEX;
                        break;
                    }
                    self.remembered.push(state.rule);
                    continue;
                }
                Instruction::RestoreState => {
                    match self.remembered.pop() {
                        Some(rule) => state.rule = rule,
                        None => {
                            state.rule = Rule::COMPLEX;
                            break;
                        }
                    }
                    continue;
                }
                other => {
                    state.apply(&other, &self.section);
                    continue;
                }
            };
            if next <= place || next >= end {
                if next >= end {
                    break;
                }
                continue;
            }
            if place >= self.end {
                self.builder.push(place, state.finished());
            }
            place = next;
        }
        if place < end && place >= self.end {
            self.builder.push(place, state.finished());
        }
        self.end = self.end.max(end);
        Ok(())
    }

    /// Beyond the last function there is nothing, until the `next` one begins.
    fn end_of_function(&mut self, next: u64) {
        push_gap(&mut self.builder, self.end..next, self.signal_return);
    }
}

/// Says that there is no unwind data in a range, but for where handlers return to.
fn push_gap(builder: &mut Builder, gap: Range<u64>, signal_return: Option<u64>) {
    /// Of the two instructions that are there.
    const BYTES: u64 = 8;
    builder.push(gap.start, Rule::NOTHING);
    if let Some(place) = signal_return
        && gap.contains(&place)
    {
        // A handler's return address is looked up as any other is, by the byte before it.
        let begin = place.saturating_sub(1).max(gap.start);
        builder.push(begin, Rule::of(Kind::Signal));
        builder.push((place + BYTES).min(gap.end), Rule::NOTHING);
    }
}

/// What the instructions of a common information entry come to.
fn initial_rule(entry: &Entry<'_>, section: &EhFrame<Bytes<'_>>, bases: &BaseAddresses) -> Rule {
    let mut state = State {
        rule: Rule::of(Kind::Complex),
        initial: Rule::of(Kind::Complex),
        code_factor: entry.code_alignment_factor(),
        data_factor: entry.data_alignment_factor(),
        is_signal: false,
        is_leaving: false,
    };
    if entry.return_address_register().0 != RETURN_ADDRESS {
        state.rule.return_address = Place::COMPLEX;
        return state.rule;
    }
    let mut instructions = entry.instructions(section, bases);
    loop {
        match instructions.next() {
            Ok(Some(instruction)) => state.apply(&instruction, section),
            Ok(None) => return state.rule,
            Err(_) => return Rule::COMPLEX,
        }
    }
}

/// Where the instructions of a function stand.
struct State {
    /// Not finished: its places may be complex, each by itself.
    rule: Rule,
    initial: Rule,
    code_factor: u64,
    data_factor: i64,
    is_signal: bool,
    /// The caller's stack pointer is not the CFA, but what the code will load. From there to the function's end it is not known
    /// which of the two stacks it is on.
    is_leaving: bool,
}

/// The place of a return address that the kernel has put into a signal's frame, which an expression says.
const IN_SIGNAL_FRAME: Place = Place::COMPLEX;

impl State {
    fn apply(&mut self, instruction: &Instruction, section: &EhFrame<Bytes<'_>>) {
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
                Some((kind, register, offset)) => {
                    self.rule.kind = kind;
                    self.rule.cfa_register = register;
                    self.rule.cfa_offset = offset;
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
            // How many bytes of arguments lie there, and whether the return address is signed, which is taken off anyhow.
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
    fn finished(&self) -> Rule {
        let rule = self.rule;
        // What the kernel made for a signal has registers where it puts them; a signal's frame that a runtime made for itself is
        // described like any other.
        if self.is_signal
            && (rule.return_address == IN_SIGNAL_FRAME || cfg!(target_arch = "aarch64"))
        {
            return Rule::of(Kind::Signal);
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

/// An expression that is a register and an offset: the register, and the offset in bytes.
fn from_register(
    expression: UnwindExpression<usize>,
    section: &EhFrame<Bytes<'_>>,
) -> Option<(u16, i64)> {
    let expression = expression.get(section).ok()?;
    let mut operations = expression.operations(encoding());
    let Ok(Some(Operation::RegisterOffset {
        register, offset, ..
    })) = operations.next()
    else {
        return None;
    };
    matches!(operations.next(), Ok(None)).then_some((register.0, offset))
}

/// The CFA that an expression computes, for those that compilers and linkers write.
fn cfa_of(
    expression: UnwindExpression<usize>,
    section: &EhFrame<Bytes<'_>>,
) -> Option<(Kind, u8, i32)> {
    let expression = expression.get(section).ok()?;
    let bytes = expression.0.to_slice().ok()?;
    // What linkers write for the procedure linkage table: breg7 (rsp) 8, breg16 (rip) 0, lit15, and, lit<n>, ge, lit3, shl, plus.
    if cfg!(target_arch = "x86_64")
        && let [
            0x77,
            0x08,
            0x80,
            0x00,
            0x3f,
            0x1a,
            place @ 0x30..=0x3f,
            0x2a,
            0x33,
            0x24,
            0x22,
        ] = *bytes
    {
        return Some((Kind::LinkageTable, place - 0x30, 8));
    }
    let mut operations = expression.operations(encoding());
    let Ok(Some(Operation::RegisterOffset {
        register, offset, ..
    })) = operations.next()
    else {
        return None;
    };
    let register = u8::try_from(register.0).ok()?;
    let offset = i32::try_from(offset).ok()?;
    if usize::from(register) >= REGISTERS {
        return None;
    }
    match operations.next() {
        Ok(None) => Some((Kind::Register, register, offset)),
        Ok(Some(Operation::Deref { size: 8, .. })) => {
            matches!(operations.next(), Ok(None)).then_some((Kind::Loaded, register, offset))
        }
        _ => None,
    }
}

fn encoding() -> gimli::Encoding {
    gimli::Encoding {
        address_size: 8,
        format: gimli::Format::Dwarf32,
        version: 4,
    }
}
