//! The end of a thread, through a key of thread-specific data: its destructor runs on the thread
//! however it ends, by returning, by `pthread_exit` or by cancellation, and after C++'s and Rust's
//! own thread-local values are gone.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::without_cancellation;

/// The C library calls destructors again for values that were set meanwhile, four times at least
/// (`PTHREAD_DESTRUCTOR_ITERATIONS`). To run late, and yet surely, ours acts in the last but one.
const ROUNDS: usize = 3;

/// One more than the key; 0 while there is none. It is never deleted, since threads that expect
/// their end may live for ever.
static KEY: AtomicU64 = AtomicU64::new(0);
/// Never cleared either.
static END: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Has `end` called at the end of each thread that expects it.
pub(super) fn set(end: fn()) -> io::Result<()> {
    END.store(end as *mut (), Ordering::Release);
    if KEY.load(Ordering::Acquire) == 0 {
        let mut key = 0;
        // SAFETY: fills `key`; the destructor is a function that stays.
        let error = unsafe { libc::pthread_key_create(&mut key, Some(destructor)) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        KEY.store(u64::from(key) + 1, Ordering::Release);
    }
    Ok(())
}

/// Has `end` run when the calling thread ends.
///
/// In a process with more than 32 keys the C library takes memory for the value, once a thread,
/// from the host's heap: here as in any other thread that uses such a key, and with none of the
/// host's locks held, since the thread has not begun.
pub(super) fn expect() {
    expect_in(ROUNDS);
}

fn expect_in(rounds: usize) -> bool {
    let key = KEY.load(Ordering::Acquire);
    let Some(key) = key.checked_sub(1) else {
        return false;
    };
    let value = ptr::without_provenance(rounds);
    // SAFETY: a key that was created and is never deleted.
    unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, value) == 0 }
}

/// `rounds` is how many are left, this one included.
unsafe extern "C" fn destructor(rounds: *mut libc::c_void) {
    let rounds = rounds.addr();
    if rounds > 1 && expect_in(rounds - 1) {
        return;
    }
    let end = END.load(Ordering::Acquire);
    if !end.is_null() {
        // SAFETY: `set` stored a function of that type.
        let end = unsafe { std::mem::transmute::<*mut (), fn()>(end) };
        without_cancellation(end);
    }
}
