//! `.eh_frame` to a [`Table`], in ordinary code: gimli parses, and each instruction changes a rule.
#![forbid(unsafe_code)]

mod expression;
mod state;

use std::ops::Range;

use gimli::{
    BaseAddresses, CallFrameInstruction, CommonInformationEntry, EhFrame, EhFrameHdr,
    EhFrameOffset, EndianSlice, NativeEndian, UnwindSection as _,
};
use hashbrown::HashMap;

use self::state::State;
use super::rule::{Kind, Place, Rule};
use super::table::{Builder, Table};
use crate::sys::arch::RETURN_ADDRESS;
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
        bytes: &eh_frame.bytes,
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
    bytes: &'m [u8],
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
            bytes,
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
                let rule = initial_rule(entry, section, bytes, bases);
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
        let mut state = State::at_beginning(initial, entry);
        let code_factor = entry.code_alignment_factor();
        self.remembered.clear();
        let mut place = begin;
        let mut instructions = function.instructions(&self.section, &self.bases);
        loop {
            let instruction = match instructions.next() {
                Ok(Some(instruction)) => instruction,
                Ok(None) => break,
                Err(_) => {
                    state.give_up();
                    break;
                }
            };
            let next = match instruction {
                Instruction::SetLoc { address } => address.wrapping_sub(self.beginning),
                Instruction::AdvanceLoc { delta } => {
                    place.saturating_add(u64::from(delta).saturating_mul(code_factor))
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
                    state.apply(&other, self.bytes);
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
fn initial_rule(
    entry: &Entry<'_>,
    section: &EhFrame<Bytes<'_>>,
    bytes: &[u8],
    bases: &BaseAddresses,
) -> Rule {
    let mut state = State::at_beginning(Rule::COMPLEX, entry);
    if entry.return_address_register().0 != RETURN_ADDRESS {
        state.rule.return_address = Place::COMPLEX;
        return state.rule;
    }
    let mut instructions = entry.instructions(section, bases);
    loop {
        match instructions.next() {
            Ok(Some(instruction)) => state.apply(&instruction, bytes),
            Ok(None) => return state.rule,
            Err(_) => return Rule::COMPLEX,
        }
    }
}
