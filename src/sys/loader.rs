//! The dynamic loader's list of objects.

use super::fork::holding_off_forks;
use super::loader_lock;

/// Calls `f` for each loaded object, in the loader's order, until it answers false.
///
/// `dl_iterate_phdr` holds a lock of the loader's, which a C library does not set free in a forked
/// child: a fork at that moment by another thread would leave the child with a lock that nobody
/// holds and nobody can take. So a fork waits. In a child that has such a lock all the same, `f` is
/// called for no object.
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
    let mut f = f;
    holding_off_forks(|| {
        if loader_lock::is_lost() {
            return;
        }
        loader_lock::find();
        // SAFETY: the callback matches its data.
        unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut f).cast()) };
    });
}
