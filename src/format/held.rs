//! Files that a process can write in the end, whatever it has become by then.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Format, OutputFile, write_to};
use crate::sys::process::is_root;
use crate::{Profile, Result};

/// The file that a profile will be written to when it is complete. Until then a process that began
/// as root may have another root directory, or be a user who may not write there: so such a process
/// opens the file at once, as gperftools does, which is empty until then if it is new.
#[derive(Debug)]
pub(crate) struct HeldFile {
    path: PathBuf,
    open: Option<Open>,
}

/// A file that was opened at the start.
#[derive(Debug)]
struct Open {
    /// The program may have closed the descriptor, and have another file by its number: see `file`.
    /// Taken when this is dropped.
    file: Option<File>,
    id: FileId,
    /// The root directory then.
    root: Option<FileId>,
}

/// Device and inode.
type FileId = (u64, u64);

fn id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

fn root() -> Option<FileId> {
    fs::metadata("/").ok().as_ref().map(id)
}

impl HeldFile {
    /// The file at `path`, an absolute one, that an [`OutputFile`] could be made for.
    pub(crate) fn new(path: PathBuf) -> Self {
        let open = is_root().then(|| Open::new(&path)).flatten();
        Self { path, open }
    }

    /// The same without opening the file.
    pub(crate) fn unopened(path: PathBuf) -> Self {
        Self { path, open: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a profile: as [`Profile::save_as`] does, or into the file that was opened, where the
    /// path leads to the file no more, or this process may not replace the file.
    ///
    /// # Errors
    ///
    /// Those of [`Profile::save_as`]. A file that could not be replaced, and that the system then
    /// refuses to take all of, is not whole.
    pub(crate) fn save(&self, profile: &Profile, format: Format) -> Result<()> {
        let open = self
            .open
            .as_ref()
            .and_then(|open| Some((open.file()?, open)));
        let Some((file, open)) = open else {
            return profile.save_as(&self.path, format);
        };
        if open.root == root() {
            match OutputFile::create(&self.path) {
                Ok(output) => return profile.save_to(output, &self.path, format),
                // Nothing would lead to what was written.
                Err(error) if file.metadata().is_ok_and(|now| now.nlink() == 0) => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        let mut bytes = Vec::new();
        write_to(profile, format, &mut bytes)
            .and_then(|()| Ok(overwrite(file, &bytes)?))
            .map_err(|e| e.into_error(format_args!("`{}`", self.path.display())))
    }
}

fn overwrite(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    // Each write is at the end, so the next one follows from the beginning.
    file.write_all(bytes)?;
    file.sync_all()
}

impl Open {
    fn new(path: &Path) -> Option<Self> {
        if OutputFile::is_direct(path) {
            return None;
        }
        let file = OpenOptions::new().append(true).create(true).open(path);
        let mut file = file.ok()?;
        // The program may have closed one of the standard streams, and would write to the file that
        // has its number: a duplicate has another.
        if file.as_raw_fd() <= libc::STDERR_FILENO {
            file = file.try_clone().ok()?;
        }
        Some(Self {
            id: id(&file.metadata().ok()?),
            file: Some(file),
            root: root(),
        })
    }

    /// The file, if the descriptor is still its own.
    fn file(&self) -> Option<&File> {
        let file = self.file.as_ref()?;
        (id(&file.metadata().ok()?) == self.id).then_some(file)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.file().is_none()
            && let Some(not_ours) = self.file.take()
        {
            // Left open.
            let _ = not_ours.into_raw_fd();
        }
    }
}
