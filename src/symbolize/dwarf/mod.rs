//! Addresses to frames by DWARF, one unit at a time.
//!
//! The usual way is an index over all units first and look-ups in it afterwards. A profile brings all its addresses at
//! once, so it goes the other way round here: units that hold none of them are passed over, the others are read once
//! from front to back, and nothing of a unit is kept. That bounds the memory by the functions asked for instead of the
//! whole program, and by the pages touched between two calls of `give_back_pages`.

mod functions;
mod lines;
mod scopes;

use gimli::{DebugInfoOffset, EndianSlice, LittleEndian};

use self::functions::{DescribedFunction, FunctionTable};
use self::lines::{FileNames, Position};
use self::scopes::Scope;
use super::Frame;
use super::image::DebugSections;

type Slice<'d> = EndianSlice<'d, LittleEndian>;
type Dwarf<'d> = gimli::Dwarf<Slice<'d>>;
type Unit<'d> = gimli::Unit<Slice<'d>>;
type UnitRef<'u, 'd> = gimli::UnitRef<'u, Slice<'d>>;
type Value<'d> = gimli::AttributeValue<Slice<'d>>;

/// How many bytes of debug information are read before their pages are given back.
const PAGES_KEPT: usize = 8 << 20;

/// Calls `emit` with the frames, innermost first, of every address that the debug information knows.
///
/// `addresses` is sorted, and an address is named by its position in it. Where a position in the source is known but
/// no function, there is one frame without a symbol. A unit that is malformed is passed over; the first such error is
/// returned when all others have been read.
pub(super) fn find_frames<'d>(
    sections: &'d DebugSections<'d>,
    addresses: &[u64],
    give_back_pages: impl Fn(),
    emit: &mut dyn FnMut(usize, &[Frame]),
) -> gimli::Result<()> {
    let dwarf = Dwarf::load(|id| gimli::Result::Ok(Slice::new(sections.get(id), LittleEndian)))?;
    let mut search = Search {
        dwarf: &dwarf,
        addresses,
        functions: FunctionTable::new(&dwarf),
        found: vec![false; addresses.len()],
        bare_positions: Vec::new(),
        bytes_read: 0,
        give_back_pages: &give_back_pages,
        first_error: None,
    };

    let (wanted, listed) = search.units_by_ranges_table();
    search.read_units(&wanted, emit);
    if search.found.contains(&false) {
        let wanted = search.units_by_their_roots(&listed);
        search.read_units(&wanted, emit);
    }
    search.emit_bare_positions(emit);
    match search.first_error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// An address in a unit: the unit's offset in `.debug_info`, the address's position among the addresses.
type UnitQuery = (usize, usize);

struct Search<'s, 'd> {
    dwarf: &'s Dwarf<'d>,
    addresses: &'s [u64],
    functions: FunctionTable<'s, 'd>,
    found: Vec<bool>,
    /// Positions in the source that belong to no function, by address.
    bare_positions: Vec<(usize, Option<String>, u32, u32)>,
    bytes_read: usize,
    give_back_pages: &'s dyn Fn(),
    first_error: Option<gimli::Error>,
}

impl<'d> Search<'_, 'd> {
    /// The units that `.debug_aranges` gives for the addresses, and all units that it lists.
    ///
    /// Almost every compiler writes the table, and with it the units that hold nothing of interest are not touched.
    fn units_by_ranges_table(&mut self) -> (Vec<UnitQuery>, Vec<usize>) {
        let mut wanted = Vec::new();
        let mut listed = Vec::new();
        let mut headers = self.dwarf.debug_aranges.headers();
        loop {
            let header = match headers.next() {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(error) => {
                    // What the rest of the table listed is found by the units' roots.
                    self.first_error.get_or_insert(error);
                    break;
                }
            };
            let unit = header.debug_info_offset().0;
            listed.push(unit);
            let mut entries = header.entries();
            while let Some(entry) = entries.next().transpose() {
                // A range that wraps around is code that the linker dropped.
                let Ok(entry) = entry else { continue };
                self.queries_in(entry.range(), |query| wanted.push((unit, query)));
            }
        }
        listed.sort_unstable();
        wanted.sort_unstable();
        wanted.dedup();
        (wanted, listed)
    }

    /// The units that `.debug_aranges` does not list and that hold addresses nobody else knew.
    fn units_by_their_roots(&mut self, listed: &[usize]) -> Vec<UnitQuery> {
        let mut wanted = Vec::new();
        let mut headers = self.dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            self.count_bytes(header.length_including_self().min(4096));
            let (gimli::UnitType::Compilation | gimli::UnitType::Skeleton(_)) = header.type_()
            else {
                continue;
            };
            let Some(offset) = header.debug_info_offset() else {
                continue;
            };
            if listed.binary_search(&offset.0).is_ok() {
                continue;
            }
            let Ok(unit) = self.dwarf.unit(header) else {
                continue;
            };
            let Ok(mut ranges) = self.dwarf.unit_ranges(&unit) else {
                continue;
            };
            while let Ok(Some(range)) = ranges.next() {
                self.queries_in(range, |query| {
                    if !self.found[query] {
                        wanted.push((offset.0, query));
                    }
                });
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    fn queries_in(&self, range: gimli::Range, mut with: impl FnMut(usize)) {
        // Linkers move what they drop to address 0, where no code ever is.
        if range.begin == 0 {
            return;
        }
        let first = self.addresses.partition_point(|&a| a < range.begin);
        let count = self.addresses[first..].partition_point(|&a| a < range.end);
        (first..first + count).for_each(&mut with);
    }

    fn read_units(&mut self, wanted: &[UnitQuery], emit: &mut dyn FnMut(usize, &[Frame])) {
        for of_unit in wanted.chunk_by(|a, b| a.0 == b.0) {
            let queries: Vec<usize> = of_unit
                .iter()
                .map(|&(_, query)| query)
                .filter(|&query| !self.found[query])
                .collect();
            if queries.is_empty() {
                continue;
            }
            if let Err(error) = self.read_unit(DebugInfoOffset(of_unit[0].0), &queries, emit) {
                self.first_error.get_or_insert(error);
            }
        }
    }

    fn read_unit(
        &mut self,
        offset: DebugInfoOffset,
        queries: &[usize],
        emit: &mut dyn FnMut(usize, &[Frame]),
    ) -> gimli::Result<()> {
        let dwarf = self.dwarf;
        let unit = dwarf.unit(dwarf.debug_info.header_from_offset(offset)?)?;
        let unit = unit.unit_ref(dwarf);
        let addresses: Vec<u64> = queries.iter().map(|&query| self.addresses[query]).collect();

        let chains = scopes::find(unit, &addresses, |bytes| self.count_bytes(bytes))?;
        // Lines that cannot be read leave the functions, which can.
        let positions = match lines::find(unit, &addresses) {
            Ok(positions) => positions,
            Err(error) => {
                self.first_error.get_or_insert(error);
                vec![None; addresses.len()]
            }
        };
        let mut files = FileNames::of(unit);
        for ((&query, chain), position) in queries.iter().zip(&chains).zip(positions) {
            if chain.is_empty() {
                if let Some(position) = position {
                    let file = files.get(position.file)?.map(str::to_owned);
                    self.bare_positions
                        .push((query, file, position.line, position.column));
                }
                continue;
            }
            let frames = self.frames(unit, &mut files, chain, position)?;
            let frames: Vec<Frame> = frames.iter().map(OwnedFrame::borrow).collect();
            emit(query, &frames);
            self.found[query] = true;
        }
        self.functions.forget_unit();
        Ok(())
    }

    /// The frames of one chain of scopes, innermost first.
    fn frames(
        &mut self,
        unit: UnitRef<'_, 'd>,
        files: &mut FileNames<'_, 'd>,
        chain: &[Scope],
        mut position: Option<Position>,
    ) -> gimli::Result<Vec<OwnedFrame<'d>>> {
        let mut frames = Vec::with_capacity(chain.len());
        for scope in chain.iter().rev() {
            let function = self.functions.describe(unit, files, scope.entry)?;
            let file = match position {
                Some(position) => files.get(position.file)?.map(str::to_owned),
                None => None,
            };
            frames.push(OwnedFrame {
                function,
                file,
                line: position.map_or(0, |position| position.line),
                column: position.map_or(0, |position| position.column),
            });
            position = scope.called_from;
        }
        Ok(frames)
    }

    fn emit_bare_positions(&mut self, emit: &mut dyn FnMut(usize, &[Frame])) {
        for (query, file, line, column) in std::mem::take(&mut self.bare_positions) {
            if !std::mem::replace(&mut self.found[query], true) {
                emit(
                    query,
                    &[Frame {
                        symbol: None,
                        source_name: None,
                        file: file.as_deref(),
                        line,
                        column,
                        start_line: 0,
                    }],
                );
            }
        }
    }

    fn count_bytes(&mut self, bytes: usize) {
        self.bytes_read += bytes;
        if self.bytes_read > PAGES_KEPT {
            self.bytes_read = 0;
            (self.give_back_pages)();
        }
    }
}

struct OwnedFrame<'d> {
    function: DescribedFunction<'d>,
    file: Option<String>,
    line: u32,
    column: u32,
}

impl OwnedFrame<'_> {
    fn borrow(&self) -> Frame<'_> {
        // A profile has one file for a function and all its lines: where a line is not in the file of the
        // declaration (an included file, a macro), the declaration's line would be one of another file.
        let declared_here = self.function.file.is_some() && self.function.file == self.file;
        Frame {
            symbol: self.function.symbol.as_deref(),
            source_name: self.function.source_name.as_deref(),
            file: self.file.as_deref(),
            line: self.line,
            column: self.column,
            start_line: match declared_here {
                true => self.function.line,
                false => 0,
            },
        }
    }
}
