//! Pages of our own, and stack reads that cannot fault.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::{io, slice};

/// Anonymous zeroed memory straight from the kernel: untouched pages take no space, and it all goes
/// back when it is dropped, whatever the host's allocator would do.
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

/// Zeroed numbers in pages of their own: in huge ones where the kernel has some, so that writing
/// them in no order misses fewer translations of addresses.
#[derive(Debug)]
pub(crate) struct ZeroedNumbers {
    pages: Pages,
    len: usize,
}

impl ZeroedNumbers {
    /// So many of them. Without memory for them the process ends, as with a `Vec`.
    pub(crate) fn new(len: usize) -> Self {
        let layout = Layout::array::<u64>(len).expect("a table has fewer bytes than addresses");
        let bytes = layout.size().max(1);
        let Ok(pages) = Pages::map(bytes) else {
            handle_alloc_error(layout);
        };
        // SAFETY: the range is this value's own mapping. Where there are no huge pages, others do.
        unsafe { libc::madvise(pages.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Self { pages, len }
    }
}

impl Deref for ZeroedNumbers {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        // SAFETY: the pages have this many numbers, which begin where a page does; any bytes are
        // numbers, and this value owns them.
        unsafe { slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for ZeroedNumbers {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and nobody else refers to the numbers.
        unsafe { slice::from_raw_parts_mut(self.pages.as_ptr().cast(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own mapping, and whoever holds the value holds the only
        // way to it.
        unsafe { libc::munmap(self.as_ptr().cast(), self.len) };
    }
}

/// Copies memory of this process that may be gone the next moment; `None` where it cannot be read
/// to its end.
pub(crate) fn copy_from(address: u64, into: &mut [u8]) -> Option<()> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: into.len(),
    };
    let pid = std::process::id() as libc::pid_t;
    // SAFETY: the kernel writes into the slice, as much as it says, and checks the other address
    // itself.
    let copied = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    usize::try_from(copied)
        .is_ok_and(|copied| copied == into.len())
        .then_some(())
}

/// The smallest page of the supported machines.
pub(crate) const PAGE: u64 = 4096;
const PAGE_WORDS: usize = PAGE as usize / size_of::<u64>();

/// No page's address. (Page 0 has one, which a stack pointer that leads nowhere can be in.)
const NO_PAGE: u64 = 1;

/// A copy of one page of a stack that may be gone the next moment.
#[derive(Debug)]
pub(crate) struct Window {
    /// The page's address, or [`NO_PAGE`].
    page: u64,
    words: Box<[u64; PAGE_WORDS]>,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self {
            page: NO_PAGE,
            words: Box::new([0; PAGE_WORDS]),
        }
    }

    /// Copies a page; `None` where it cannot be read. *Async-signal-safe*, but for errno.
    fn copy(&mut self, pid: libc::pid_t, page: u64) -> Option<()> {
        self.page = NO_PAGE;
        let local = libc::iovec {
            iov_base: self.words.as_mut_ptr().cast(),
            iov_len: PAGE as usize,
        };
        let remote = libc::iovec {
            iov_base: page as *mut libc::c_void,
            iov_len: PAGE as usize,
        };
        // SAFETY: the kernel writes into the window, as much as it says, and checks the other
        // address itself.
        let copied = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        (copied == PAGE as isize).then(|| self.page = page)
    }
}

/// Reads words of the interrupted thread's stack, from its stack pointer up to a limit.
///
/// Where the stack is known to stay, words are loaded. From any other, a coroutine's for instance,
/// which another thread can unmap at this moment, the kernel copies page by page (0.3 µs each), and
/// says so if it cannot.
///
/// *Async-signal-safe.*
#[derive(Debug)]
pub(crate) struct StackReader<'w> {
    low: u64,
    limit: u64,
    /// What can be read, and stays.
    lasting: std::ops::Range<u64>,
    pid: libc::pid_t,
    window: &'w mut Window,
}

impl<'w> StackReader<'w> {
    /// A reader of `[sp, limit)` in process `pid`, which is the calling one.
    ///
    /// # Safety
    ///
    /// `lasting` can be read for as long as the reader is used.
    pub(crate) unsafe fn new(
        sp: u64,
        limit: u64,
        lasting: std::ops::Range<u64>,
        pid: libc::pid_t,
        window: &'w mut Window,
    ) -> Self {
        window.page = NO_PAGE;
        Self {
            low: sp,
            limit,
            lasting,
            pid,
            window,
        }
    }

    /// A reader of words that are there, for tests.
    #[cfg(test)]
    pub(crate) fn of_words(words: &[u64], window: &'w mut Window) -> Self {
        let range = words.as_ptr_range();
        let (low, end) = (range.start as u64, range.end as u64);
        // SAFETY: tests use the reader while they hold the words.
        unsafe { Self::new(low, end, low..end, std::process::id() as i32, window) }
    }

    /// The window, for a reader of another stack.
    pub(crate) fn into_window(self) -> &'w mut Window {
        self.window
    }

    /// The end of what may be read.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The word at `address`, or `None` where it is not a readable word of the stack.
    #[inline]
    pub(crate) fn read(&mut self, address: u64) -> Option<u64> {
        if let Some(words) = self.words(address, 1) {
            return words.read(0);
        }
        self.read_copy(address)
    }

    /// The same, copied also where the stack stays, if copying is allowed: a thread can protect
    /// pages of its own stack, as a guard of a coroutine's in there, and an address that nothing
    /// proves may lead to one.
    pub(crate) fn read_with_care(&mut self, address: u64) -> Option<u64> {
        if let Some(word) = self.read_copy(address) {
            return Some(word);
        }
        let words = self.words(address, 1)?;
        let was_refused = std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT);
        was_refused.then(|| words.read(0)).flatten()
    }

