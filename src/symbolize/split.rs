//! Split debug information: units that a compiler left in files of their own (`.dwo`), and packages
//! of such units (`.dwp`). What is linked has a skeleton of each unit: where its code lies, its
//! lines, and the name and id of what was split off (DWARF 5, 3.1.3 and 7.3; before DWARF 5 an
//! extension of GNU's).
//!
//! Looked for as GDB and LLDB do: first in packages, which have the name of the object or of its
//! debug file with `.dwp` behind it; then by the name in the skeleton, relative to the directory of
//! the compilation; and then beside the object, for a build that was moved.

use std::borrow::Cow;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gimli::{DebugCuIndex, DwarfPackageSections, DwarfSections, DwoId, LittleEndian, SectionId};
use hashbrown::HashSet;

use super::compressed::Budget;
use super::damage::Damage;
use super::debug_file;
use super::dwarf::{Dwarf, Failure, is_needed, reader};
use super::effort::{BYTES_PER_STEP, Effort};
use super::object_file::{self, Bytes, ObjectFile};
use super::units::{Root, Units};
use crate::{Error, ErrorKind};

/// What a skeleton says of the unit that was split off.
pub(super) struct Skeleton<'d> {
    id: DwoId,
    /// Where the compiler was started.
    directory: &'d Path,
    /// The file of the unit, as the compiler wrote it.
    name: &'d Path,
}

/// Of a file's name, in bytes (limits.h, `PATH_MAX`).
const LONGEST_PATH: usize = 4096;

/// Finds the files of the split units of an object.
pub(super) struct Files<'f> {
    /// The object was mapped by this name.
    filename: &'f Path,
    effort: &'f Rc<Effort>,
    packages: Vec<Package<'f>>,
    /// The last package that was there, whether it has any of the units or not.
    package_path: Option<&'f Path>,
    opened: HashSet<PathBuf>,
    /// How many files are not there, and the first of them by name.
    missing: usize,
    first_missing: Option<PathBuf>,
}

struct Package<'f> {
    path: &'f Path,
    sections: DwarfPackageSections<Cow<'f, [u8]>>,
}

/// What reads a unit that was split off.
pub(super) type Read<'r> = &'r mut dyn for<'u, 'd> FnMut(&'u Units<'d>, &'u Root<'d>);

impl<'d> Skeleton<'d> {
    /// What a unit says, if it is a skeleton.
    pub(super) fn of(units: &Units<'d>, root: &Root<'d>) -> Option<Self> {
        let path = |bytes: &'d [u8]| Path::new(OsStr::from_bytes(bytes));
        let directory = root.unit.comp_dir.map(|directory| directory.slice());
        let directory = directory.unwrap_or_default();
        let name = units.dwarf.attr_string(&root.unit, root.dwo_name?);
        let name = units.check(name.map_err(Failure::from))?.slice();
        units.check(units.effort.take(name.len() / BYTES_PER_STEP))?;
        if directory.len() + name.len() > LONGEST_PATH {
            let why = "the name of a file is longer than the system takes";
            return units.check(Err(Failure::new("the debug information", why)));
        }
        Some(Self {
            id: root.unit.dwo_id?,
            directory: path(directory),
            name: path(name),
        })
    }

    /// Where the file may lie. The first is where the compiler left it.
    fn paths(&self, filename: &Path) -> Vec<PathBuf> {
        let mut paths = vec![self.directory.join(self.name)];
        if let (Some(directory), Some(name)) = (filename.parent(), self.name.file_name()) {
            if self.name.is_relative() {
                paths.push(directory.join(self.name));
            }
            paths.push(directory.join(name));
        }
        // Where a relative one leads depends on what the host does.
        paths.retain(|path| path.is_absolute());
        paths
    }
}

/// Opens the packages of an object that was mapped by this name. `skeletons_path` is where its
/// skeletons lie.
pub(super) fn open_packages(
    filename: &Path,
    skeletons_path: &Path,
    damage: &mut Damage,
) -> Vec<Bytes> {
    let paths = package_paths(filename, skeletons_path).into_iter();
    let there = paths.filter(|path| debug_file::is_there(path));
    let packages = there.filter_map(|path| damage.check(Bytes::of_file(&path)));
    packages.collect()
}

