//! Addresses to positions in the source.

use hashbrown::HashMap;

use super::UnitRef;

/// A position in the source, its file by the unit's own number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    pub(super) file: u64,
    /// From 1; 0 where unknown.
    pub(super) line: u32,
    /// From 1; 0 where unknown.
    pub(super) column: u32,
}

/// The position of each address, by one run of the unit's line program.
///
/// `addresses` is sorted.
pub(super) fn find(
    unit: UnitRef<'_, '_>,
    addresses: &[u64],
) -> gimli::Result<Vec<Option<Position>>> {
    let mut positions = vec![None; addresses.len()];
    let (Some(program), Some(&lowest), Some(&highest)) = (
        unit.line_program.clone(),
        addresses.first(),
        addresses.last(),
    ) else {
        return Ok(positions);
    };
    let mut rows = program.rows();
    // A row holds until the next one's address.
    let mut since: Option<(u64, Position)> = None;
    let mut dropped = false;
    while let Some((_, row)) = rows.next_row()? {
        let end = row.address();
        match since {
            // Code that the linker dropped was moved to address 0, where no code ever is.
            None => dropped = end == 0,
            Some((start, position)) if !dropped && start <= highest && end > lowest => {
                let first = addresses.partition_point(|&address| address < start);
                let count = addresses[first..].partition_point(|&address| address < end);
                positions[first..first + count].fill(Some(position));
            }
            Some(_) => {}
        }
        since = (!row.end_sequence()).then(|| {
            let position = Position {
                file: row.file_index(),
                line: row
                    .line()
                    .and_then(|line| u32::try_from(line.get()).ok())
                    .unwrap_or(0),
                column: match row.column() {
                    gimli::ColumnType::LeftEdge => 0,
                    gimli::ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
                },
            };
            (end, position)
        });
    }
    Ok(positions)
}

/// The paths of a unit's files, made when first asked for.
pub(super) struct FileNames<'u, 'd> {
    unit: UnitRef<'u, 'd>,
    names: HashMap<u64, Option<String>>,
}

impl<'u, 'd> FileNames<'u, 'd> {
    pub(super) fn of(unit: UnitRef<'u, 'd>) -> Self {
        Self {
            unit,
            names: HashMap::new(),
        }
    }

    /// The path of a file by its number.
    pub(super) fn get(&mut self, file: u64) -> gimli::Result<Option<&str>> {
        if !self.names.contains_key(&file) {
            let name = file_name(self.unit, file)?;
            self.names.insert(file, name);
        }
        Ok(self.names[&file].as_deref())
    }
}

/// The path of one file: compilation directory, directory and name, each only as far as what follows is relative.
pub(super) fn file_name(unit: UnitRef<'_, '_>, file: u64) -> gimli::Result<Option<String>> {
    let Some(program) = &unit.line_program else {
        return Ok(None);
    };
    let header = program.header();
    // Before DWARF 5, file 0 is none.
    let Some(entry) = header.file(file) else {
        return Ok(None);
    };
    let mut path = match &unit.comp_dir {
        Some(directory) => directory.to_string_lossy().into_owned(),
        None => String::new(),
    };
    // Directory 0 is the compilation directory.
    if entry.directory_index() != 0
        && let Some(directory) = entry.directory(header)
    {
        push(&mut path, &unit.attr_string(directory)?.to_string_lossy());
    }
    push(
        &mut path,
        &unit.attr_string(entry.path_name())?.to_string_lossy(),
    );
    Ok(Some(path))
}

fn push(path: &mut String, part: &str) {
    if part.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(part);
}
