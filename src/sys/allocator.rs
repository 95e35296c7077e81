//! What the C library's allocator keeps of freed memory.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::resume_unwind;
use std::ptr::null_mut;
use std::thread;

use super::brief_file;
use super::own_threads::note_own;
use super::signal::{unblock_profilers, with_signals_blocked};

/// Growth that is left to the allocator, which will use it again.
const SLACK_BYTES: u64 = 1 << 20;

/// The largest process that is trimmed. In one of two heaps of 128 MiB each another thread's
/// allocation waited for up to 10 ms, with 512 MiB for 80; and what a large process keeps is small
/// beside it.
const LARGE_BYTES: u64 = 192 << 20;

/// Does something that allocates much and frees it again, and gives the memory back to the system.
///
/// glibc returns freed memory on its own only from the end of a heap, and only where that is larger
/// than twice the largest block that was ever freed; and each thread keeps some 450 freed chunks for
/// itself, each of which holds its page. So the work is done by a thread that ends with it (or by
/// the caller, where no thread can be had), and the heaps are trimmed then. Trimming goes through
/// all free memory of the process, about a millisecond for some MiB, and may hold up threads that
/// allocate meanwhile; so it is done only if the work had memory from the system, and the process is
/// not large. A host whose heaps had room has nothing to give back, and is left alone.
pub(crate) fn giving_back<T: Send>(thread_name: &str, work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let mut measured = || {
        let before = Memory::now();
        let result = work.take().map(|work| work());
        (result, Memory::now().to_give_back(before).map(Lid::beyond))
    };
    let ran = thread::scope(|scope| {
        let run = || {
            unblock_profilers();
            let _own = note_own();
            measured()
        };
        // Blocked before the thread exists, so that no signal of the host's can land on it.
        let thread = with_signals_blocked(|| {
            thread::Builder::new()
                .name(thread_name.to_owned())
                .spawn_scoped(scope, run)
        });
        thread.map(|thread| thread.join())
    });
    let (result, lid) = match ran {
        Ok(result) => result.unwrap_or_else(|panic| resume_unwind(panic)),
        Err(_) => measured(),
    };
    if lid.is_some() {
        trim();
    }
    drop(lid);
    result.expect("the work is done once, by the thread or here")
}

/// What memory was taken, in bytes.
#[derive(Clone, Copy)]
struct Memory {
    /// That the process has.
    resident: u64,
    /// That the calling thread was given by page faults, ever.
    faulted: u64,
}

impl Memory {
    fn now() -> Self {
        // SAFETY: it takes no pointers.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: it has room for what is written; an error leaves zeros, which are valid.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        Self {
            resident: resident_pages().unwrap_or(0) * page,
            faulted: u64::try_from(usage.ru_minflt).unwrap_or(0) * page,
        }
    }

    /// How much was taken since, if that is to be given back. Either figure alone can miss some: of
    /// the process's, other threads give back theirs meanwhile; and one fault can give a huge page.
    fn to_give_back(self, before: Self) -> Option<u64> {
        let resident = self.resident.saturating_sub(before.resident);
        let taken = resident.max(self.faulted - before.faulted);
        (taken > SLACK_BYTES && self.resident < LARGE_BYTES).then_some(taken)
    }
}

/// A block that lies beyond the free memory of a heap, until it is dropped. glibc leaves the free
/// memory at the end of a thread's heap alone when it trims, which may be many MiB. Under a lid,
/// that memory is in the middle.
struct Lid(#[cfg_attr(not(target_env = "gnu"), allow(dead_code))] *mut *mut c_void);

// SAFETY: a block of the C library's heap can be freed by any thread.
unsafe impl Send for Lid {}

#[cfg(target_env = "gnu")]
impl Lid {
    /// Less than glibc ever maps by itself, and more than a thread keeps for itself.
    const BLOCK_BYTES: usize = 96 << 10;

    /// Puts a lid on the heap of the calling thread, in which so many bytes are free.
    fn beyond(free: u64) -> Self {
        let mut lid = null_mut::<*mut c_void>();
        // What is free is used up first. A block's first bytes are all of it that is touched.
        for _ in 0..=free / Self::BLOCK_BYTES as u64 {
            // SAFETY: it has no preconditions.
            let block: *mut *mut c_void = unsafe { libc::malloc(Self::BLOCK_BYTES) }.cast();
            if block.is_null() {
                break;
            }
            // SAFETY: it is a new block of more bytes than a pointer has, aligned for anything.
            unsafe { *block = lid.cast() };
            lid = block;
        }
        if !lid.is_null() {
            // SAFETY: the block holds the pointer to the one before, or null.
            let mut next = unsafe { lid.replace(null_mut()) };
            while !next.is_null() {
                // SAFETY: as above.
                let after = unsafe { *next.cast::<*mut c_void>() };
                // SAFETY: it is one of the blocks, which nothing else knows.
                unsafe { libc::free(next) };
                next = after;
            }
        }
        Self(lid)
    }
}

#[cfg(target_env = "gnu")]
impl Drop for Lid {
    fn drop(&mut self) {
        // SAFETY: it is null or a block that nothing else knows.
        unsafe { libc::free(self.0.cast()) };
    }
}

#[cfg(not(target_env = "gnu"))]
impl Lid {
    fn beyond(_free: u64) -> Self {
        Self(null_mut())
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it takes the allocator's own locks and changes free memory only.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

fn resident_pages() -> Option<u64> {
    let statm = brief_file::read_to_string("/proc/thread-self/statm").ok()?;
    statm.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::signal::unblock;
    use super::*;

    #[test]
    fn the_work_is_done_and_growth_is_seen() {
        let before = Memory::now().resident;
        let touched = giving_back("sigprof-test", || vec![1u8; 64 << 20]);
        assert!(Memory::now().resident > before + (32 << 20));
        assert_eq!(touched.iter().filter(|&&byte| byte == 1).count(), 64 << 20);
    }

    #[test]
    fn the_work_is_sampled_and_takes_no_signal_of_the_hosts() {
        let blocked = giving_back("sigprof-test", || unblock(&[]));
        assert!(!blocked.has(libc::SIGPROF) && !blocked.has(libc::SIGURG));
        assert!(blocked.has(libc::SIGUSR1));
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn the_free_end_of_a_threads_heap_is_given_back() {
        // Blocks up to half the size of the free end are kept in heaps from here on.
        let largest = vec![1u8; 16 << 20];
        drop(largest);
        let work = |blocks| drop((0..blocks).map(|_| vec![1u8; 64 << 10]).collect::<Vec<_>>());
        let in_four_threads = |blocks| {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| giving_back("sigprof-test", || work(blocks)));
                }
            });
        };
        // What threads need at all, which is much for an emulator.
        in_four_threads(1);
        let before = Memory::now().resident;
        in_four_threads(300);
        let growth = Memory::now().resident.saturating_sub(before);
        assert!(growth < 4 << 20, "{growth} bytes of 75 MiB are kept");
    }

    #[test]
    fn a_panic_goes_on_in_the_caller() {
        let caught =
            std::panic::catch_unwind(|| giving_back("sigprof-test", || panic!("on purpose")));
        assert_eq!(
            *caught.unwrap_err().downcast::<&str>().unwrap(),
            "on purpose"
        );
    }
}