impl<'f> Files<'f> {
    /// What knows the packages, if they have any of the units.
    pub(super) fn new(
        packages: &'f [Bytes],
        ids: &[DwoId],
        filename: &'f Path,
        effort: &'f Rc<Effort>,
        budget: &mut Budget,
        damage: &mut Damage,
    ) -> Self {
        let package = |bytes| {
            let package = Package::of(bytes, ids, effort, budget, damage);
            damage.check(package).flatten()
        };
        Self {
            filename,
            effort,
            package_path: packages.last().map(|package| &*package.path),
            packages: packages.iter().filter_map(package).collect(),
            opened: HashSet::new(),
            missing: 0,
            first_missing: None,
        }
    }

    /// Has the unit be read that was split off from this one, and answers whether there is any.
    /// What is damaged on the way is added.
    pub(super) fn find<'d>(
        &mut self,
        skeleton: &Skeleton,
        units: &Units<'d>,
        root: &Root<'d>,
        damage: &mut Damage,
        read: Read,
    ) -> bool {
        let parent = Parent {
            units,
            root,
            id: skeleton.id,
        };
        for package in &self.packages {
            match package.read(&parent, self.effort, damage, read) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => damage.add(error),
            }
        }
        let mut outcome = None;
        let paths = skeleton.paths(self.filename);
        for path in paths.iter().filter(|path| debug_file::is_there(path)) {
            let is_first = self.opened.insert(path.clone());
            match parent.read_file(path, self.effort, is_first, damage, read) {
                Ok(()) => return true,
                Err(error) => drop(outcome.get_or_insert(error)),
            }
        }
        match outcome {
            Some(error) => damage.add(error),
            None => {
                let path = skeleton.directory.join(skeleton.name);
                let first = self.first_missing.take().unwrap_or_else(|| path.clone());
                self.first_missing = Some(first.min(path));
                self.missing += 1;
            }
        }
        false
    }

    /// Says what was not there. `skeletons_path` is where the skeletons lie.
    ///
    /// # Errors
    ///
    /// Where a unit was in none of the files.
    pub(super) fn check(&self, skeletons_path: &Path) -> Result<(), Error> {
        let Some(path) = &self.first_missing else {
            return Ok(());
        };
        let others = match self.missing - 1 {
            0 => String::new(),
            1 => " and 1 other file".to_owned(),
            many => format!(" and {many} other files"),
        };
        let nor = self.package_path.map_or_else(String::new, |package| {
            format!(", and {} does not have what is in there", package.display())
        });
        let message = format!(
            "the split debug information of {} is incomplete: {}{others} cannot be found{nor}",
            skeletons_path.display(),
            path.display()
        );
        Err(Error::new(ErrorKind::Io, message))
    }
}

impl<'f> Package<'f> {
    /// A package, if it has any of the units. Its sections that are damaged are empty.
    fn of(
        bytes: &'f Bytes,
        ids: &[DwoId],
        effort: &Effort,
        budget: &mut Budget,
        damage: &mut Damage,
    ) -> Result<Option<Self>, Error> {
        const INDEX: &str = ".debug_cu_index";
        let object = ObjectFile::parse(bytes)?;
        let section = object.uncompressed(INDEX, &mut Budget::new())?;
        let index = DebugCuIndex::new(&section, LittleEndian).index();
        let index = index.map_err(|error| object.damaged(INDEX, error))?;
        if !ids.iter().any(|id| index.find(id.0).is_some()) {
            return Ok(None);
        }
        damage.check(object.check_names());
        let sections = DwarfPackageSections::load(|id| {
            // A unit is had with all its sections, or not at all. Units of types are not had.
            let name = id.dwo_name().filter(|_| id != SectionId::DebugTuIndex);
            let bytes = name.and_then(|name| damage.check(object.uncompressed(name, budget)));
            let bytes = bytes.unwrap_or_default();
            effort.allow(bytes.len());
            Ok::<_, gimli::Error>(bytes)
        });
        Ok(Some(Self {
            path: object.path(),
            sections: sections.expect("a damaged section is empty"),
        }))
    }

