//! `.eh_frame` and `.debug_frame` to a [`Table`], in ordinary code: gimli parses, and each
//! instruction changes a rule.
#![forbid(unsafe_code)]

mod entries;
mod expression;
mod gaps;
mod state;

use std::ops::Range;

use gimli::{
    CallFrameInstruction, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice, NativeEndian,
    UnwindSection,
};

use self::entries::{Entries, Function};
use self::gaps::{Part, undescribed};
use self::state::State;
use super::rule::{Kind, Rule};
use super::table::{Builder, Table};
use crate::sys::modules::Module;

type Bytes<'m> = EndianSlice<'m, NativeEndian>;
type Common<'m> = CommonInformationEntry<Bytes<'m>>;
type Instruction = CallFrameInstruction<usize>;

/// States that `DW_CFA_remember_state` can put aside; compilers nest them two or three deep.
const MOST_REMEMBERED: usize = 64;

/// How many times the length of its sections the entries that are gone through may take together.
/// Each byte is of one entry, and entries of `.debug_frame` are gone through for each part that is
/// missing; where more is named, entries lie over each other, as in no linker's output, and would
/// take the square of their length.
const MOST_PASSES: usize = 4;

/// After so many functions there may be something else to do.
const FUNCTIONS_AT_A_TIME: usize = 64;

/// The rules of all code of a module, by offset from its beginning, without what cannot be made
/// sense of. What its `.eh_frame` leaves out is taken from the `.debug_frame` of its file, which is
/// empty where there is none.
///
/// `meanwhile` is called now and then: a large module takes a tenth of a second.
pub(super) fn compile(module: &Module, debug_frame: &[u8], meanwhile: &mut dyn FnMut()) -> Table {
    let mut eh_frame = module
        .eh_frame
        .as_ref()
        .map(|section| Entries::of_eh_frame(module, section));
    let mut debug_frame = Entries::of_debug_frame(debug_frame);
    let offsets = eh_frame
        .as_mut()
        .map_or_else(Vec::new, |entries| entries.offsets(module));
    let parts = match debug_frame.bytes {
        [] => Vec::new(),
        _ => undescribed(
            functions_in_code(module, &mut debug_frame),
            eh_frame
                .as_mut()
                .map_or_else(Vec::new, |entries| ranges(entries, &offsets)),
        ),
    };
    let signal_return = module
        .signal_return
        .map(|address| address.wrapping_sub(module.range.start));
    let mut compiler = Compiler {
        beginning: module.range.start.wrapping_sub(module.bias),
        // Usual code has some eleven rows a function, a few of them the same.
        builder: Builder::with_capacity((offsets.len() + parts.len()) * 11),
        remembered: Vec::new(),
        end: 0,
        signal_return,
        left: MOST_PASSES
            * (eh_frame.as_ref().map_or(0, |entries| entries.bytes.len())
                + debug_frame.bytes.len()),
    };
    // What lies elsewhere nobody looks up, and an index that reached that far would take memory.
    let module_places = 0..module.range.end.saturating_sub(module.range.start);
    let mut parts = parts.into_iter().peekable();
    if let Some(entries) = &mut eh_frame {
        for (number, (address, offset)) in offsets.into_iter().enumerate() {
            if number % FUNCTIONS_AT_A_TIME == 0 {
                meanwhile();
            }
            while let Some(part) = parts.next_if(|part| part.range.start < address) {
                compiler.add_part(&mut debug_frame, part);
            }
            // What cannot be read leaves its code without a rule; other functions are not to
            // suffer.
            let _ = compiler.add_function(entries, offset, module_places.clone());
        }
    }
    for part in parts {
        compiler.add_part(&mut debug_frame, part);
    }
    compiler.end_of_function(u64::MAX);
    compiler.builder.finish()
}

