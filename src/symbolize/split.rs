//! Split debug information: units that a compiler left in files of their own (`.dwo`), and packages
//! of such units (`.dwp`). What is linked has a skeleton of each unit: where its code lies, its
//! lines, and the name and id of what was split off (DWARF 5, 3.1.3 and 7.3; before DWARF 5 an
//! extension of GNU's).
//!
//! Looked for as GDB and LLDB do: first in packages, which have the name of the object or of its
//! debug file with `.dwp` behind it; then by the name in the skeleton, relative to the directory of
//! the compilation; and then beside the object, for a build that was moved.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::gimli::{
    DebugCuIndex, DebugInfo, Dwarf, DwarfPackageSections, DwarfSections, DwoId,
    Error as DwarfError, LittleEndian, Reader as _, Section as _, SectionId, UnitType,
};
use addr2line::{Context, SplitDwarfLoad};
use hashbrown::HashMap;

use super::compressed::Budget;
use super::debug_file;
use super::debug_info::{Damage, Reader, damaged, is_needed, reader};
use super::object_file::{Bytes, ObjectFile};
use super::wanted::Wanted;
use crate::{Error, ErrorKind};

/// So many files of one object are mapped at a time. The kernel lets a process have 65,530 mappings
/// (`vm.max_map_count`), and the host needs some.
const MOST_FILES: usize = 4096;

/// The skeletons that wanted addresses lie in.
pub(super) struct Skeletons {
    units: Vec<Skeleton>,
    /// In ascending order, each with the unit that it lies in.
    addresses: Vec<(u64, DwoId)>,
}

struct Skeleton {
    id: DwoId,
    /// Where the compiler was started.
    directory: PathBuf,
    /// The file of the unit, as the compiler wrote it.
    name: PathBuf,
}

/// The files of split units.
pub(super) struct Files {
    files: Vec<File>,
    /// Which file has a unit.
    of_units: HashMap<DwoId, usize>,
    /// The last package that was there, whether it has any of the units or not.
    package: Option<PathBuf>,
}

struct File {
    bytes: Bytes,
    is_package: bool,
}

/// The sections of [`Files`], in their order.
pub(super) struct Sections<'f>(Vec<FileSections<'f>>);

enum FileSections<'f> {
    Package(DwarfPackageSections<Cow<'f, [u8]>>),
    Object(DwarfSections<Cow<'f, [u8]>>),
}

impl Skeletons {
    /// Those of a context that was asked for nothing so far.
    pub(super) fn of(context: &Context<Reader>, wanted: &Wanted) -> Self {
        let mut units = HashMap::new();
        let mut addresses = Vec::new();
        for &(address, _) in wanted.addresses() {
            for (load, _) in context.preload_units(address) {
                addresses.push((address, load.dwo_id));
                let unit = || Skeleton::of(&load);
                units.entry(load.dwo_id).or_insert_with(unit);
            }
        }
        let mut units: Vec<_> = units.into_values().collect();
        units.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Self { units, addresses }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// The file that the debug information of an address lies in, where there is one.
    pub(super) fn file_of<'f>(&self, address: u64, files: &'f Files) -> Option<&'f Path> {
        let first = self.addresses.partition_point(|&(a, _)| a < address);
        let rest = self.addresses[first..].iter();
        let mut units = rest.take_while(|&&(a, _)| a == address);
        units.find_map(|(_, id)| files.path_of(*id))
    }
}

impl Skeleton {
    fn of(load: &SplitDwarfLoad<Reader>) -> Self {
        let path = |bytes: Option<Reader>| {
            let bytes = bytes.map(|bytes| bytes.slice()).unwrap_or_default();
            Path::new(OsStr::from_bytes(bytes)).to_owned()
        };
        Self {
            id: load.dwo_id,
            directory: path(load.comp_dir),
            name: path(load.path),
        }
    }

    /// Where the file may lie. The first is where the compiler left it.
    fn paths(&self, filename: &Path) -> Vec<PathBuf> {
        let mut paths = vec![self.directory.join(&self.name)];
        if let (Some(directory), Some(name)) = (filename.parent(), self.name.file_name()) {
            if self.name.is_relative() {
                paths.push(directory.join(&self.name));
            }
            paths.push(directory.join(name));
        }
        // Where a relative one leads depends on what the host does.
        paths.retain(|path| path.is_absolute());
        paths
    }
}

