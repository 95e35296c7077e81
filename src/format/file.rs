//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::{Error, ErrorKind, Result};

/// As many links as the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// A file being written.
///
/// A regular file is written under a temporary name (`.sigprof-….tmp`) beside it; [`commit`](Self::commit) syncs it to
/// disk, gives it its name and syncs the directory. Until then an old file of that name stays as it is, and if the
/// `OutputFile` is dropped instead, the temporary file is removed and the old one stays for good. A new file's mode is
/// 0666 less the umask; one that replaces another takes over its permission bits and, where that is allowed, its
/// owner. A symbolic link is followed: its target is replaced, not the link. Other hard links to the old file keep the
/// old content.
///
/// Devices and FIFOs, and what `/dev/stdout` and `/proc/self/fd` lead to, cannot be replaced and are written to
/// directly.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Replace {
        temporary: NamedTempFile,
        target: PathBuf,
    },
    Direct(File),
}

/// Where a path leads.
enum Target {
    /// To a regular file, or to nothing yet. The old file's metadata.
    Regular(PathBuf, Option<fs::Metadata>),
    /// To something that is written to as it is.
    Direct,
}

impl OutputFile {
    /// Begins to write a file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the path is a directory, lies in a directory that is missing or cannot be written to, or
    /// is a file that may not be written to. Opening a FIFO waits for its reader.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let sink = match resolve(path)? {
            Target::Direct => {
                let file = OpenOptions::new().append(true).open(path);
                Sink::Direct(file.map_err(|e| failure("open", path, e))?)
            }
            Target::Regular(target, old) => Sink::Replace {
                temporary: temporary_beside(path, &target, old.as_ref())?,
                target,
            },
        };
        Ok(Self {
            path: path.to_owned(),
            sink,
        })
    }

    /// Finds out, as far as that can be known before, whether a file could be written there later: makes the
    /// temporary file and removes it. For the start of a recording, so that a path that cannot work is an error
    /// before the run and not after it. A FIFO or device is not opened.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn probe(path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match resolve(path)? {
            Target::Direct => Ok(()),
            Target::Regular(target, old) => {
                let temporary = temporary_beside(path, &target, old.as_ref())?;
                temporary
                    .close()
                    .map_err(|e| failure("remove the temporary file beside", path, e))
            }
        }
    }

    /// Makes what was written the file's content.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the system cannot bring it to disk or rename it.
    pub fn commit(self) -> Result<()> {
        let path = self.path;
        match self.sink {
            Sink::Direct(mut file) => file.flush().map_err(|e| failure("write", &path, e)),
            Sink::Replace { temporary, target } => {
                let synced = temporary.as_file().sync_all();
                synced.map_err(|e| failure("sync to disk", &path, e))?;
                let renamed = temporary.persist(&target);
                renamed.map_err(|e| failure("rename the temporary file to", &path, e.error))?;
                sync_directory(directory_of(&target))
                    .map_err(|e| failure("sync the directory of", &path, e))
            }
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Replace { temporary, .. } => temporary.write(bytes),
            Sink::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Replace { temporary, .. } => temporary.flush(),
            Sink::Direct(file) => file.flush(),
        }
    }
}

fn resolve(path: &Path) -> Result<Target> {
    match fs::metadata(path) {
        Ok(old) if old.is_dir() => Err(Error::new(
            ErrorKind::Io,
            format!(
                "cannot write the file `{}`: it is a directory; give a file name in it",
                path.display()
            ),
        )),
        Ok(old) if old.is_file() && !is_descriptor(path) => {
            // Renaming over a file that we may not write to would work, but is not what its mode says.
            let writable = OpenOptions::new().write(true).open(path);
            writable.map_err(|e| failure("write", path, e))?;
            let target = fs::canonicalize(path).map_err(|e| failure("resolve", path, e))?;
            Ok(Target::Regular(target, Some(old)))
        }
        Ok(old) if old.file_type().is_socket() && !is_descriptor(path) => Err(Error::new(
            ErrorKind::Io,
            format!("cannot write the file `{}`: it is a socket", path.display()),
        )),
        Ok(_) => Ok(Target::Direct),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Ok(Target::Regular(end_of_links(path)?, None))
        }
        Err(e) => Err(failure("write", path, e)),
    }
}

/// Whether the path stands for an open file of this process, which has readers of its own: replacing the file that it
/// was opened from would leave them with the old one.
fn is_descriptor(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr"]
        .map(Path::new)
        .contains(&path)
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

/// Where a path leads that does not exist: itself, or the missing target of a symbolic link.
fn end_of_links(path: &Path) -> Result<PathBuf> {
    let mut end = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&end) {
            Ok(link) => end = directory_of(&end).join(link),
            Err(_) => return Ok(end),
        }
    }
    let message = format!(
        "cannot write the file `{}`: more than {MAX_LINKS} symbolic links lead to it",
        path.display()
    );
    Err(Error::new(ErrorKind::Io, message))
}

fn temporary_beside(
    path: &Path,
    target: &Path,
    old: Option<&fs::Metadata>,
) -> Result<NamedTempFile> {
    let directory = directory_of(target);
    if target.file_name().is_none() {
        let message = format!("cannot write the file `{}`: it has no name", path.display());
        return Err(Error::new(ErrorKind::Io, message));
    }
    let temporary = tempfile::Builder::new()
        .prefix(".sigprof-")
        .suffix(".tmp")
        .make_in(directory, |path| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o666); // the umask applies
            options.open(path)
        })
        .map_err(|e| {
            let message = format!(
                "cannot write the file `{}`: no file can be made in the directory `{}`",
                path.display(),
                directory.display()
            );
            Error::with_source(ErrorKind::Io, message, e)
        })?;
    if let Some(old) = old {
        let file = temporary.as_file();
        let new = file.metadata().map_err(|e| failure("write", path, e))?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            // Only root may give files away; for others the new file is theirs, as with any editor.
            let _ = std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()));
        }
        let mode = Permissions::from_mode(old.mode() & 0o777);
        let kept = file.set_permissions(mode);
        kept.map_err(|e| failure("keep the permissions of", path, e))?;
    }
    Ok(temporary)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory)?.sync_all() {
        // Some file systems have nothing to sync in a directory, and say so.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

fn failure(what: &str, path: &Path, error: io::Error) -> Error {
    let message = format!("cannot {what} the file `{}`", path.display());
    Error::with_source(ErrorKind::Io, message, error)
}