/// The functions of a `.debug_frame`, by link-time address. Of those that a linker has left out the
/// entries can still be there, with 0 for an address, and the length that they had.
fn functions_in_code<'m>(
    module: &Module,
    entries: &mut Entries<'m, DebugFrame<Bytes<'m>>>,
) -> Vec<Part> {
    let mut functions = Vec::new();
    entries.for_each(|function| {
        let Some(range) = range(&function) else {
            return;
        };
        let address = range.start.wrapping_add(module.bias);
        let is_code = module.object.code.iter().any(|segment| {
            (segment.start..segment.end).contains(&address)
                && range.end - range.start <= segment.end - address
        });
        if range.start != 0 && is_code {
            let offset = function.offset();
            functions.push(Part { range, offset });
        }
    });
    functions
}

/// The functions at these offsets, by link-time address.
fn ranges<'m>(
    entries: &mut Entries<'m, EhFrame<Bytes<'m>>>,
    offsets: &[(u64, usize)],
) -> Vec<Range<u64>> {
    let functions = offsets.iter().map(|&(_, offset)| entries.function(offset));
    functions.filter_map(|f| range(&f.ok()?)).collect()
}

fn range(function: &Function<'_>) -> Option<Range<u64>> {
    let begin = function.initial_address();
    Some(begin..begin.checked_add(function.len())?)
}

struct Compiler {
    /// The link-time address that places count from.
    beginning: u64,
    builder: Builder,
    remembered: Vec<Rule>,
    /// Where the last function ends.
    end: u64,
    /// Where handlers return to, if it is here.
    signal_return: Option<u64>,
    /// Bytes of entries that may still be gone through.
    left: usize,
}

impl Compiler {
    fn add_part<'m>(&mut self, entries: &mut Entries<'m, DebugFrame<Bytes<'m>>>, part: Part) {
        let begin = part.range.start.wrapping_sub(self.beginning);
        let len = part.range.end - part.range.start;
        if let Some(end) = begin.checked_add(len) {
            let _ = self.add_function(entries, part.offset, begin..end);
        }
    }

    /// Adds the part of a function that lies within a range of places.
    fn add_function<'m, S: UnwindSection<Bytes<'m>>>(
        &mut self,
        entries: &mut Entries<'m, S>,
        offset: usize,
        within: Range<u64>,
    ) -> gimli::Result<()> {
        let function = entries.function(offset)?;
        let entry = function.cie();
        let common_len = if entries.is_known(entry) {
            0
        } else {
            entry.entry_len()
        };
        let Some(left) = self
            .left
            .checked_sub(function.entry_len().saturating_add(common_len))
        else {
            self.left = 0;
            return Ok(());
        };
        self.left = left;
        let initial = entries.initial_rule(entry);
        let begin = function.initial_address().wrapping_sub(self.beginning);
        let Some(end) = begin.checked_add(function.len()) else {
            return Ok(());
        };
        let end = end.min(within.end);
        if begin >= end {
            return Ok(());
        }
        if begin.max(within.start) > self.end {
            self.end_of_function(begin.max(within.start));
        }
        // Before that, another function holds.
        let floor = self.end.max(within.start);
        let mut state = State::at_beginning(initial, entry);
        let code_factor = entry.code_alignment_factor();
        self.remembered.clear();
        let mut place = begin;
        let complex = entries.complex;
        let push = |builder: &mut Builder, place, state: &State| {
            let rule = state.finished();
            let is_complex = rule.kind == Kind::Complex;
            builder.push(place, if is_complex { complex } else { rule });
        };
        let mut instructions = function.instructions(&entries.section, &entries.bases);
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
                    state.apply(&other, entries.bytes);
                    continue;
                }
            };
            if next <= place || next >= end {
                if next >= end {
                    break;
                }
                continue;
            }
            if next > floor {
                push(&mut self.builder, place.max(floor), &state);
            }
            place = next;
        }
        if place.max(floor) < end {
            push(&mut self.builder, place.max(floor), &state);
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
        builder.push(begin, Rule::SIGNAL);
        builder.push((place + BYTES).min(gap.end), Rule::NOTHING);
    }
}