impl Files {
    /// Opens what has the units of an object that was mapped by this name. `skeletons_path` is
    /// where their skeletons lie.
    pub(super) fn open(
        skeletons: &Skeletons,
        filename: &Path,
        skeletons_path: &Path,
        damage: &mut Damage,
    ) -> Self {
        let mut files = Self {
            files: Vec::new(),
            of_units: HashMap::new(),
            package: None,
        };
        for path in package_paths(filename, skeletons_path) {
            if debug_file::is_there(&path) {
                let package = Bytes::of_file(&path);
                damage.check(package.and_then(|package| files.add_package(package, skeletons)));
                files.package = Some(path);
            }
        }
        let mut opened: HashMap<PathBuf, usize> = HashMap::new();
        for unit in &skeletons.units {
            if files.of_units.contains_key(&unit.id) {
                continue;
            }
            let mut paths = unit.paths(filename).into_iter();
            let Some(path) = paths.find(|path| debug_file::is_there(path)) else {
                continue;
            };
            // A file may hold several units.
            if let Some(&index) = opened.get(&path) {
                files.of_units.insert(unit.id, index);
            } else if files.files.len() < MOST_FILES
                && let Some(bytes) = damage.check(Bytes::of_file(&path))
            {
                opened.insert(path, files.files.len());
                files.add(bytes, false, [unit.id]);
            }
        }
        files
    }

    fn add(&mut self, bytes: Bytes, is_package: bool, units: impl IntoIterator<Item = DwoId>) {
        let index = self.files.len();
        self.of_units
            .extend(units.into_iter().map(|id| (id, index)));
        self.files.push(File { bytes, is_package });
    }

    /// Keeps a package that has any of the units.
    fn add_package(&mut self, bytes: Bytes, skeletons: &Skeletons) -> Result<(), Error> {
        const INDEX: &str = ".debug_cu_index";
        let object = ObjectFile::parse(&bytes)?;
        let section = object.uncompressed(INDEX, &mut Budget::new())?;
        let index = DebugCuIndex::new(&section, LittleEndian).index();
        let index = index.map_err(|error| object.damaged(INDEX, error))?;
        let is_new = |id: &DwoId| !self.of_units.contains_key(id) && index.find(id.0).is_some();
        let units = skeletons.units.iter().map(|unit| unit.id);
        let units: Vec<_> = units.filter(is_new).collect();
        if !units.is_empty() {
            self.add(bytes, true, units);
        }
        Ok(())
    }

    fn path_of(&self, id: DwoId) -> Option<&Path> {
        let index = *self.of_units.get(&id)?;
        Some(&self.files[index].bytes.path)
    }

    /// Says what is not there.
    ///
    /// # Errors
    ///
    /// Where a unit is in none of the files.
    pub(super) fn check(&self, skeletons: &Skeletons, skeletons_path: &Path) -> Result<(), Error> {
        let has_none = |unit: &&Skeleton| !self.of_units.contains_key(&unit.id);
        let mut missing = skeletons.units.iter().filter(has_none);
        let Some(first) = missing.next() else {
            return Ok(());
        };
        let path = first.directory.join(&first.name);
        let path = path.display();
        let others = match missing.count() {
            0 => String::new(),
            1 => " and 1 other file".to_owned(),
            many => format!(" and {many} other files"),
        };
        let nor = self.package.as_ref().map_or_else(String::new, |package| {
            format!(", and {} does not have what is in there", package.display())
        });
        let message = format!(
            "the split debug information of {} is incomplete: {path}{others} cannot be found{nor}",
            skeletons_path.display()
        );
        Err(Error::new(ErrorKind::Io, message))
    }

