//! The object behind a mapping: the one that was mapped, or none.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::object_file::{Bytes, ObjectFile};
use crate::profile::{LocationId, Mapping, Profile};
use crate::sys::maps::{Maps, MapsEntry};
use crate::sys::memory;
use crate::{Error, ErrorKind};

const DELETED: &str = " (deleted)";
const VDSO: &str = "[vdso]";
const EXECUTABLE: &str = "/proc/thread-self/exe";

/// Where to read an object.
#[derive(Debug)]
pub(super) enum Place {
    /// In this file.
    File(PathBuf),
    /// In this process's memory, where the kernel put it.
    Vdso {
        /// Its first address.
        start: u64,
        /// Behind its last one.
        end: u64,
    },
}

impl Place {
    /// The object's bytes.
    pub(super) fn bytes(&self) -> Result<Bytes, Error> {
        match self {
            Self::File(path) => Bytes::of_file(path),
            Self::Vdso { start, end } => {
                let mut bytes = vec![0; (end - start) as usize];
                let copied = memory::copy_from(*start, &mut bytes);
                copied.ok_or_else(|| {
                    let message = "the memory of the vDSO cannot be read";
                    Error::new(ErrorKind::Os, message)
                })?;
                Ok(Bytes::of_copy(VDSO.as_ref(), bytes))
            }
        }
    }
}

/// Where in the file of its object a location lies.
pub(super) fn file_offset(profile: &Profile, location: LocationId) -> Option<u64> {
    let location = profile.location(location);
    let mapping = profile.mapping(location.mapping?);
    let into = location.address.checked_sub(mapping.memory_start)?;
    into.checked_add(mapping.file_offset)
}

/// Finds objects for a profile that was probably, but not necessarily, recorded in this process.
pub(super) struct Finder {
    maps: Maps,
    /// Where `/proc/self/exe` points, without ` (deleted)`.
    executable: Option<String>,
}

impl Finder {
    /// A finder that knows what is mapped now.
    pub(super) fn of_this_process() -> Self {
        Self {
            maps: Maps::read().unwrap_or_default(),
            executable: fs::read_link(EXECUTABLE).ok().map(|path| {
                let path = path.to_string_lossy();
                path.strip_suffix(DELETED).unwrap_or(&path).to_owned()
            }),
        }
    }

    /// Where to read the object that a mapping is of.
    pub(super) fn place(&self, mapping: &Mapping) -> Result<Place, Error> {
        let here = self.entry_of(mapping);
        let unsupported = |reason| Err(Error::new(ErrorKind::Unsupported, reason));
        match mapping.filename.as_str() {
            VDSO => {
                if let Some(entry) = here {
                    return Ok(Place::Vdso {
                        start: entry.start,
                        end: entry.end,
                    });
                }
                return unsupported("the vDSO of another process cannot be read");
            }
            filename if !filename.starts_with('/') => {
                return unsupported("the memory is not mapped from a file");
            }
            _ => {}
        }
        // A file that was replaced by renaming is marked as deleted too.
        let deleted = here.filter(|entry| entry.path.ends_with(DELETED));
        // Debug information may lie beside the file, and nothing lies beside a link in `/proc`: the
        // path comes first wherever it can be seen to lead to what was mapped.
        let path = PathBuf::from(&mapping.filename);
        let is_executable = self.executable.as_deref() == Some(&mapping.filename);
        let is_known = !mapping.build_id.is_empty() || is_same_file(&path, EXECUTABLE.as_ref());
        let mut candidates = Vec::new();
        if is_executable && !is_known {
            candidates.push(PathBuf::from(EXECUTABLE));
        }
        if deleted.is_none() || !mapping.build_id.is_empty() {
            candidates.push(path);
        }
        if is_executable && is_known {
            candidates.push(PathBuf::from(EXECUTABLE));
        }
        if let Some(entry) = &deleted {
            let range = format!("{:x}-{:x}", entry.start, entry.end);
            candidates.push(Path::new("/proc/self/map_files").join(range));
        }
        let mut reason = None;
        for candidate in candidates {
            match check(&candidate, mapping) {
                Ok(()) => return Ok(Place::File(candidate)),
                Err(_) if reason.is_some() && candidate == Path::new(EXECUTABLE) => {}
                Err(error) => reason = Some(error),
            }
        }
        match reason {
            Some(reason) if deleted.is_none() => Err(reason),
            reason => Err(Error::new(
                ErrorKind::Io,
                format!(
                    "the file was deleted or replaced while it was mapped, and what was mapped can be read only \
                     with CAP_CHECKPOINT_RESTORE; symbolize before replacing it{}",
                    reason.map_or_else(String::new, |reason| format!(" ({reason})")),
                ),
            )),
        }
    }

    /// The entry of `/proc/self/maps` where this mapping begins; none if the profile is of another
    /// process or time.
    fn entry_of(&self, mapping: &Mapping) -> Option<MapsEntry<'_>> {
        self.maps.entries().find(|entry| {
            (entry.start..entry.end).contains(&mapping.memory_start)
                && entry.path.strip_suffix(DELETED).unwrap_or(entry.path) == mapping.filename
        })
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|m| (m.dev(), m.ino()));
    matches!((identity(a), identity(b)), (Ok(a), Ok(b)) if a == b)
}

/// Refuses a file that is not the mapped one, as far as build ids can tell.
fn check(path: &Path, mapping: &Mapping) -> Result<(), Error> {
    let path_shown = path.display();
    let is_file = fs::metadata(path).and_then(|metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    });
    is_file.map_err(|error| {
        Error::with_source(
            ErrorKind::Io,
            format!("{path_shown} cannot be opened"),
            error,
        )
    })?;
    if mapping.build_id.is_empty() {
        return Ok(());
    }
    let bytes = Bytes::of_file(path)?;
    let found = match ObjectFile::parse(&bytes)?.build_id()? {
        none if none.is_empty() => "none".to_owned(),
        found => found,
    };
    if found == mapping.build_id {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidData,
        format!(
            "{path_shown} is another build than the one that was mapped: its build id is {found}, not {}; \
             symbolize before replacing it",
            mapping.build_id
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_read_where_its_debug_information_lies() {
        let path = std::env::current_exe().unwrap();
        let bytes = Bytes::of_file(&path).unwrap();
        let build_id = ObjectFile::parse(&bytes).unwrap().build_id().unwrap();
        let finder = Finder::of_this_process();
        let place_of = |build_id| {
            finder.place(&Mapping {
                filename: path.to_str().unwrap().to_owned(),
                build_id,
                ..Mapping::default()
            })
        };
        for build_id in [String::new(), build_id] {
            let place = place_of(build_id);
            assert!(
                matches!(&place, Ok(Place::File(file)) if *file == path),
                "{place:?}"
            );
        }
        let error = place_of("00".to_owned()).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}