    fn read_copy(&mut self, address: u64) -> Option<u64> {
        if address < self.low || address >= self.limit || !address.is_multiple_of(8) {
            return None;
        }
        let page = address & !(PAGE - 1);
        if page != self.window.page {
            self.window.copy(self.pid, page)?;
        }
        let index = (address - page) as usize / size_of::<u64>();
        self.window.words.get(index).copied()
    }

    /// The 16 bytes at a multiple of 16, which need not be of the stack.
    pub(crate) fn line(&mut self, address: u64) -> Option<[u8; 16]> {
        let page = address & !(PAGE - 1);
        if page != self.window.page {
            self.window.copy(self.pid, page)?;
        }
        let index = ((address - page) / 16 * 2) as usize;
        let low = self.window.words.get(index)?.to_ne_bytes();
        let high = self.window.words.get(index + 1)?.to_ne_bytes();
        let mut line = [0; 16];
        let (first, second) = line.split_at_mut(8);
        first.copy_from_slice(&low);
        second.copy_from_slice(&high);
        Some(line)
    }

    /// `count` words from `address` on, if they are of a stack that stays.
    #[inline]
    pub(crate) fn words(&self, address: u64, count: u64) -> Option<Words> {
        let end = address.checked_add(count.checked_mul(8)?)?;
        let is_lasting = address >= self.low.max(self.lasting.start)
            && end <= self.limit.min(self.lasting.end)
            && address.is_multiple_of(8);
        is_lasting.then_some(Words { address, count })
    }

    /// All words from `address` on that are of a stack that stays; `None` where that one is not.
    pub(crate) fn words_from(&self, address: u64) -> Option<Words> {
        let end = self.limit.min(self.lasting.end);
        self.words(address, end.checked_sub(address)? / 8)
    }
}

/// A run of words of a stack that stays. *Async-signal-safe.*
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    address: u64,
    count: u64,
}

impl Words {
    /// The word at an index.
    #[inline]
    pub(crate) fn read(self, index: u64) -> Option<u64> {
        // SAFETY: within the run, which the reader that made it knows to stay.
        (index < self.count)
            .then(|| unsafe { std::ptr::read_volatile((self.address + index * 8) as *const u64) })
    }

    /// The word at an index that counts from the end, below 0.
    #[inline]
    pub(crate) fn read_from_end(self, index: i16) -> Option<u64> {
        self.read(self.count.wrapping_add_signed(index.into()))
    }

    /// The words of the run from one address up to another one that is above it.
    #[inline]
    pub(crate) fn between(self, start: u64, end: u64) -> Option<Words> {
        let is_within = self.address <= start
            && start < end
            && end <= self.address + self.count * 8
            && (start | end).is_multiple_of(8);
        is_within.then(|| Words {
            address: start,
            count: (end - start) / 8,
        })
    }
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
        let mut window = Window::new();
        let pid = std::process::id() as libc::pid_t;
        // SAFETY: nothing is said to stay.
        let mut reader =
            unsafe { StackReader::new(start + 8, start + 4 * 4096, 0..0, pid, &mut window) };
        assert_eq!(reader.read(start + 4096 - 8), Some(42));
        assert_eq!(reader.read(start + 4096), Some(0));
        assert_eq!(reader.read(start + 8), Some(0));
        assert_eq!(reader.read(start), None, "below the stack pointer");
        assert_eq!(reader.read(start + 12), None, "not aligned");
        assert_eq!(reader.read(start + 2 * 4096), None, "unmapped");
        assert_eq!(reader.read(start + 3 * 4096), None, "not readable");
        assert_eq!(reader.read(start + 4 * 4096), None, "past the limit");
        assert_eq!(reader.read(u64::MAX - 7), None);
        assert!(reader.words(start + 8, 1).is_none(), "it may be gone");
        // SAFETY: nothing is said to stay.
        let mut reader = unsafe { StackReader::new(8, 4096, 0..0, pid, &mut window) };
        assert_eq!(reader.read(8), None, "what was copied is of another page");
        // SAFETY: the first two pages are this test's own.
        let mut reader =
            unsafe { StackReader::new(start, start + 4096, start..start + 4096, pid, &mut window) };
        assert_eq!(reader.read(start + 4096 - 8), Some(42));
        assert!(reader.words(start, 512).is_some() && reader.words(start, 513).is_none());
        // SAFETY: what is protected is only read by copies.
        let mut reader = unsafe {
            StackReader::new(
                start,
                start + 4 * 4096,
                start..start + 4 * 4096,
                pid,
                &mut window,
            )
        };
        assert_eq!(reader.read_with_care(start + 4096 - 8), Some(42));
        assert_eq!(reader.read_with_care(start + 3 * 4096), None, "protected");
        // Not unmapped: another test's memory may lie in the hole by now.
        std::mem::forget(pages);
    }
}
