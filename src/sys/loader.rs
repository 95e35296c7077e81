//! The dynamic loader's list, asked for in a way that a fork survives.
//!
//! `dl_iterate_phdr` holds a lock of the loader's, which a C library does not set free in a forked child: a fork at that moment
//! by another thread would leave the child with a lock that nobody holds and nobody can take. So a fork waits until the
//! list has been read.

use std::cell::UnsafeCell;
use std::sync::Once;

/// A mutex of the C library's: the kind that may be unlocked in a forked child by the thread that locked it.
struct ForkLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made to be used by several threads.
unsafe impl Sync for ForkLock {}

static READING: ForkLock = ForkLock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
static FORK_WAITS: Once = Once::new();

extern "C" fn lock() {
    // SAFETY: an initialized mutex, which is never destroyed.
    unsafe { libc::pthread_mutex_lock(READING.0.get()) };
}

extern "C" fn unlock() {
    // SAFETY: as above; the calling thread locked it.
    unsafe { libc::pthread_mutex_unlock(READING.0.get()) };
}

/// Calls `f` for each loaded object, in the loader's order, until it answers false.
pub(super) fn iterate(f: &mut dyn FnMut(&libc::dl_phdr_info) -> bool) {
    unsafe extern "C" fn callback(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        data: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `data` is the reference passed below, alive for the whole iteration.
        let f = unsafe { &mut *data.cast::<&mut dyn FnMut(&libc::dl_phdr_info) -> bool>() };
        // SAFETY: the loader passes a valid info.
        (!f(unsafe { &*info })).into()
    }
    FORK_WAITS.call_once(|| {
        // SAFETY: the hooks lock and unlock a mutex that is never destroyed.
        unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) };
    });
    let mut f = f;
    lock();
    // SAFETY: the callback matches its data.
    unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut f).cast()) };
    unlock();
}
