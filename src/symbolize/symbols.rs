//! Addresses to symbols, in one pass over the tables.

use std::cmp::Reverse;

use object::elf;
use object::read::elf::Sym as _;
use object::{LittleEndian, SectionIndex};

use super::image::Elf;

/// The symbol that covers each address, by the first table that knows one.
///
/// The tables are read once from front to back and nothing of them is kept: an index over the half million symbols of
/// a large library would cost more than it saves on the few thousand addresses of a profile. `addresses` is sorted.
pub(super) fn find<'e, 'd: 'e>(
    elves: impl Iterator<Item = &'e Elf<'d>>,
    addresses: &[u64],
) -> Vec<Option<&'d str>> {
    let mut found = vec![None; addresses.len()];
    for elf in elves {
        for table in [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()] {
            let mut candidates = vec![None; addresses.len()];
            for symbol in table.iter() {
                let kind = symbol.st_type();
                if kind != elf::STT_FUNC && kind != elf::STT_GNU_IFUNC
                    || symbol.st_shndx(LittleEndian) == elf::SHN_UNDEF
                {
                    continue;
                }
                let start = symbol.st_value(LittleEndian);
                let end = start.saturating_add(symbol.st_size(LittleEndian));
                let first = addresses.partition_point(|&address| address < start);
                let covered = addresses[first..].partition_point(|&address| address < end);
                if covered == 0 {
                    continue;
                }
                let Some(name) = symbol
                    .name(LittleEndian, table.strings())
                    .ok()
                    .and_then(|name| std::str::from_utf8(name).ok())
                    .map(|name| name.split('@').next().unwrap_or(name))
                    .filter(|name| !name.is_empty())
                else {
                    continue;
                };
                let candidate = (start, rank(name, symbol.st_bind()), name);
                for best in &mut candidates[first..first + covered] {
                    *best = (*best).max(Some(candidate));
                }
            }
            for (found, candidate) in found.iter_mut().zip(candidates) {
                *found = found.or(candidate.map(|(_, _, name)| name));
            }
        }
    }
    found
}

/// Which of several names for the same code to show, the greatest being the best: `malloc`, not `__libc_malloc`;
/// `strchr`, not `index`; and always the same one.
fn rank(name: &str, binding: elf::SymbolBind) -> impl Copy + Ord + use<'_> {
    let strength = match binding {
        elf::STB_LOCAL => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    };
    let length_and_order = Reverse((name.len(), name));
    (!name.starts_with('_'), strength, length_and_order)
}

/// Whether an object has any symbol table.
pub(super) fn any(elf: &Elf<'_>) -> bool {
    [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()]
        .iter()
        .any(|table| table.section() != SectionIndex(0) && !table.is_empty())
}