    /// Has a unit be read, if the package has it.
    fn read(
        &self,
        parent: &Parent,
        effort: &Rc<Effort>,
        damage: &mut Damage,
        read: Read,
    ) -> Result<bool, Error> {
        let failed = |error: gimli::Error| damaged(self.path, error.into());
        let package = self.sections.borrow(|bytes| reader(bytes), reader(&[]));
        let unit = package.and_then(|package| package.find_cu(parent.id, &parent.units.dwarf));
        match unit.map_err(failed)? {
            Some(dwarf) => parent
                .read(dwarf, self.path, effort, damage, read)
                .map(|()| true),
            None => Ok(false),
        }
    }
}

/// What says that something in such a file cannot be read. Sections have names of their own there.
fn damaged(path: &Path, Failure { what, why }: Failure) -> Error {
    match what.starts_with('.') {
        true => object_file::damaged(path, Some(&format!("{what}.dwo")), why),
        false => object_file::damaged(path, Some(what), why),
    }
}

/// The unit that another one was split off from.
struct Parent<'p, 'd> {
    units: &'p Units<'d>,
    root: &'p Root<'d>,
    id: DwoId,
}

impl Parent<'_, '_> {
    /// Has the unit in a file be read.
    ///
    /// # Errors
    ///
    /// Where the file does not have the unit.
    fn read_file(
        &self,
        path: &Path,
        effort: &Rc<Effort>,
        is_first: bool,
        damage: &mut Damage,
        read: Read,
    ) -> Result<(), Error> {
        let bytes = Bytes::of_file(path)?;
        let object = ObjectFile::parse(&bytes)?;
        let mut budget = Budget::new();
        let mut own_damage = Damage::default();
        own_damage.check(object.check_names());
        let mut outcome = Ok(());
        let Ok(sections) = DwarfSections::load(|id| {
            let name = id.dwo_name().filter(|_| is_needed(id));
            let bytes =
                name.and_then(|name| own_damage.check(object.uncompressed(name, &mut budget)));
            let bytes = bytes.unwrap_or_default();
            match (is_first, &bytes) {
                (true, bytes) => effort.allow(bytes.len()),
                // What was uncompressed for another unit is uncompressed once more.
                (false, Cow::Owned(bytes)) => outcome = outcome.and(effort.take(bytes.len())),
                (false, Cow::Borrowed(_)) => {}
            }
            Ok::<_, Infallible>(bytes)
        });
        outcome.map_err(|failure| damaged(path, failure))?;
        let mut dwarf = sections.borrow(|bytes| reader(bytes));
        dwarf.make_dwo(&self.units.dwarf);
        let outcome = self.read(dwarf, path, effort, damage, read);
        // What is damaged explains why the unit is not there.
        match (own_damage.outcome(), outcome) {
            (Err(error), Ok(())) => damage.add(error),
            (damage, outcome) => return damage.and(outcome),
        }
        Ok(())
    }

    /// Has the unit be read in what was split off.
    ///
    /// # Errors
    ///
    /// Where the unit is not in there.
    fn read<'s>(
        &self,
        dwarf: Dwarf<'s>,
        path: &Path,
        effort: &Rc<Effort>,
        damage: &mut Damage,
        read: Read,
    ) -> Result<(), Error> {
        let units = Units::new(dwarf, self.units.has_code_at_zero, effort);
        let root = units.split_unit(self.id);
        match root.map_err(|failure| damaged(path, failure))? {
            Some(mut root) => {
                root.unit.copy_relocated_attributes(&self.root.unit);
                read(&units, &root);
                if let Some(failure) = units.failure() {
                    damage.add(damaged(path, failure));
                }
                Ok(())
            }
            None => {
                let id = self.id.0;
                let why = format!("it is of another build: it has no unit {id:016x}");
                Err(object_file::damaged(
                    path,
                    Some("the debug information"),
                    why,
                ))
            }
        }
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
