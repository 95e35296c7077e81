//! The entries of a section of unwind data, each of which describes a function.
#![forbid(unsafe_code)]

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, EhFrameHdr, FrameDescriptionEntry, NativeEndian,
    UnwindOffset, UnwindSection,
};
use hashbrown::HashMap;

use super::state::State;
use super::{Bytes, Common};
use crate::sys::arch::RETURN_ADDRESS;
use crate::sys::modules::{Module, Section};
use crate::unwind::rule::{Place, Rule};

pub(super) type Function<'m> = FrameDescriptionEntry<Bytes<'m>>;

/// A section, and what was met of it.
pub(super) struct Entries<'m, S> {
    pub(super) section: S,
    pub(super) bytes: &'m [u8],
    pub(super) bases: BaseAddresses,
    /// Common information entries by their offsets, each with the rule that its functions begin
    /// with.
    common: HashMap<usize, (Common<'m>, Option<Rule>)>,
    /// What stands for more than a rule can hold.
    pub(super) complex: Rule,
}

impl<'m> Entries<'m, EhFrame<Bytes<'m>>> {
    pub(super) fn of_eh_frame(module: &Module, eh_frame: &'m Section) -> Self {
        let mut section = EhFrame::new(&eh_frame.bytes, NativeEndian);
        section.set_address_size(8);
        section.set_vendor(gimli::Vendor::AArch64);
        let mut bases = BaseAddresses::default().set_eh_frame(eh_frame.address);
        if let Some(hdr) = &module.eh_frame_hdr {
            bases = bases.set_eh_frame_hdr(hdr.address);
        }
        Self {
            section,
            bytes: &eh_frame.bytes,
            bases,
            common: HashMap::new(),
            complex: Rule::COMPLEX,
        }
    }

    /// Where the entries of functions lie in the section, in the order of the addresses that they
    /// begin at: from the search table, or else from the section itself.
    pub(super) fn offsets(&mut self, module: &Module) -> Vec<(u64, usize)> {
        let eh_frame = self.bases.eh_frame.section.unwrap_or(0);
        let mut offsets: Vec<(u64, usize)> = Vec::new();
        if let Some(hdr) = &module.eh_frame_hdr
            && let Ok(parsed) = EhFrameHdr::new(&hdr.bytes, NativeEndian).parse(&self.bases, 8)
            && let Some(table) = parsed.table()
        {
            let mut entries = table.iter(&self.bases);
            while let Ok(Some((gimli::Pointer::Direct(address), gimli::Pointer::Direct(entry)))) =
                entries.next()
            {
                let offset = usize::try_from(entry.wrapping_sub(eh_frame)).unwrap_or(usize::MAX);
                offsets.push((address, offset));
            }
        }
        if offsets.is_empty() {
            self.for_each(|function| {
                offsets.push((function.initial_address(), function.offset()));
            });
        }
        offsets.sort_unstable();
        offsets
    }
}

impl<'m> Entries<'m, DebugFrame<Bytes<'m>>> {
    pub(super) fn of_debug_frame(bytes: &'m [u8]) -> Self {
        let mut section = DebugFrame::new(bytes, NativeEndian);
        // Entries of versions before 4 do not say.
        section.set_address_size(8);
        section.set_vendor(gimli::Vendor::AArch64);
        Self {
            section,
            bytes,
            bases: BaseAddresses::default(),
            common: HashMap::new(),
            // framehop, which sees to the rest elsewhere, does not have this section.
            complex: Rule::NOTHING,
        }
    }
}

impl<'m, S: UnwindSection<Bytes<'m>>> Entries<'m, S> {
    /// The function whose entry lies at an offset.
    pub(super) fn function(&mut self, offset: usize) -> gimli::Result<Function<'m>> {
        let Self {
            section,
            bases,
            common,
            ..
        } = self;
        section.fde_from_offset(bases, offset.into(), |section, bases, at| {
            known_or_parsed(common, section, bases, at)
        })
    }

    /// All functions, as far as the section can be read, but for those that cannot be.
    pub(super) fn for_each(&mut self, mut f: impl FnMut(Function<'m>)) {
        let Self {
            section,
            bases,
            common,
            ..
        } = self;
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            if let CieOrFde::Fde(partial) = entry
                && let Ok(function) =
                    partial.parse(|section, bases, at| known_or_parsed(common, section, bases, at))
            {
                f(function);
            }
        }
    }

    /// Whether the instructions of a common information entry have been gone through.
    pub(super) fn is_known(&self, entry: &Common<'m>) -> bool {
        let known = self.common.get(&entry.offset());
        known.is_some_and(|(_, rule)| rule.is_some())
    }

    /// The rule that a function with this common information begins with.
    pub(super) fn initial_rule(&mut self, entry: &Common<'m>) -> Rule {
        if let Some((_, Some(rule))) = self.common.get(&entry.offset()) {
            return *rule;
        }
        let rule = self.rule_of(entry);
        let known = (entry.clone(), Some(rule));
        self.common.insert(entry.offset(), known);
        rule
    }

    /// What the instructions of a common information entry come to.
    fn rule_of(&self, entry: &Common<'m>) -> Rule {
        let mut state = State::at_beginning(Rule::COMPLEX, entry);
        if entry.return_address_register().0 != RETURN_ADDRESS {
            state.rule.return_address = Place::COMPLEX;
            return state.rule;
        }
        let mut instructions = entry.instructions(&self.section, &self.bases);
        loop {
            match instructions.next() {
                Ok(Some(instruction)) => state.apply(&instruction, self.bytes),
                Ok(None) => return state.rule,
                Err(_) => return Rule::COMPLEX,
            }
        }
    }
}

fn known_or_parsed<'m, S: UnwindSection<Bytes<'m>>>(
    known: &mut HashMap<usize, (Common<'m>, Option<Rule>)>,
    section: &S,
    bases: &BaseAddresses,
    at: S::Offset,
) -> gimli::Result<Common<'m>> {
    let offset = UnwindOffset::into(at);
    if let Some((entry, _)) = known.get(&offset) {
        return Ok(entry.clone());
    }
    let entry = section.cie_from_offset(bases, at)?;
    known.insert(offset, (entry.clone(), None));
    Ok(entry)
}
