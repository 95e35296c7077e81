//! The file that holds the debug information that an object was stripped of.
//!
//! Looked for as GDB does ("Debugging Information in Separate Files" in its manual): by build id in
//! the global directory; then by the name in `.gnu_debuglink` beside the object, in `.debug` there,
//! and under the global directory by the object's whole path; and then in the cache of debuginfod's
//! clients. Without `.gnu_debuglink` the name is the object's with `.debug` behind it, as elfutils
//! has it (`dwfl_standard_find_debuginfo`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use flate2::Crc;

use super::debuginfod;
use super::object_file::{Bytes, ObjectFile};
use super::opened::Problems;
use super::raw_symbols::Table;
use crate::Error;

pub(super) const GLOBAL_DIRECTORY: &str = "/usr/lib/debug";

/// What shows that a file belongs to an object.
#[derive(Clone, Copy, Debug)]
enum Proof<'d> {
    BuildId(&'d str),
    /// The CRC-32 of the whole file, as `.gnu_debuglink` has it. The build id counts more, where
    /// both files have one: it needs no reading of the whole file.
    Crc(u32, &'d str),
}

/// The debug file of an object that was mapped by this name, if the object needs one. Files that
/// are there and do not belong to the object are problems.
pub(super) fn find(object: &ObjectFile, filename: &Path, problems: &mut Problems) -> Option<Bytes> {
    // What has one of them was not stripped, unless it is damaged, or holds nothing.
    if object.has_bytes(".debug_info") && object.has_symbols(Table::Symtab) {
        return None;
    }
    let build_id = object.build_id().unwrap_or_default();
    let link = problems.check(debug_link(object)).flatten();
    let name = match &link {
        Some(link) => Some((link.name.to_owned(), Proof::Crc(link.crc, &build_id))),
        // Nothing else would show that such a file belongs to it.
        None if build_id.is_empty() => None,
        None => usual_name(filename).map(|name| (name, Proof::BuildId(&build_id))),
    };
    let by_name = name.iter().flat_map(|(name, proof)| {
        let paths = paths_by_name(filename, name).into_iter();
        paths.map(|path| (path, *proof))
    });
    let by_build_id = |path| (path, Proof::BuildId(&build_id));
    let candidates = (path_by_build_id(&build_id).map(by_build_id).into_iter())
        .chain(by_name)
        .chain(debuginfod::cached(&build_id).map(by_build_id));
    for (path, proof) in candidates {
        // The object may be named by its own debug link, as one that was stripped in place.
        if !is_there(&path) || is_same(&path, object.path()) {
            continue;
        }
        let file = Bytes::of_file(&path).and_then(|file| check(&file, proof).map(|()| file));
        if let Some(file) = problems.check(file) {
            return Some(file);
        }
    }
    None
}

/// Where the debug file of a build id may lie.
pub(super) fn by_build_id(build_id: &str) -> impl Iterator<Item = PathBuf> {
    let path = path_by_build_id(build_id).into_iter();
    path.chain(debuginfod::cached(build_id))
}

/// Whether there is such a file. An empty one says that a server of debuginfod's has none.
pub(super) fn is_there(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0)
}

fn is_same(path: &Path, object: &Path) -> bool {
    path == object
        || matches!((path.canonicalize(), object.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn path_by_build_id(build_id: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(2)?;
    // A shorter one is no hash, and could be anybody's.
    (rest.len() >= 6).then(|| {
        Path::new(GLOBAL_DIRECTORY)
            .join(".build-id")
            .join(first)
            .join(format!("{rest}.debug"))
    })
}

fn usual_name(filename: &Path) -> Option<OsString> {
    let mut name = filename.file_name()?.to_owned();
    name.push(".debug");
    Some(name)
}

/// Where a file of this name may lie that belongs to an object of that one.
pub(super) fn paths_by_name(filename: &Path, name: &OsStr) -> Vec<PathBuf> {
    // The directory that the object is in, not one with a link to it. The object may be gone.
    let file = filename.canonicalize();
    let directory = match &file {
        Ok(file) => file.parent(),
        Err(_) => filename.parent(),
    };
    let Some(directory) = directory.filter(|directory| directory.is_absolute()) else {
        return Vec::new();
    };
    let from_root = directory.strip_prefix("/").unwrap_or(directory);
    vec![
        directory.join(name),
        directory.join(".debug").join(name),
        Path::new(GLOBAL_DIRECTORY).join(from_root).join(name),
    ]
}

struct DebugLink<'d> {
    /// Of the file alone.
    name: &'d OsStr,
    crc: u32,
}

/// What `.gnu_debuglink` says: a name, a zero byte, padding to a multiple of four bytes, and the
/// CRC-32 of the file.
fn debug_link<'d>(object: &ObjectFile<'d>) -> Result<Option<DebugLink<'d>>, Error> {
    const SECTION: &str = ".gnu_debuglink";
    let Some(bytes) = object.stored(SECTION)? else {
        return Ok(None);
    };
    let parse = || {
        let end = bytes.iter().position(|&byte| byte == 0)?;
        let crc = bytes.get((end + 1).next_multiple_of(4)..)?.first_chunk()?;
        let name = OsStr::from_bytes(&bytes[..end]);
        let is_name = Path::new(name).file_name() == Some(name);
        is_name.then_some(DebugLink {
            name,
            crc: u32::from_le_bytes(*crc),
        })
    };
    match parse() {
        Some(link) => Ok(Some(link)),
        None => Err(object.damaged(SECTION, "it holds no name and checksum")),
    }
}

/// Refuses a file that does not belong to the object.
fn check(file: &Bytes, proof: Proof) -> Result<(), Error> {
    let parsed = ObjectFile::parse(file)?;
    let found = parsed.build_id()?;
    let of_another = |what: &str, found: &str, expected: &str| {
        let message =
            format!("the debug file is of another build: its {what} is {found}, not {expected}");
        Err(parsed.damaged("the debug information", message))
    };
    match proof {
        Proof::BuildId(build_id) | Proof::Crc(_, build_id)
            if !build_id.is_empty() && !found.is_empty() =>
        {
            match found == build_id {
                true => Ok(()),
                false => of_another("build id", &found, build_id),
            }
        }
        Proof::BuildId(build_id) => of_another("build id", "none", build_id),
        Proof::Crc(expected, _) => {
            let mut crc = Crc::new();
            crc.update(file);
            match crc.sum() == expected {
                true => Ok(()),
                false => of_another(
                    "CRC",
                    &format!("{:08x}", crc.sum()),
                    &format!("{expected:08x}"),
                ),
            }
        }
    }
}
