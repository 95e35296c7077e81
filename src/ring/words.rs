//! The storage of a lane: words that one side writes while the other reads others.

use std::io;

#[cfg(not(loom))]
pub(super) use plain::Words;
#[cfg(loom)]
pub(super) use tracked::Words;

#[cfg(not(loom))]
mod plain {
    use super::io;
    use crate::sys::memory::Pages;

    /// Words in pages of their own, touched only when used, so that an idle lane takes no memory.
    #[derive(Debug)]
    pub(in crate::ring) struct Words {
        pages: Pages,
        len: usize,
    }

    // SAFETY: the words are plain memory; who may touch which of them is the lane's protocol, and
    // the methods that touch them are unsafe.
    unsafe impl Sync for Words {}

    impl Words {
        pub(in crate::ring) fn new(len: usize) -> io::Result<Self> {
            Ok(Self {
                pages: Pages::map(len * size_of::<u64>())?,
                len,
            })
        }

        pub(in crate::ring) fn len(&self) -> usize {
            self.len
        }

        /// # Safety
        ///
        /// Nobody writes these words while the slice lives.
        pub(in crate::ring) unsafe fn read(&self, start: usize, len: usize) -> &[u64] {
            debug_assert!(start + len <= self.len);
            // SAFETY: the range lies within the pages, which are initialized (zeroed by the kernel)
            // and aligned; nobody writes it, by the caller's contract.
            unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast::<u64>().add(start), len) }
        }

        /// # Safety
        ///
        /// Nobody else reads or writes these words while the slice lives.
        #[expect(clippy::mut_from_ref, reason = "exclusive by the lane's protocol")]
        pub(in crate::ring) unsafe fn write(&self, start: usize, len: usize) -> &mut [u64] {
            debug_assert!(start + len <= self.len);
            // SAFETY: as in `read`; exclusive by the caller's contract.
            unsafe {
                std::slice::from_raw_parts_mut(self.pages.as_ptr().cast::<u64>().add(start), len)
            }
        }

        /// # Safety
        ///
        /// Nobody reads or writes any word while this runs.
        pub(in crate::ring) unsafe fn release_memory(&self) {
            // SAFETY: nobody holds a slice of the pages, by the caller's contract.
            unsafe { self.pages.discard() };
        }
    }
}

#[cfg(loom)]
mod tracked {
    use std::cell::UnsafeCell;

    use super::io;
    use crate::sync::Tracked;

    /// Words whose every access is shown to loom, which finds the ones that are not ordered.
    #[derive(Debug)]
    pub(in crate::ring) struct Words {
        words: UnsafeCell<Box<[u64]>>,
        accesses: Box<[Tracked<()>]>,
    }

    // SAFETY: loom runs one thread at a time, and `accesses` finds unordered accesses.
    unsafe impl Sync for Words {}

    impl Words {
        pub(in crate::ring) fn new(len: usize) -> io::Result<Self> {
            Ok(Self {
                words: UnsafeCell::new(vec![0; len].into()),
                accesses: (0..len).map(|_| Tracked::new(())).collect(),
            })
        }

        pub(in crate::ring) fn len(&self) -> usize {
            self.accesses.len()
        }

        pub(in crate::ring) unsafe fn read(&self, start: usize, len: usize) -> &[u64] {
            for access in &self.accesses[start..start + len] {
                access.with(|_| ());
            }
            // SAFETY: in range; ordering is what the model checks.
            unsafe { std::slice::from_raw_parts((*self.words.get()).as_ptr().add(start), len) }
        }

        #[expect(clippy::mut_from_ref, reason = "exclusive by the lane's protocol")]
        pub(in crate::ring) unsafe fn write(&self, start: usize, len: usize) -> &mut [u64] {
            for access in &self.accesses[start..start + len] {
                access.with_mut(|_| ());
            }
            // SAFETY: in range; ordering is what the model checks.
            unsafe {
                std::slice::from_raw_parts_mut((*self.words.get()).as_mut_ptr().add(start), len)
            }
        }

        pub(in crate::ring) unsafe fn release_memory(&self) {}
    }
}
