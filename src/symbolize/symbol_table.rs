//! Addresses to symbols, by one symbol table.

use std::borrow::Cow;

use object::LittleEndian;
use object::elf::{self, Sym64};
use object::read::elf::{SectionHeader as _, Sym as _, SymbolTable};

use super::object_file::{ENDIAN, Elf, ObjectFile};
use super::wanted::Wanted;
use crate::Error;

/// The symbol of a function, and where the function begins.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Symbol<'d> {
    pub(super) name: Cow<'d, str>,
    pub(super) begin: u64,
}

/// Which table of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Table {
    /// All symbols, which `strip` removes.
    Symtab,
    /// Those that other objects see.
    Dynsym,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Self::Symtab => ".symtab",
            Self::Dynsym => ".dynsym",
        }
    }
}

/// A function that covers an address that is looked for.
#[derive(Clone, Copy, Debug)]
struct Candidate<'d> {
    begin: u64,
    end: u64,
    /// An end that is only the end of the section: the next symbol, wherever it is, is the end.
    is_sizeless: bool,
    symbol: &'d Sym64<LittleEndian>,
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
    let kind = match table {
        Table::Symtab => elf::SHT_SYMTAB,
        Table::Dynsym => elf::SHT_DYNSYM,
    };
    let sections = object.sections();
    let damaged = |error| object.damaged(table.name(), error);
    let table_of_object = sections
        .symbols(ENDIAN, object.data(), kind)
        .map_err(damaged)?;
    let mut outcome = Ok(());
    let mut found = Covering::of(object, table, &table_of_object, &missing);
    for &(address, index) in missing.addresses() {
        let Some(candidate) = found.at(address) else {
            continue;
        };
        match table_of_object.symbol_name(ENDIAN, candidate.symbol) {
            Ok(name) => {
                symbols[index] = Some(Symbol {
                    name: String::from_utf8_lossy(name),
                    begin: candidate.begin,
                });
            }
            Err(error) => outcome = Err(damaged(error)),
        }
    }
    outcome
}

/// The functions that cover addresses, for addresses that ascend.
struct Covering<'d> {
    /// In order of their beginnings, the best last among those that begin together.
    candidates: std::iter::Peekable<std::vec::IntoIter<Candidate<'d>>>,
    /// Begun, and not known to have ended.
    open: Vec<Candidate<'d>>,
    /// Addresses in ascending order, each with the nearest beginning of any symbol up to it.
    fences: std::iter::Peekable<std::vec::IntoIter<(u64, u64)>>,
    fence: u64,
}

impl<'d> Covering<'d> {
    fn of(
        object: &ObjectFile<'d>,
        table: Table,
        symbols: &SymbolTable<'d, Elf>,
        wanted: &Wanted,
    ) -> Self {
        let addresses = wanted.addresses();
        let mut fences: Vec<_> = addresses.iter().map(|&(address, _)| (address, 0)).collect();
        let mut candidates = Vec::new();
        for symbol in symbols.iter().filter(|symbol| is_function(symbol)) {
            let begin = symbol.st_value(ENDIAN);
            let next = addresses.partition_point(|&(address, _)| address < begin);
            let Some(&(address, _)) = addresses.get(next) else {
                continue;
            };
            fences[next].1 = fences[next].1.max(begin);
            let size = symbol.st_size(ENDIAN);
            let end = match size {
                // Where `.dynsym` knows too few symbols to end one by the next.
                0 if table == Table::Dynsym => None,
                0 => end_of_section(object, symbol),
                size => begin.checked_add(size),
            };
            if let Some(end) = end.filter(|&end| address < end) {
                candidates.push(Candidate {
                    begin,
                    end,
                    is_sizeless: size == 0,
                    symbol,
                });
            }
        }
        let name = |candidate: &Candidate<'d>| {
            let name = symbols.symbol_name(ENDIAN, candidate.symbol);
            name.unwrap_or_default()
        };
        candidates.sort_unstable_by(|a, b| {
            a.begin
                .cmp(&b.begin)
                .then_with(|| b.is_sizeless.cmp(&a.is_sizeless))
                .then_with(|| merit(b.symbol, name(b)).cmp(&merit(a.symbol, name(a))))
        });
        Self {
            candidates: candidates.into_iter().peekable(),
            open: Vec::new(),
            fences: fences.into_iter().peekable(),
            fence: 0,
        }
    }

    /// The function that begins nearest to an address, of those that cover it. No later call may be
    /// for an earlier address.
    fn at(&mut self, address: u64) -> Option<Candidate<'d>> {
        while let Some((_, fence)) = self.fences.next_if(|&(place, _)| place <= address) {
            self.fence = self.fence.max(fence);
        }
        while let Some(candidate) = self.candidates.next_if(|c| c.begin <= address) {
            self.open.push(candidate);
        }
        loop {
            let last = *self.open.last()?;
            let is_behind_another = last.is_sizeless && last.begin < self.fence;
            if address < last.end && !is_behind_another {
                return Some(last);
            }
            self.open.pop();
        }
    }
}

/// Whether a symbol can be that of a function that is in the object. (`$x` and the like mark what
/// code is, on some machines.)
fn is_function(symbol: &Sym64<LittleEndian>) -> bool {
    let is_kind = match symbol.st_type() {
        elf::STT_FUNC | elf::STT_GNU_IFUNC => true,
        elf::STT_NOTYPE => symbol.st_size(ENDIAN) > 0,
        _ => false,
    };
    is_kind && !symbol.is_undefined(ENDIAN)
}

fn end_of_section(object: &ObjectFile, symbol: &Sym64<LittleEndian>) -> Option<u64> {
    let index = usize::from(symbol.st_shndx(ENDIAN).0);
    let section = object
        .sections()
        .section(object::SectionIndex(index))
        .ok()?;
    let is_code = section.sh_flags(ENDIAN).contains(elf::SHF_EXECINSTR);
    let end = section
        .sh_addr(ENDIAN)
        .checked_add(section.sh_size(ENDIAN))?;
    is_code.then_some(end)
}

/// What makes one of several symbols of a function the one to show: the smallest is the best.
///
/// A name for others, without underscores in front (`write` of `__GI___libc_write`, `__write` and
/// `write`), and always the same one.
fn merit<'n>(symbol: &Sym64<LittleEndian>, name: &'n [u8]) -> impl Ord + use<'n> {
    let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
    (
        symbol.is_local(),
        underscores,
        symbol.is_weak(),
        std::cmp::Reverse(symbol.st_size(ENDIAN)),
        name.len(),
        name,
    )
}
