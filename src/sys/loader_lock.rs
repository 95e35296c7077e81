//! The lock that `dl_iterate_phdr` takes, which a forked child may find held for ever.
//!
//! glibc leaves it in the child as it was in the parent. Where another thread of the parent's held
//! it, in `dlopen` or `dl_iterate_phdr` itself, the child waits at its next `dl_iterate_phdr` for a
//! thread that it does not have. A look at the mutex tells: its owner is no thread of the process.
//! The mutex has no name. It is found in the loader's data as that one which the calling thread owns
//! while it is called back, and not afterwards.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use super::thread::{current_tid, is_thread};

/// The mutex's address; 0 while it is not known.
static MUTEX: AtomicUsize = AtomicUsize::new(0);
/// How often it may still be looked for: another C library has none.
static TRIES: AtomicU32 = AtomicU32::new(8);

/// How long an owner may be about to write its number, in times that others were let run before.
const MOST_YIELDS: u32 = 100;

/// Candidates that are looked at: glibc's loader has three such mutexes.
const MOST_FOUND: usize = 4;

/// The beginning of glibc's `pthread_mutex_t` (`struct_mutex.h`), which is the same on all machines
/// of 64 bits; programs rely on it, since they have its initializer compiled in.
#[repr(C)]
struct Mutex {
    lock: AtomicI32,
    count: AtomicU32,
    owner: AtomicI32,
    users: AtomicU32,
    kind: AtomicI32,
}

impl Mutex {
    fn is_owned_by(&self, tid: libc::pid_t) -> bool {
        self.lock.load(Ordering::Relaxed) != 0
            && self.owner.load(Ordering::Relaxed) == tid
            && self.count.load(Ordering::Relaxed) != 0
            && self.users.load(Ordering::Relaxed) != 0
            && self.kind.load(Ordering::Relaxed) == libc::PTHREAD_MUTEX_RECURSIVE
    }

    /// Whether a thread holds it that the process does not have.
    fn is_lost(&self) -> bool {
        for _ in 0..MOST_YIELDS {
            if self.lock.load(Ordering::Relaxed) == 0 {
                return false;
            }
            match self.owner.load(Ordering::Relaxed) {
                // Somebody has just taken it, or is about to let go.
                0 => std::thread::yield_now(),
                owner if is_thread(owner) => return false,
                // It may have let go and ended since.
                owner => {
                    return self.lock.load(Ordering::Relaxed) != 0
                        && self.owner.load(Ordering::Relaxed) == owner;
                }
            }
        }
        // A child was forked in between. Or a thread was kept from running for as long; then this
        // is one look without the loader's list.
        true
    }
}

/// Whether nobody can take the loader's lock any more.
pub(crate) fn is_lost() -> bool {
    let mutex = std::ptr::with_exposed_provenance::<Mutex>(MUTEX.load(Ordering::Relaxed));
    // SAFETY: null, or a mutex in the data of the loader, which is never unloaded.
    unsafe { mutex.as_ref() }.is_some_and(Mutex::is_lost)
}

/// Finds the mutex, for children to come; called where the lock can be taken, with forks held off.
pub(super) fn find() {
    if MUTEX.load(Ordering::Relaxed) != 0 || TRIES.load(Ordering::Relaxed) == 0 {
        return;
    }
    TRIES.fetch_sub(1, Ordering::Relaxed);
    let mut found = Found::default();
    // SAFETY: the callback matches its data.
    unsafe { libc::dl_iterate_phdr(Some(look_at_the_loader), (&raw mut found).cast()) };
    let tid = current_tid();
    let mutexes = found.mutexes.iter().flatten();
    // What the thread owns all the time is another one, as in a library's constructor.
    let mut released = mutexes.filter(|mutex| !mutex.is_owned_by(tid));
    if let (Some(&mutex), None) = (released.next(), released.next()) {
        let address = std::ptr::from_ref(mutex).expose_provenance();
        MUTEX.store(address, Ordering::Relaxed);
    }
}

/// Mutexes of the loader's that the calling thread owns.
#[derive(Default)]
struct Found {
    mutexes: [Option<&'static Mutex>; MOST_FOUND],
    count: usize,
}

unsafe extern "C" fn look_at_the_loader(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    found: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a valid info, and the data is that of the call.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
    // SAFETY: it has no preconditions.
    let base = unsafe { libc::getauxval(libc::AT_BASE) };
    if base == 0 || info.dlpi_addr != base {
        return 0;
    }
    // SAFETY: the loader's own program headers, as many as it says.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let is_data = |header: &&libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0
    };
    let tid = current_tid();
    for header in headers.iter().filter(is_data) {
        let start = (base + header.p_vaddr) as usize;
        let end = start + header.p_memsz as usize;
        let last = end.saturating_sub(size_of::<Mutex>());
        // A pthread's mutex is aligned as pointers are.
        for address in (start.next_multiple_of(8)..=last).step_by(8) {
            // SAFETY: within a segment of the loader's that can be read, and is never unmapped; the
            // integers may have any value, and are read as atomic ones.
            let mutex = unsafe { &*std::ptr::with_exposed_provenance::<Mutex>(address) };
            if mutex.is_owned_by(tid)
                && let Some(place) = found.mutexes.get_mut(found.count)
            {
                *place = Some(mutex);
                found.count += 1;
            }
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::sys::loader::iterate;
    use crate::sys::maps::Maps;
    use crate::sys::modules::{Generation, loaded};

    #[test]
    fn a_mutex_that_others_use_is_not_lost() {
        find();
        let is_found = MUTEX.load(Ordering::Relaxed) != 0;
        assert_eq!(is_found, cfg!(target_env = "gnu"));
        std::thread::scope(|scope| {
            let iterates = || (0..1000).for_each(|_| iterate(&mut |_| true));
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(iterates)).collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                assert!(!is_lost());
            }
        });
    }

    /// The loader calls back until it is told to go on.
    unsafe extern "C" fn waits(
        _info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        _data: *mut libc::c_void,
    ) -> libc::c_int {
        IS_HELD.store(true, Ordering::Relaxed);
        while IS_HELD.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        1
    }

    static IS_HELD: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_child_that_was_forked_while_another_thread_held_it_sees_what_is_mapped() {
        find();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the callback needs no data.
                unsafe { libc::dl_iterate_phdr(Some(waits), std::ptr::null_mut()) }
            });
            while !IS_HELD.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            // SAFETY: the child works with what a forked child may, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: it ends this process alone, and within a time.
                unsafe { libc::alarm(60) };
                let _ = Generation::now();
                let modules = loaded([].iter(), &Maps::read().unwrap());
                let here = waits as *const () as u64;
                let is_seen = |address| modules.iter().any(|m| m.range.contains(&address));
                let is_right = is_seen(here) && is_seen(libc::fork as *const () as u64);
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(!is_right)) }
            }
            IS_HELD.store(false, Ordering::Relaxed);
            let mut status = -1;
            // SAFETY: the place for the status outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        });
    }
}
