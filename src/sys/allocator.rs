//! What the C library's allocator keeps of freed memory.

use std::fs;
use std::panic::resume_unwind;
use std::thread;

use super::signal::with_signals_blocked;

/// Growth that is left to the allocator, which will use it again.
const SLACK_BYTES: u64 = 1 << 20;

/// The largest process that is trimmed. In one of two heaps of 128 MiB each another thread's
/// allocation waited for up to 10 ms, with 512 MiB for 80; and what a large process keeps is small
/// beside it.
const LARGE_BYTES: u64 = 192 << 20;

/// Does something that allocates much and frees it again, and gives the memory back to the system.
///
/// glibc returns freed memory on its own only from the end of a heap, and each thread keeps some
/// 450 freed chunks for itself, each of which holds its page. So the work is done by a thread that
/// ends with it (or by the caller, where no thread can be had), and the heaps are trimmed then.
/// Trimming goes through all free memory of the process, about a millisecond for some MiB, and may
/// hold up threads that allocate meanwhile; so it is done only if the process did grow and is not
/// large. A host whose heaps had room has nothing to give back, and is left alone.
pub(crate) fn giving_back<T: Send>(thread_name: &str, work: impl FnOnce() -> T + Send) -> T {
    let before = resident_bytes();
    let mut work = Some(work);
    let mut run = || work.take().map(|work| work());
    let ran = thread::scope(|scope| {
        // Blocked before the thread exists, so that no signal of the host's can land on it.
        let thread = with_signals_blocked(|| {
            thread::Builder::new()
                .name(thread_name.to_owned())
                .spawn_scoped(scope, &mut run)
        });
        thread.map(|thread| thread.join())
    });
    let result = match ran {
        Ok(result) => result.unwrap_or_else(|panic| resume_unwind(panic)),
        Err(_) => run(),
    };
    if let (Some(before), Some(after)) = (before, resident_bytes())
        && after > before + SLACK_BYTES
        && after < LARGE_BYTES
    {
        trim();
    }
    result.expect("the work is done once, by the thread or here")
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it takes the allocator's own locks and changes free memory only.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/thread-self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: it takes no pointers.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.checked_mul(page_bytes.try_into().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_done_and_growth_is_seen() {
        let before = resident_bytes().unwrap();
        let touched = giving_back("sigprof-test", || vec![1u8; 64 << 20]);
        assert!(resident_bytes().unwrap() > before + (32 << 20));
        assert_eq!(touched.iter().filter(|&&byte| byte == 1).count(), 64 << 20);
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
