//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};

use tempfile::NamedTempFile;

use crate::sys::brief_file::read_to_string;
use crate::{Error, ErrorKind, Result};

/// As many links as the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// A file being written.
///
/// A regular file is written under a temporary name (`.sigprof-….tmp`) beside it;
/// [`commit`](Self::commit) syncs it to disk, gives it its name and syncs the directory. Until then
/// an old file of that name stays as it is, and if the `OutputFile` is dropped instead, the
/// temporary file is removed and the old one stays for good. A new file's mode is 0666 less the
/// umask; one that replaces another takes over its permission bits and, where that is allowed, its
/// owner. A symbolic link is followed: its target is replaced, not the link. Other hard links to
/// the old file keep the old content.
///
/// Devices and FIFOs, and what `/dev/stdout` and `/proc/<pid>/fd` lead to, cannot be replaced and
/// are written to directly.
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
    Direct { is_fifo: bool },
}

impl OutputFile {
    /// Begins to write a file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the path is a directory, lies in a directory that is missing or cannot
    /// be written to, or is a file that may not be written to or replaced, or a FIFO that nobody
    /// reads.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let sink = match resolve(path)? {
            Target::Direct { is_fifo: true } => Sink::Direct(open_fifo(path)?),
            Target::Direct { is_fifo: false } => {
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

    /// Finds out, as far as that can be known before, whether a file could be written there later:
    /// makes the temporary file and removes it. For the start of a recording, so that a path that
    /// cannot work is an error before the run and not after it. A FIFO or device is not opened.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn probe(path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match resolve(path)? {
            Target::Direct { .. } => Ok(()),
            Target::Regular(target, old) => {
                let temporary = temporary_beside(path, &target, old.as_ref())?;
                temporary
                    .close()
                    .map_err(|e| failure("remove the temporary file beside", path, without_path(e)))
            }
        }
    }

    /// Whether what is there cannot be replaced, and would be written to as it is.
    pub(crate) fn is_direct(path: &Path) -> bool {
        matches!(resolve(path), Ok(Target::Direct { .. }))
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
                renamed.map_err(|e| match e.error.kind() {
                    io::ErrorKind::ResourceBusy => refusal(
                        &path,
                        libc::EBUSY,
                        "a file is mounted there, which cannot be replaced; mount its directory instead",
                    ),
                    _ => failure("rename the temporary file to", &path, e.error),
                })?;
                sync_directory(directory_of(&target))
                    .map_err(|e| failure("sync the directory of", &path, e))
            }
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            // The errors of the `NamedTempFile` itself name a path that nobody gave.
            Sink::Replace { temporary, .. } => temporary.as_file_mut().write(bytes),
            Sink::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Replace { temporary, .. } => temporary.as_file_mut().flush(),
            Sink::Direct(file) => file.flush(),
        }
    }
}

