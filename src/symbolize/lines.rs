//! Addresses to files and lines, by the table of lines of a unit (`.debug_line`; DWARF 5, 6.2).

use gimli::{ColumnType, LineRow, Reader as _, Section as _};
use hashbrown::HashMap;

use super::dwarf::{Failure, Reader, Result, Unit};
use super::entries::Site;
use super::units::{Root, Units};
use super::wanted::Wanted;

const SECTION: &str = ".debug_line";
/// A header has the names of all files; parsed, they take up to 120 times as much. The largest one
/// of a Rust program of 75 MB has 9 KB.
const MOST_HEADER_BYTES: u64 = 1 << 20;

type Header<'d> = gimli::LineProgramHeader<Reader<'d>>;
type Rows<'d> = gimli::LineRows<Reader<'d>, gimli::IncompleteLineProgram<Reader<'d>>>;

/// What a table of lines has at wanted addresses.
#[derive(Default)]
pub(super) struct Lines<'d> {
    /// By the place of the address.
    sites: HashMap<usize, Site>,
    rows: Option<Rows<'d>>,
    /// Paths that were asked for, by the number of the file.
    paths: HashMap<u64, String>,
}

impl<'d> Lines<'d> {
    /// Reads the table of a unit, if it has one. What is damaged in there ends the reading.
    pub(super) fn of(units: &Units<'d>, root: &Root<'d>, wanted: &Wanted) -> Self {
        let mut lines = Self::default();
        units.check(lines.read(units, root, wanted));
        lines
    }

    fn read(&mut self, units: &Units<'d>, root: &Root<'d>, wanted: &Wanted) -> Result<()> {
        let Some(offset) = root.lines else {
            return Ok(());
        };
        let section = units.dwarf.debug_line;
        let mut rest = *section.reader();
        let failed = Failure::of(SECTION);
        // The length of the table, the version, two bytes of DWARF 5, and the header's length.
        let mut header_len = || {
            rest.skip(offset.0)?;
            let (len, format) = rest.read_initial_length()?;
            if rest.read_u16()? >= 5 {
                rest.skip(2)?;
            }
            Ok((len, rest.read_length(format)? as u64))
        };
        let (len, header_len) = header_len().map_err(&failed)?;
        if header_len > MOST_HEADER_BYTES {
            return Err(Failure::new(
                SECTION,
                "a header is larger than any real one",
            ));
        }
        units.effort.take(len)?;
        let address_size = root.unit.header.address_size();
        let program = section.program(offset, address_size, root.unit.comp_dir, None);
        let rows = self.rows.insert(program.map_err(&failed)?.rows());
        // Where the current sequence begins, and its last row.
        let (mut begin, mut last) = (0, None::<LineRow>);
        while let Some((_, row)) = rows.next_row().map_err(&failed)? {
            match last {
                None => begin = row.address(),
                Some(last) if units.is_kept(begin) && last.address() < row.address() => {
                    let places = wanted.places_in(last.address(), row.address());
                    units.effort.take(places.len())?;
                    for place in places {
                        self.sites.entry(place).or_insert_with(|| site(&last));
                    }
                }
                Some(_) => {}
            }
            last = Some(*row).filter(|row| !row.end_sequence());
        }
        Ok(())
    }

    /// Where in the source the address of a place is.
    pub(super) fn site(&self, place: usize) -> Option<Site> {
        self.sites.get(&place).copied()
    }

    pub(super) fn sites(&self) -> impl Iterator<Item = (usize, Site)> {
        self.sites.iter().map(|(&place, &site)| (place, site))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// Makes the path of a file known.
    pub(super) fn find_path(&mut self, units: &Units<'d>, unit: &Unit<'d>, file: Option<u64>) {
        if let (Some(file), Some(rows)) = (file, &self.rows) {
            let find = || units.check(path(units, unit, rows.header(), file));
            let paths = self.paths.entry(file);
            paths.or_insert_with(|| find().unwrap_or_default());
        }
    }

    /// The path of a file that was made known; empty where it is unknown.
    pub(super) fn path(&self, file: Option<u64>) -> &str {
        let path = file.and_then(|file| self.paths.get(&file));
        path.map_or("", String::as_str)
    }
}

fn site(row: &LineRow) -> Site {
    let line = row.line().map_or(0, std::num::NonZero::get);
    Site {
        file: Some(row.file_index()),
        line: line as u32,
        column: match row.column() {
            ColumnType::Column(column) if line > 0 => column.get() as u32,
            _ => 0,
        },
    }
}

/// The path of a file: its name, in its directory, in the one where the compiler was started, as
/// far as these are not absolute.
fn path<'d>(units: &Units<'d>, unit: &Unit<'d>, header: &Header<'d>, file: u64) -> Result<String> {
    let mut path = String::new();
    let Some(file) = header.file(file) else {
        return Ok(path);
    };
    let string = |value| units.dwarf.attr_string(unit, value);
    let directory = match file.directory_index() {
        // The one where the compiler was started.
        0 => None,
        _ => file.directory(header).map(string).transpose()?,
    };
    let name = string(file.path_name())?;
    for part in unit.comp_dir.into_iter().chain(directory).chain([name]) {
        units.effort.take(part.len())?;
        let part = part.to_string_lossy();
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(&part);
    }
    Ok(path)
}
