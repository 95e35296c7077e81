//! Bytes outside the allocator's reach: files mapped for reading, and buffers that go back to the system whole.
//!
//! Debug information is large, read once and sparsely. Mapped, only what is touched costs memory; and memory that
//! never went through the allocator cannot stay in its free lists afterwards.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

/// Pages of this process that are its own to read, unmapped on drop.
///
/// A mapped file that somebody truncates meanwhile raises `SIGBUS` when it is read. The files mapped here are ones
/// that the process executes, whose truncation kills it anyway, and debug files, which package managers replace by
/// renaming.
#[derive(Debug)]
pub(super) struct FileMap {
    start: NonNull<u8>,
    len: usize,
    of_file: bool,
}

impl FileMap {
    /// The whole of a file.
    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Self::map(len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd())
    }

    /// New memory, filled by `fill`.
    pub(super) fn filled(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let map = Self::map(
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
        )?;
        // SAFETY: `map` is `len` zeroed bytes, mapped writable just now; nobody else has seen them yet, and the
        // exclusive borrow ends before `map` is handed out.
        fill(unsafe { std::slice::from_raw_parts_mut(map.start.as_ptr(), len) })?;
        Ok(map)
    }

    fn map(len: usize, protection: i32, flags: i32, fd: i32) -> io::Result<Self> {
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty"));
        }
        // SAFETY: a fresh mapping at an address of the kernel's choosing touches no memory that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast())
            .ok_or_else(|| io::Error::other("it was mapped at address 0"))?;
        Ok(Self {
            start,
            len,
            of_file: flags & libc::MAP_ANONYMOUS == 0,
        })
    }

    /// Returns the pages read so far to the system; they are read again when touched.
    pub(super) fn give_back_pages(&self) {
        if self.of_file {
            // SAFETY: the range is this map's own. Its pages are a file's and were never written (the mapping is
            // read-only), so they come back with the same content: shared borrows stay true.
            unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_DONTNEED) };
        }
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is `len` readable bytes and lives as long as `self`; nothing writes to it after
        // construction.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: the range is this map's own, and borrows of it end before it drops.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_survives_giving_its_pages_back() {
        let mut file = tempfile::tempfile().expect("a temporary file can be made");
        file.write_all(&[7; 10_000]).expect("it can be written");
        let map = FileMap::of_file(&file).expect("it can be mapped");
        assert_eq!(&*map, &[7; 10_000]);
        map.give_back_pages();
        assert_eq!(&*map, &[7; 10_000]);
    }

    #[test]
    fn filled_memory_survives_too_and_empty_files_are_refused() {
        let map = FileMap::filled(3, |bytes| {
            bytes.copy_from_slice(b"abc");
            Ok(())
        })
        .expect("three bytes can be had");
        map.give_back_pages();
        assert_eq!(&*map, b"abc");

        let empty = tempfile::tempfile().expect("a temporary file can be made");
        assert!(FileMap::of_file(&empty).is_err());
    }
}
