//! The file behind a mapping: the one that was mapped, or none.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::image::{self, Elf, Image};
use crate::profile::Mapping;
use crate::{Error, ErrorKind};

const DELETED: &str = " (deleted)";

/// Where separate debug files lie, by build id.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug/.build-id";

/// Finds objects for a profile that was probably, but not necessarily, recorded in this process.
pub(super) struct Finder {
    /// `/proc/self/maps`.
    maps: String,
    /// Where `/proc/self/exe` points, without ` (deleted)`.
    executable: Option<String>,
}

impl Finder {
    /// A finder that knows what is mapped now.
    pub(super) fn of_this_process() -> Self {
        Self {
            maps: fs::read("/proc/self/maps")
                .map(|maps| String::from_utf8_lossy(&maps).into_owned())
                .unwrap_or_default(),
            executable: fs::read_link("/proc/self/exe").ok().map(|path| {
                let path = path.to_string_lossy();
                path.strip_suffix(DELETED).unwrap_or(&path).to_owned()
            }),
        }
    }

    /// The object that a mapping is of.
    pub(super) fn image(&self, mapping: &Mapping) -> Result<Image, Error> {
        let here = self.line_of(mapping);
        match mapping.filename.as_str() {
            "[vdso]" => return from_memory(mapping, here.is_some()),
            filename if !filename.starts_with('/') => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the memory is not mapped from a file",
                ));
            }
            _ => {}
        }
        // A file that was replaced by renaming is marked as deleted too.
        let deleted = here.is_some_and(|line| line.ends_with(DELETED));
        let path = Path::new(&mapping.filename);
        let mut candidates = Vec::new();
        if self.executable.as_deref() == Some(&mapping.filename) {
            candidates.push(PathBuf::from("/proc/self/exe"));
        }
        if !deleted || !mapping.build_id.is_empty() {
            candidates.push(path.to_owned());
        }
        if let Some(range) = here
            .filter(|_| deleted)
            .and_then(|line| line.split(' ').next())
        {
            candidates.push(Path::new("/proc/self/map_files").join(range));
        }
        let mut reason = None;
        for candidate in candidates {
            match matching(&candidate, mapping) {
                Ok(image) => return Ok(image),
                Err(error) => reason = Some(error),
            }
        }
        match reason {
            Some(reason) if !deleted => Err(reason),
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

    /// The debug file of an object, where one is installed.
    pub(super) fn debug_image(&self, elf: &Elf<'_>) -> Option<Image> {
        let build_id = image::build_id(elf);
        let (directory, file) = build_id.split_at_checked(2)?;
        let path = Path::new(DEBUG_DIRECTORY)
            .join(directory)
            .join(format!("{file}.debug"));
        let image = Image::open(&path).ok()?;
        let same = image.elf().ok().map(|elf| image::build_id(&elf)) == Some(build_id);
        same.then_some(image)
    }

    /// The line of `/proc/self/maps` where this mapping begins; none if the profile is of another process or time.
    fn line_of(&self, mapping: &Mapping) -> Option<&str> {
        self.maps.lines().find(|line| {
            let mut fields = line.splitn(6, ' ');
            let range = fields.next().and_then(|range| range.split_once('-'));
            let path = fields.nth(4).unwrap_or_default().trim_start();
            let hex = |number| u64::from_str_radix(number, 16).unwrap_or(0);
            range.is_some_and(|(start, limit)| {
                (hex(start)..hex(limit)).contains(&mapping.memory_start)
            }) && path.strip_suffix(DELETED).unwrap_or(path) == mapping.filename
        })
    }
}

/// Opens a file, if it is the mapped one as far as build ids can tell.
fn matching(path: &Path, mapping: &Mapping) -> Result<Image, Error> {
    let image = Image::open(path).map_err(|error| {
        Error::with_source(
            ErrorKind::Io,
            format!("{} cannot be opened", path.display()),
            error,
        )
    })?;
    let found = image::build_id(&image.elf()?);
    if mapping.build_id.is_empty() || mapping.build_id == found {
        return Ok(image);
    }
    let found = match found.as_str() {
        "" => "none",
        found => found,
    };
    Err(Error::new(
        ErrorKind::InvalidData,
        format!(
            "{} is another build than the one that was mapped: its build id is {found}, not {}; \
             symbolize before replacing it",
            path.display(),
            mapping.build_id
        ),
    ))
}

/// Copies an object out of this process's memory.
fn from_memory(mapping: &Mapping, is_here: bool) -> Result<Image, Error> {
    if !is_here {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "the vDSO of another process cannot be read",
        ));
    }
    // The range is one that the kernel lists as mapped, and the read goes through the kernel: it fails rather than
    // faults.
    let read = || -> io::Result<Image> {
        let memory = File::open("/proc/self/mem")?;
        let len = mapping.memory_limit - mapping.memory_start;
        Image::filled(usize::try_from(len).map_err(io::Error::other)?, |bytes| {
            memory.read_exact_at(bytes, mapping.memory_start)
        })
    };
    let image = read().map_err(|error| {
        Error::with_source(ErrorKind::Os, "the vDSO cannot be read from memory", error)
    })?;
    match mapping.build_id.is_empty() || mapping.build_id == image::build_id(&image.elf()?) {
        true => Ok(image),
        false => Err(Error::new(
            ErrorKind::InvalidData,
            "the vDSO is another build than this kernel's",
        )),
    }
}
