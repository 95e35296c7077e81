//! The stack that a thread was born with.
//!
//! Both C libraries put a thread's control block at the top of the stack that they start it on. Where all pages from the
//! stack pointer up to that block can be read, they are that stack, and it stays as long as the thread does: so a page that was
//! found readable once is not asked for again. A coroutine's stack, or an alternate signal stack, is not the thread's for
//! good and has a gap or a guard page between; it is looked at page by page each time.

use std::ops::Range;

use crate::sys::memory::{PAGE, is_readable};

/// The deepest stack, in bytes, that is looked at as a whole. A deeper one is read page by page.
const MAX_DEPTH: u64 = 256 * 1024;

/// Who is sampled: what tells one thread from another, also from one that had its place before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ThreadKey {
    /// Where its control block lies.
    pub(crate) thread_pointer: u64,
    /// Its serial number, or its id.
    pub(crate) number: u32,
}

/// What is known of the stack of the thread that was last unwound here.
#[derive(Debug, Default)]
pub(super) struct OwnStack {
    thread: ThreadKey,
    /// Whole pages, up to and including that of the control block.
    readable: Range<u64>,
}

impl OwnStack {
    /// The readable part, from the stack pointer's page up, of the stack that `thread` was born with; empty where it is on
    /// another one. *Async-signal-safe.*
    pub(super) fn readable(&mut self, thread: ThreadKey, sp: u64) -> Range<u64> {
        if self.thread == thread && self.readable.contains(&sp) {
            return self.readable.clone();
        }
        self.look(thread, sp).unwrap_or(0..0)
    }

    #[cold]
    fn look(&mut self, thread: ThreadKey, sp: u64) -> Option<Range<u64>> {
        let top = thread.thread_pointer & !(PAGE - 1);
        let start = sp & !(PAGE - 1);
        let depth = top.checked_sub(start)?;
        if depth > MAX_DEPTH {
            return None;
        }
        // What is known of this thread need not be asked again: the stack has only grown since.
        let known = match self.thread == thread {
            true => self.readable.start,
            false => top,
        };
        let mut page = known.min(top);
        while page > start {
            page -= PAGE;
            if !is_readable(page) {
                return None;
            }
        }
        self.thread = thread;
        self.readable = start..top.checked_add(PAGE)?;
        Some(self.readable.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory::Pages;
    use crate::sys::thread::thread_pointer;

    #[test]
    fn a_threads_own_stack_is_known_and_another_is_not() {
        std::thread::spawn(|| {
            let thread = ThreadKey {
                thread_pointer: thread_pointer(),
                number: 1,
            };
            let local = 0_u64;
            let sp = &raw const local as u64;
            let mut own = OwnStack::default();
            let range = own.readable(thread, sp);
            assert!(range.contains(&sp) && range.contains(&thread.thread_pointer));
            assert_eq!(own.readable(thread, sp), range, "remembered");
            let elsewhere = Pages::map(4096).unwrap();
            assert_eq!(own.readable(thread, elsewhere.as_ptr() as u64), 0..0);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_gap_below_the_control_block_is_no_stack() {
        let pages = Pages::map(4 * 4096).unwrap();
        let start = pages.as_ptr() as u64;
        // SAFETY: the second page of a mapping of the test's own.
        unsafe { libc::mprotect(pages.as_ptr().add(4096).cast(), 4096, libc::PROT_NONE) };
        let thread = ThreadKey {
            thread_pointer: start + 3 * 4096 + 64,
            number: 1,
        };
        let mut own = OwnStack::default();
        assert_eq!(own.readable(thread, start + 8), 0..0);
        assert_eq!(
            own.readable(thread, start + 2 * 4096 + 8),
            start + 2 * 4096..start + 4 * 4096
        );
        assert_eq!(own.readable(thread, start + 8), 0..0);
    }
}
