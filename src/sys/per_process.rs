//! Values that each process makes for itself.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::fork::{Wipeable, wiped_on_fork};

/// A value that each process makes for itself: a forked child does not see its parent's, in which a
/// lock may be held.
///
/// Made at most once in a process, and never freed; what a child inherits is left as it is.
#[derive(Debug)]
pub(crate) struct PerProcess<T: 'static> {
    /// A page that a fork wipes.
    page: AtomicPtr<AtomicPtr<T>>,
}

// SAFETY: an atomic pointer, null when its bytes are zero, which means that nothing was made;
// nothing is dropped.
unsafe impl<T: Sync + 'static> Wipeable for AtomicPtr<T> {}

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        let page = AtomicPtr::new(ptr::null_mut());
        Self { page }
    }

    /// What this process has made.
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or a page that is never freed.
        let page = unsafe { self.page.load(Ordering::Acquire).as_ref() }?;
        // SAFETY: null, or a value that was made before it was published, and is never freed.
        unsafe { page.load(Ordering::Acquire).as_ref() }
    }

    /// What this process has made, or makes now.
    ///
    /// # Errors
    ///
    /// Where the system has no page to give.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> io::Result<&'static T> {
        if let Some(made) = self.get() {
            return Ok(made);
        }
        if self.page.load(Ordering::Acquire).is_null() {
            let page = ptr::from_ref(wiped_on_fork::<AtomicPtr<T>>()?).cast_mut();
            // Where two threads come here at once, one page stays unused; it is a page.
            let (none, success, failure) = (ptr::null_mut(), Ordering::AcqRel, Ordering::Acquire);
            let _ = self.page.compare_exchange(none, page, success, failure);
        }
        // SAFETY: published above or by another thread, and never freed.
        let page = unsafe { &*self.page.load(Ordering::Acquire) };
        let made = Box::into_raw(Box::new(make()));
        let (none, success, failure) = (ptr::null_mut(), Ordering::AcqRel, Ordering::Acquire);
        let published = page.compare_exchange(none, made, success, failure);
        let value = match published {
            Ok(_) => made,
            Err(first) => {
                // SAFETY: made above, and not published.
                drop(unsafe { Box::from_raw(made) });
                first
            }
        };
        // SAFETY: a value that was made before it was published, and is never freed.
        Ok(unsafe { &*value })
    }
}