fn resolve(path: &Path) -> Result<Target> {
    match fs::metadata(path) {
        Ok(old) if old.is_dir() => Err(refusal(
            path,
            libc::EISDIR,
            "it is a directory; give a file name in it",
        )),
        Ok(old) if old.is_file() && !is_descriptor(path) => {
            // Renaming over a file that we may not write to would work, but is not what its mode
            // says.
            let writable = OpenOptions::new().write(true).open(path);
            writable.map_err(|e| failure("write", path, e))?;
            let target = fs::canonicalize(path).map_err(|e| failure("resolve", path, e))?;
            Ok(Target::Regular(target, Some(old)))
        }
        Ok(old) if old.file_type().is_socket() && !is_descriptor(path) => {
            Err(refusal(path, libc::ENXIO, "it is a socket"))
        }
        Ok(old) => Ok(Target::Direct {
            is_fifo: old.file_type().is_fifo(),
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let end = end_of_links(path)?;
            let bytes = end.as_os_str().as_encoded_bytes();
            match [b"/".as_slice(), b"/."]
                .iter()
                .any(|slash| bytes.ends_with(slash))
            {
                true => Err(refusal(
                    path,
                    libc::EISDIR,
                    "a path that ends in `/` is a directory's; give a file name in it",
                )),
                false => Ok(Target::Regular(end, None)),
            }
        }
        Err(e) => Err(failure("write", path, e)),
    }
}

/// Whether the path stands for an open file of this process, which has readers of its own:
/// replacing the file that it was opened from would leave them with the old one.
fn is_descriptor(path: &Path) -> bool {
    if ["/dev/stdout", "/dev/stderr"]
        .map(Path::new)
        .contains(&path)
        || path.starts_with("/dev/fd")
    {
        return true;
    }
    // `/proc/<pid>/fd` and `/proc/<pid>/task/<tid>/fd`, where a process may be `self` or
    // `thread-self`.
    let Ok(below) = path.strip_prefix("/proc") else {
        return false;
    };
    let names: Vec<_> = below.components().map(Component::as_os_str).collect();
    match names.as_slice() {
        [_, task, _, fd, _, ..] if *task == "task" => *fd == "fd",
        [_, fd, _, ..] => *fd == "fd",
        _ => false,
    }
}

/// Opens a FIFO that has a reader, and does not wait for one: that could be for good, at the end of
/// the host.
fn open_fifo(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).custom_flags(libc::O_NONBLOCK);
    let fifo = options.open(path).map_err(|e| match e.raw_os_error() {
        Some(libc::ENXIO) => refusal(path, libc::ENXIO, "it is a FIFO, and nobody reads the FIFO"),
        _ => failure("open", path, e),
    })?;
    // Writing waits again. The standard library has the call for sockets alone; it works on all
    // files.
    let stream = UnixStream::from(OwnedFd::from(fifo));
    let blocking = stream.set_nonblocking(false);
    blocking.map_err(|e| failure("open", path, e))?;
    Ok(File::from(OwnedFd::from(stream)))
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
    Err(refusal(
        path,
        libc::ELOOP,
        format_args!("more than {MAX_LINKS} symbolic links lead to it"),
    ))
}

fn temporary_beside(
    path: &Path,
    target: &Path,
    old: Option<&fs::Metadata>,
) -> Result<NamedTempFile> {
    let directory = directory_of(target);
    if target.file_name().is_none() {
        return Err(refusal(path, libc::EISDIR, "it has no name"));
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
            Error::with_source(ErrorKind::Io, message, without_path(e))
        })?;
    if let Some(old) = old {
        let file = temporary.as_file();
        let new = file.metadata().map_err(|e| failure("write", path, e))?;
        if is_sticky_for(directory, new.uid(), old) {
            let message = format!(
                "it belongs to another user, and in the sticky directory `{}` only its owner may replace it",
                directory.display()
            );
            return Err(refusal(path, libc::EPERM, message));
        }
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

/// Whether the directory is one like `/tmp`, where this user may not replace the file of another.
fn is_sticky_for(directory: &Path, user: u32, old: &fs::Metadata) -> bool {
    const CAP_FOWNER: u32 = 3;
    let Ok(directory) = fs::metadata(directory) else {
        return false;
    };
    let is_theirs =
        directory.mode() & libc::S_ISVTX != 0 && old.uid() != user && directory.uid() != user;
    is_theirs && !has_capability(CAP_FOWNER).unwrap_or(user == 0)
}

/// Whether this thread has a capability; none if that cannot be known.
fn has_capability(number: u32) -> Option<bool> {
    let status = read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    let capabilities = u64::from_str_radix(line.trim(), 16).ok()?;
    Some(capabilities >> number & 1 == 1)
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

fn refusal(path: &Path, code: i32, reason: impl std::fmt::Display) -> Error {
    let message = format!("cannot write the file `{}`: {reason}", path.display());
    Error::with_code(ErrorKind::Io, message, code)
}

/// An error of `tempfile` without the temporary file's path, which nobody gave.
fn without_path(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|e| e.source());
    let inner = inner.and_then(|e| e.downcast_ref::<io::Error>());
    match inner.and_then(io::Error::raw_os_error) {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error,
    }
}