    /// Their sections. Those that are damaged are empty.
    pub(super) fn sections(&self, budget: &mut Budget, damage: &mut Damage) -> Sections<'_> {
        let mut all = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let object = damage.check(ObjectFile::parse(&file.bytes));
            damage.check(object.as_ref().map_or(Ok(()), ObjectFile::check_names));
            let section = |id: SectionId| {
                // A unit of a package is had with all its sections, or not at all.
                let is_needed = file.is_package || is_needed(id);
                let name = id.dwo_name().filter(|_| is_needed);
                let bytes = object
                    .as_ref()
                    .zip(name)
                    .and_then(|(object, name)| damage.check(object.uncompressed(name, budget)));
                Ok::<_, DwarfError>(bytes.unwrap_or_default())
            };
            let sections = match file.is_package {
                true => DwarfPackageSections::load(section).map(FileSections::Package),
                false => DwarfSections::load(section).map(FileSections::Object),
            };
            all.push(sections.expect("a damaged section is empty"));
        }
        Sections(all)
    }
}

impl Sections<'_> {
    /// Gives the context the units that the wanted addresses need, as far as there are any.
    pub(super) fn give<'c>(
        &'c self,
        context: &Context<Reader<'c>>,
        skeletons: &Skeletons,
        files: &Files,
        damage: &mut Damage,
    ) {
        for &(address, _) in &skeletons.addresses {
            for (load, resume) in context.preload_units(address) {
                let Some(&index) = files.of_units.get(&load.dwo_id) else {
                    // The skeleton is the unit then.
                    let _ = resume(None);
                    continue;
                };
                let outcome = match self.0[index].unit(&load) {
                    Ok(Some(unit)) => resume(Some(Arc::new(unit))).map_err(|e| e.to_string()),
                    Ok(None) => resume(None).map_err(|e| e.to_string()).and(Err(format!(
                        "it is of another build: it has no unit {:016x}",
                        load.dwo_id.0
                    ))),
                    Err(error) => resume(None).and(Err(error)).map_err(|e| e.to_string()),
                };
                let path = &files.files[index].bytes.path;
                if let Err(error) = outcome {
                    damage.add(damaged(path, error));
                }
            }
        }
    }
}

impl FileSections<'_> {
    /// The unit that a skeleton asks for, before all others; none where the file has no such unit.
    fn unit<'c>(
        &'c self,
        load: &SplitDwarfLoad<Reader<'c>>,
    ) -> Result<Option<Dwarf<Reader<'c>>>, DwarfError> {
        let mut dwarf = match self {
            Self::Package(sections) => {
                let package = sections.borrow(|bytes| reader(bytes), reader(&[]))?;
                match package.find_cu(load.dwo_id, &load.parent)? {
                    Some(dwarf) => dwarf,
                    None => return Ok(None),
                }
            }
            Self::Object(sections) => {
                let mut dwarf = sections.borrow(|bytes| reader(bytes));
                dwarf.make_dwo(&load.parent);
                dwarf
            }
        };
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let is_wanted = match header.type_() {
                UnitType::SplitCompilation(id) => id == load.dwo_id,
                // Before DWARF 5, the id is an attribute.
                UnitType::Compilation => dwarf.unit(header)?.dwo_id == Some(load.dwo_id),
                _ => false,
            };
            if is_wanted && let Some(offset) = header.debug_info_offset() {
                // addr2line takes the first.
                let mut units = *dwarf.debug_info.reader();
                units.skip(offset.0)?;
                dwarf.debug_info = DebugInfo::from(units);
                return Ok(Some(dwarf));
            }
        }
        Ok(None)
    }
}

/// Where a package may lie.
fn package_paths(filename: &Path, skeletons_path: &Path) -> Vec<PathBuf> {
    let with_extension = |path: &Path| {
        let mut path = path.as_os_str().to_owned();
        path.push(".dwp");
        PathBuf::from(path)
    };
    let mut paths = Vec::new();
    if let Some(name) = filename.file_name() {
        let name = with_extension(name.as_ref());
        paths.extend(debug_file::paths_by_name(filename, name.as_os_str()));
        paths.push(Path::new(debug_file::GLOBAL_DIRECTORY).join(name));
    }
    paths.push(with_extension(skeletons_path));
    if skeletons_path.extension() == Some("debug".as_ref()) {
        paths.push(with_extension(&skeletons_path.with_extension("")));
    }
    paths.retain(|path| path.is_absolute());
    paths
}
