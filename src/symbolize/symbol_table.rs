//! Addresses to symbols, by one symbol table.

use std::borrow::Cow;

use super::object_file::ObjectFile;
use super::raw_symbols::{RawSymbol, RawSymbols, Table};
use super::wanted::Wanted;
use crate::Error;

/// The symbol of a function, and where the function begins.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Symbol<'d> {
    /// As it stands in the file: a name that is no UTF-8 is made some where it is needed, one name
    /// at a time.
    name: &'d [u8],
    pub(super) begin: u64,
}

impl<'d> Symbol<'d> {
    pub(super) fn name(&self) -> Cow<'d, str> {
        String::from_utf8_lossy(self.name)
    }
}

/// What the names that are found in a table may have together, in bytes, as a multiple of its
/// strings. Each name is there once, but for a few.
const MOST_RATIO: usize = 4;
/// What they may have beyond that.
const ALWAYS_BYTES: usize = 1 << 20;
/// A name that is needed once more costs so much less than one that is new.
const LESS_IF_KNOWN: usize = 16;

/// A function that covers an address that is looked for.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    begin: u64,
    end: u64,
    /// An end that is only the end of the section: the next symbol, wherever it is, is the end.
    is_sizeless: bool,
    symbol: RawSymbol,
}

/// Fills in the symbols that a table has for addresses that have none yet.
///
/// # Errors
///
/// Where the table, or a name in it, is damaged; what it has beside that is filled in.
pub(super) fn look_up<'d>(
    object: &ObjectFile<'d>,
    table: Table,
    wanted: &Wanted,
    symbols: &mut [Option<Symbol<'d>>],
) -> Result<(), Error> {
    let is_missing = |index: usize| symbols[index].is_none();
    let missing = wanted.only(is_missing);
    if missing.is_empty() {
        return Ok(());
    }
    let table_of_object = object.symbols(table)?;
    let mut outcome = Ok(());
    let mut found = Covering::of(object, table, &table_of_object, &missing);
    // A name may be the end of another one, and all of them be of one long string.
    let mut left = MOST_RATIO * table_of_object.strings_len() + ALWAYS_BYTES;
    let mut last = None;
    for &(address, index) in missing.addresses() {
        let Some(candidate) = found.at(address) else {
            continue;
        };
        let name = table_of_object.name(candidate.symbol).and_then(|name| {
            let more = match last.replace(candidate.begin) == Some(candidate.begin) {
                true => name.len() / LESS_IF_KNOWN,
                false => name.len(),
            };
            left = left.checked_sub(more).ok_or("its names are far too long")?;
            Ok(name)
        });
        match name {
            Ok(name) => {
                symbols[index] = Some(Symbol {
                    name,
                    begin: candidate.begin,
                });
            }
            Err(error) => outcome = Err(object.damaged(table.name(), error)),
        }
    }
    outcome
}

/// The functions that cover addresses, for addresses that ascend.
struct Covering {
    /// In order of their beginnings, the best last among those that begin together.
    candidates: std::iter::Peekable<std::vec::IntoIter<Candidate>>,
    /// Begun, with an end of their own that is not known to have come.
    open: Vec<Candidate>,
    /// The last one to begin of those without an end of their own.
    sizeless: Option<Candidate>,
    /// Addresses in ascending order, each with the nearest beginning of any symbol up to it.
    fences: std::iter::Peekable<std::vec::IntoIter<(u64, u64)>>,
    fence: u64,
}

impl Covering {
    fn of(object: &ObjectFile, table: Table, symbols: &RawSymbols, wanted: &Wanted) -> Self {
        let addresses = wanted.addresses();
        let mut fences: Vec<_> = addresses.iter().map(|&(address, _)| (address, 0)).collect();
        let mut candidates = Vec::new();
        symbols.for_each(|symbol| {
            let begin = symbol.value;
            let next = addresses.partition_point(|&(address, _)| address < begin);
            let Some(&(address, _)) = addresses.get(next) else {
                return;
            };
            if !symbol.is_function() && !is_label_of_code(object, symbols, symbol) {
                return;
            }
            fences[next].1 = fences[next].1.max(begin);
            let end = match symbol.size {
                // `.dynsym` knows too few symbols to end one by the next.
                0 if table == Table::Dynsym => None,
                0 => end_of_section(object, symbol),
                size => begin.checked_add(size),
            };
            if let Some(end) = end.filter(|&end| address < end) {
                candidates.push(Candidate {
                    begin,
                    end,
                    is_sizeless: symbol.size == 0,
                    symbol,
                });
            }
        });
        let name = |candidate: &Candidate| symbols.name(candidate.symbol).unwrap_or_default();
        candidates.sort_unstable_by(|a, b| {
            a.begin
                .cmp(&b.begin)
                .then_with(|| merit(b.symbol, name(b)).cmp(&merit(a.symbol, name(a))))
        });
        Self {
            candidates: candidates.into_iter().peekable(),
            open: Vec::new(),
            sizeless: None,
            fences: fences.into_iter().peekable(),
            fence: 0,
        }
    }

    /// The function that begins nearest to an address, of those that cover it: of those that have
    /// an end, or else of those without. No later call may be for an earlier address.
    fn at(&mut self, address: u64) -> Option<Candidate> {
        while let Some((_, fence)) = self.fences.next_if(|&(place, _)| place <= address) {
            self.fence = self.fence.max(fence);
        }
        while let Some(candidate) = self.candidates.next_if(|c| c.begin <= address) {
            match candidate.is_sizeless {
                true => self.sizeless = Some(candidate),
                false => self.open.push(candidate),
            }
        }
        while self
            .open
            .pop_if(|candidate| candidate.end <= address)
            .is_some()
        {}
        let is_last = |c: &Candidate| c.begin >= self.fence && address < c.end;
        let sizeless = self.sizeless.filter(is_last);
        self.open.last().copied().or(sizeless)
    }
}

/// Whether it is a label that may well be a function's, as those of assembly are. Labels that are
/// only for the assembler or the linker have names of their own kind: `$x` says on some machines
/// what follows, `.annobin_…` belongs to notes.
fn is_label_of_code(object: &ObjectFile, symbols: &RawSymbols, symbol: RawSymbol) -> bool {
    symbol.is_label()
        && object.section_of(symbol).is_some_and(|s| s.is_code)
        && (symbols.name(symbol))
            .is_ok_and(|name| !matches!(name.first(), None | Some(b'$' | b'.')))
}

fn end_of_section(object: &ObjectFile, symbol: RawSymbol) -> Option<u64> {
    let section = object.section_of(symbol)?;
    section.is_code.then_some(section.addresses.end)
}

/// What makes one of several symbols of a function the one to show: the smallest is the best.
///
/// A name for others, without underscores in front (`write` of `__GI___libc_write`, `__write` and
/// `write`), and always the same one.
fn merit<'n>(symbol: RawSymbol, name: &'n [u8]) -> impl Ord + use<'n> {
    let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
    (
        symbol.is_label(),
        symbol.is_local(),
        underscores,
        symbol.is_weak(),
        std::cmp::Reverse(symbol.size),
        name.len(),
        name,
    )
}
