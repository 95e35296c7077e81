//! Pages of our own, and stack reads that cannot fault.

use std::io;
use std::ptr::NonNull;

/// Anonymous zeroed memory straight from the kernel: untouched pages take no space, and it all goes back when it is
/// dropped, whatever the host's allocator would do.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: memory owned by this value; access to it is up to whoever holds the pointer.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps `len` bytes, rounded up to whole pages.
    pub(crate) fn map(len: usize) -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping overlaps nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start.cast()).expect("a mapping without a hint is not at 0"),
            len,
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Gives the memory back; the pages read as zeros afterwards.
    ///
    /// # Safety
    ///
    /// Nobody holds a reference into the pages or touches them while this runs.
    pub(crate) unsafe fn discard(&self) {
        // SAFETY: the range is this value's own mapping.
        unsafe { libc::madvise(self.as_ptr().cast(), self.len, libc::MADV_DONTNEED) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own mapping, and whoever holds the value holds the only way to it.
        unsafe { libc::munmap(self.as_ptr().cast(), self.len) };
    }
}

/// The smallest page of the supported machines. Probing by it is right on machines with larger pages, too.
pub(crate) const PAGE: u64 = 4096;

/// Reads words of the interrupted thread's stack: from its stack pointer up to a limit, and only from pages that can be
/// read.
///
/// The limit keeps a wrong frame pointer from leading into somebody's heap; it can come from a list of mappings that is out
/// of date. So a page that is not known to be readable is asked for first, which costs a system call, 0.1 to 0.2 µs, for
/// every 4 KiB of such a stack that an unwind crosses.
///
/// *Async-signal-safe.*
#[derive(Debug)]
pub(crate) struct StackReader {
    low: u64,
    limit: u64,
    /// Pages that can be read.
    readable: std::ops::Range<u64>,
}

impl StackReader {
    /// A reader of `[sp, limit)`.
    ///
    /// # Safety
    ///
    /// `readable` is whole pages that can be read for as long as the reader is used.
    pub(crate) unsafe fn new(sp: u64, limit: u64, readable: std::ops::Range<u64>) -> Self {
        Self {
            low: sp,
            limit,
            readable,
        }
    }

    /// The word at `address`, or `None` where it is not a readable word of the stack.
    #[inline]
    pub(crate) fn read(&mut self, address: u64) -> Option<u64> {
        if address < self.low || address >= self.limit || !address.is_multiple_of(8) {
            return None;
        }
        if !self.readable.contains(&address) {
            self.probe(address)?;
        }
        // SAFETY: the page can be read, as whoever made the reader or the kernel just said; the word is aligned and so within
        // the page; and what the interrupted thread has on its own stack stays while its handler runs.
        Some(unsafe { std::ptr::read_volatile(address as *const u64) })
    }

    /// `count` words from `address` on, if the stack is known to hold them all.
    #[inline]
    pub(crate) fn words(&self, address: u64, count: u64) -> Option<Words> {
        let end = address.checked_add(count.checked_mul(8)?)?;
        let is_known = address >= self.low.max(self.readable.start)
            && end <= self.limit.min(self.readable.end)
            && address.is_multiple_of(8);
        is_known.then_some(Words { address, count })
    }

    #[cold]
    fn probe(&mut self, address: u64) -> Option<()> {
        let page = address & !(PAGE - 1);
        if !is_readable(page) {
            return None;
        }
        let end = page.checked_add(PAGE)?;
        if page == self.readable.end {
            self.readable.end = end;
        } else {
            self.readable = page..end;
        }
        Some(())
    }
}

/// A run of words of the stack that can be read. *Async-signal-safe.*
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    address: u64,
    count: u64,
}

impl Words {
    /// The word at an index.
    #[inline]
    pub(crate) fn read(self, index: u64) -> Option<u64> {
        // SAFETY: within the run, all of which the reader that made it knows to be readable.
        (index < self.count)
            .then(|| unsafe { std::ptr::read_volatile((self.address + index * 8) as *const u64) })
    }
}

/// Whether the kernel can read a word at `address`: `rt_sigprocmask` copies the set in before it looks at the (here
/// invalid) operation, so it answers `EINVAL` for a readable address and `EFAULT` for another, and changes nothing.
/// *Async-signal-safe*, but for errno.
pub(crate) fn is_readable(address: u64) -> bool {
    const NO_OPERATION: libc::c_int = -1;
    const SIGSET_BYTES: usize = 8;
    // SAFETY: the kernel reads 8 bytes at the address, or says that it cannot.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            NO_OPERATION,
            address,
            std::ptr::null_mut::<libc::c_void>(),
            SIGSET_BYTES,
        )
    };
    // SAFETY: the C library's errno of this thread.
    answer == -1 && unsafe { *libc::__errno_location() } == libc::EINVAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there_and_refuses_the_rest() {
        let pages = Pages::map(4 * 4096).unwrap();
        let start = pages.as_ptr() as u64;
        // SAFETY: inside the mapping, aligned.
        unsafe { (pages.as_ptr().add(4096 - 8)).cast::<u64>().write(42) };
        // SAFETY: the last two pages are nobody's yet: one is taken away, one made unreadable.
        unsafe {
            libc::munmap(pages.as_ptr().add(2 * 4096).cast(), 4096);
            libc::mprotect(pages.as_ptr().add(3 * 4096).cast(), 4096, libc::PROT_NONE);
        }
        // SAFETY: no pages are said to be readable.
        let mut reader = unsafe { StackReader::new(start + 8, start + 4 * 4096, 0..0) };
        assert_eq!(reader.read(start + 4096 - 8), Some(42));
        assert_eq!(reader.read(start + 4096), Some(0));
        assert_eq!(reader.read(start + 8), Some(0));
        assert_eq!(reader.read(start), None, "below the stack pointer");
        assert_eq!(reader.read(start + 12), None, "not aligned");
        assert_eq!(reader.read(start + 2 * 4096), None, "unmapped");
        assert_eq!(reader.read(start + 3 * 4096), None, "not readable");
        assert_eq!(reader.read(start + 4 * 4096), None, "past the limit");
        assert_eq!(reader.read(u64::MAX - 7), None);
        // Not unmapped: another test's memory may lie in the hole by now.
        std::mem::forget(pages);
    }
}
