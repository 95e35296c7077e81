//! The bounds of the stack that a thread was born with.
//!
//! glibc keeps them in each thread's control block and tells them through `pthread_getattr_np`,
//! which allocates and so is not for a handler. Where in the block they lie is not promised. So
//! ordinary code looks for them once, in the block of a thread whose bounds it was told, and a
//! handler reads the same place in the block of its own thread.

use std::ops::Range;

use super::thread::thread_pointer;

/// Where among the words that are searched glibc keeps the lowest address of the thread's stack,
/// its size and its guard's size: three words, one after the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BoundsPlace(usize);

/// How far a control block is searched; glibc's is about 2.3 KiB long.
const SEARCHED_WORDS: usize = 2048 / size_of::<usize>();

/// The first of the words that are searched, in the control block of the calling thread.
///
/// On x86_64 the block begins at the thread pointer, on aarch64 it ends there; below it is the
/// thread's stack.
fn searched() -> *const usize {
    let below = match cfg!(target_arch = "aarch64") {
        true => SEARCHED_WORDS,
        false => 0,
    };
    (thread_pointer() as *const usize).wrapping_sub(below)
}

impl BoundsPlace {
    /// Finds the place in the block of the calling thread, which must be one that glibc started on
    /// a stack of its own. `None` where it cannot be found: another C library, or a glibc that
    /// changed.
    pub(crate) fn find() -> Option<Self> {
        let told = told()?;
        let searched = searched();
        let word = |index: usize| {
            // SAFETY: within the control block, which belongs to the calling thread and is longer
            // than what is searched, or within the stack that is known to lie below it.
            unsafe { std::ptr::read_volatile(searched.add(index)) }
        };
        // A guard is part of the block that was mapped, and not of the stack that is told. Its size
        // is not told where the C library has made it larger than was asked for, as it does on
        // aarch64.
        let mut found = (0..SEARCHED_WORDS - 2).filter(|&i| {
            let (low, size, guard) = (word(i), word(i + 1), word(i + 2));
            guard > 0 && (low.wrapping_add(guard)..low.wrapping_add(size)) == told
        });
        // Two places would be one too many to know which it is.
        match (found.next(), found.next()) {
            (Some(index), None) => Some(Self(index)),
            _ => None,
        }
    }

    pub(crate) fn index(self) -> usize {
        self.0
    }

    /// The place of an `index` that [`find`](Self::find) found.
    pub(crate) fn from_index(index: usize) -> Self {
        Self(index)
    }

    /// The stack that the calling thread was born with, guard included, if `sp` lies on it. It can
    /// be read from the page of `sp` to its end, and stays as long as the thread does.
    ///
    /// *Async-signal-safe.*
    pub(crate) fn stack_of(self, sp: u64) -> Option<Range<u64>> {
        let block = thread_pointer();
        let searched = searched();
        let word = |index: usize| {
            // SAFETY: the calling thread's own control block, at a place where `find` found a word
            // of the same kind.
            unsafe { std::ptr::read_volatile(searched.add(index)) as u64 }
        };
        let low = word(self.0);
        let end = low.checked_add(word(self.0 + 1))?;
        // The block lies at the top of the stack it describes; the main thread's, and one that a
        // raw `clone` shares with another thread, describes none or another one.
        (low != 0 && (low..end).contains(&block) && (low..end).contains(&sp)).then_some(low..end)
    }
}

/// What `pthread_getattr_np` says of the calling thread's stack, which is without its guard; `None`
/// for one that has no guard.
#[cfg(target_env = "gnu")]
fn told() -> Option<Range<usize>> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut start, mut size, mut guard) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: the first call initializes the attributes of the calling thread, the others read
    // them, the last frees them.
    let answers = unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let answers = [
            libc::pthread_attr_getstack(attributes.as_ptr(), &mut start, &mut size),
            libc::pthread_attr_getguardsize(attributes.as_ptr(), &mut guard),
        ];
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        answers
    };
    let start = start as usize;
    (answers == [0, 0] && guard > 0 && size > 0).then_some(start..start.checked_add(size)?)
}

/// musl's control block is another: stacks are copied from there.
#[cfg(not(target_env = "gnu"))]
fn told() -> Option<Range<usize>> {
    None
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn another_threads_bounds_lie_in_the_same_place() {
        let place = std::thread::spawn(|| BoundsPlace::find().expect("glibc keeps them"))
            .join()
            .unwrap();
        std::thread::Builder::new()
            .stack_size(300 * 1024)
            .spawn(move || {
                let local = 0_u64;
                let sp = &raw const local as u64;
                let stack = place.stack_of(sp).unwrap();
                let told = told().unwrap();
                assert_eq!(stack.end, told.end as u64);
                assert!(stack.start < told.start as u64, "the guard is included");
                let elsewhere = Box::new(0_u64);
                assert_eq!(place.stack_of(&raw const *elsewhere as u64), None);
            })
            .unwrap()
            .join()
            .unwrap();
    }
}
