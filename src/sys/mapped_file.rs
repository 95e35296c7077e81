//! The bytes of a file, mapped to be read.

use std::ffi::c_void;
use std::io;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;

use super::brief_file;

/// A regular file in memory: pages that nobody reads take no space, and the kernel may drop those
/// that were read. No descriptor stays open for it.
///
/// Whoever truncates the file meanwhile has the reader die of SIGBUS, as with every mapped file:
/// objects and their debug files are replaced by renaming, as a rule.
#[derive(Debug)]
pub(crate) struct MappedFile {
    start: NonNull<c_void>,
    len: usize,
}

impl MappedFile {
    /// Maps a whole file.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened, is no regular file, or has no bytes.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        brief_file::with(path.as_os_str().as_bytes(), |file| {
            if !file.is_regular {
                return Err(io::Error::other("it is not a regular file"));
            }
            if file.len == 0 {
                return Err(io::Error::other("it is empty"));
            }
            let len = usize::try_from(file.len).map_err(io::Error::other)?;
            // SAFETY: a fresh mapping overlaps nothing, and the kernel checks the descriptor.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE,
                    file.descriptor(),
                    0,
                )
            };
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let start = NonNull::new(start).expect("a mapping without a hint is not at 0");
            Ok(Self { start, len })
        })
    }

    /// Lets go of the pages that were read so far. Those that are read again come from the kernel's
    /// cache of the file.
    pub(crate) fn forget(&self) {
        // SAFETY: the range is this value's own mapping; its bytes stay what they are in the file.
        unsafe { libc::madvise(self.start.as_ptr(), self.len, libc::MADV_DONTNEED) };
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has so many bytes, any bytes are numbers, and only the drop unmaps
        // them. A program that writes to the file meanwhile changes what is read, no more.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own mapping, which nobody else has a way to.
        unsafe { libc::munmap(self.start.as_ptr(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(MappedFile::open(file.path()).is_err(), "it is empty");
        std::fs::write(file.path(), "some bytes").unwrap();
        let mapped = MappedFile::open(file.path()).unwrap();
        assert_eq!(&*mapped, b"some bytes");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        for path in ["/", "/dev/zero", "/nowhere"] {
            assert!(MappedFile::open(path.as_ref()).is_err(), "{path}");
        }
    }
}
