//! The bounds of the stack that a thread was born with.
//!
//! glibc keeps them in each thread's control block and tells them through `pthread_getattr_np`, which allocates and so is
//! not for a handler. Where in the block they lie is not promised. So ordinary code looks for them once, in the block of a thread
//! whose bounds it was told, and a handler reads the same place in the block of its own thread.

use std::ops::Range;

use super::thread::thread_pointer;

/// Where in a control block glibc keeps the lowest address of the thread's stack, its size and its guard's size: three
/// words, one after the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BoundsPlace(usize);

/// How far a control block is searched; glibc's is about 2.3 KiB long.
const SEARCHED_WORDS: usize = 2048 / size_of::<usize>();

impl BoundsPlace {
    /// Finds the place in the block of the calling thread, which must be one that glibc started on a stack of its own. `None`
    /// where it cannot be found: another C library, or a glibc that changed.
    pub(crate) fn find() -> Option<Self> {
        let [low, size, guard] = told()?;
        let block = thread_pointer() as *const usize;
        let word = |index: usize| {
            // SAFETY: within the control block, which on x86_64 begins at the thread pointer, belongs to the calling
            // thread, and is longer than what is searched (asserted by the caller's search range).
            unsafe { std::ptr::read_volatile(block.add(index)) }
        };
        let mut found = (0..SEARCHED_WORDS - 2)
            .filter(|&i| word(i) == low && word(i + 1) == size && word(i + 2) == guard);
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

    /// The stack that the calling thread was born with, if `sp` lies on it. It can be read from there to its end, and stays
    /// as long as the thread does.
    ///
    /// *Async-signal-safe.*
    pub(crate) fn stack_of(self, sp: u64) -> Option<Range<u64>> {
        let block = thread_pointer();
        let word = |index: usize| {
            // SAFETY: the calling thread's own control block, at a place where `find` found a word of the same kind.
            unsafe { std::ptr::read_volatile((block as *const u64).add(index)) }
        };
        let low = word(self.0);
        let end = low.checked_add(word(self.0 + 1))?;
        // The block lies at the top of the stack it describes; the main thread's, and one that a raw `clone` shares with
        // another thread, describes none or another one.
        (low != 0 && (low..end).contains(&block) && (low..end).contains(&sp)).then_some(sp..end)
    }
}

/// What `pthread_getattr_np` says of the calling thread: lowest address with the guard, size with the guard, guard's size.
#[cfg(all(target_env = "gnu", target_arch = "x86_64"))]
fn told() -> Option<[usize; 3]> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut start, mut size, mut guard) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: the first call initializes the attributes of the calling thread, the others read them, the last frees them.
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
    // A guard is part of the block that was mapped, and not of the stack that is told.
    let low = (start as usize).checked_sub(guard)?;
    (answers == [0, 0] && guard > 0 && size > 0).then_some([low, size + guard, guard])
}

/// On aarch64 the control block lies below the thread pointer, and musl's is another: stacks are copied from there.
#[cfg(not(all(target_env = "gnu", target_arch = "x86_64")))]
fn told() -> Option<[usize; 3]> {
    None
}

#[cfg(all(test, target_env = "gnu", target_arch = "x86_64"))]
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
                let [low, size, _] = told().unwrap();
                assert_eq!(stack, sp..(low + size) as u64);
                let elsewhere = Box::new(0_u64);
                assert_eq!(place.stack_of(&raw const *elsewhere as u64), None);
            })
            .unwrap()
            .join()
            .unwrap();
    }
}
