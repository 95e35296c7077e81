//! What a forked child does not inherit: state, locks, open files.
//!
//! A page marked `MADV_WIPEONFORK` reads as zeros in a child, whoever forked and however: no hook
//! has to run, no process id to be compared (a child can have its parent's id in a namespace of its
//! own).

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::memory::Pages;
use super::signal::with_signals_blocked;

/// A value of all-zero-valid type in a page of its own that reads as zeros in a forked child. Never
/// freed.
///
/// # Safety
///
/// For types that are valid, and mean "nothing", when all their bytes are zero, and that need no
/// drop.
pub(crate) unsafe trait Wipeable: Sync + 'static {}

/// Allocates a zeroed `T` that a fork wipes in the child.
///
/// # Errors
///
/// Where the system has no page to give.
pub(crate) fn wiped_on_fork<T: Wipeable>() -> io::Result<&'static T> {
    const { assert!(size_of::<T>() <= 4096 && align_of::<T>() <= 4096 && size_of::<T>() > 0) };
    let pages = Pages::map(4096)?;
    let page = NonNull::new(pages.as_ptr()).expect("a mapping is not at 0");
    std::mem::forget(pages);
    // SAFETY: the page was mapped above and belongs to nobody else.
    let wiped = unsafe { libc::madvise(page.as_ptr().cast(), 4096, libc::MADV_WIPEONFORK) };
    if wiped != 0 {
        // A kernel before 4.14: a hook that the C library runs in the child does it, for children
        // made by `fork`.
        let is_free = |place: &&AtomicPtr<u8>| {
            let (free, page) = (std::ptr::null_mut(), page.as_ptr());
            place
                .compare_exchange(free, page, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        if PAGES_TO_WIPE.iter().find(is_free).is_none() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: the hook is async-signal-safe, as a forked child of a threaded program needs it
        // to be.
        unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    }
    // SAFETY: zeroed, aligned, large enough, never freed; zero is valid by the trait's contract.
    Ok(unsafe { page.cast::<T>().as_ref() })
}

/// Maps `len` zeroed bytes that a fork wipes in the child, and that are never freed. On kernels
/// before 4.14 the child inherits what they held.
pub(crate) fn wiped_on_fork_pages(len: usize) -> io::Result<NonNull<u8>> {
    let pages = Pages::map(len)?;
    let start = NonNull::new(pages.as_ptr()).expect("a mapping is not at 0");
    std::mem::forget(pages);
    // SAFETY: the pages were mapped above and belong to nobody else.
    unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_WIPEONFORK) };
    Ok(start)
}

/// The pages that `wipe` clears. There are few: the recorder has one for the process, the hook of
/// new threads another, and a page that two made at once is let go by one of them.
static PAGES_TO_WIPE: [AtomicPtr<u8>; 8] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 8];

extern "C" fn wipe() {
    for page in &PAGES_TO_WIPE {
        let page = page.load(Ordering::Acquire);
        if !page.is_null() {
            // SAFETY: a page made by `wiped_on_fork`, in a child that has one thread.
            unsafe { page.write_bytes(0, 4096) };
        }
    }
}

/// A mutex of the C library's: the kind that may be unlocked in a forked child by the thread that
/// locked it.
struct ForkLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made to be used by several threads.
unsafe impl Sync for ForkLock {}

static FORKS: ForkLock = ForkLock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
/// Held for system calls alone: never while something is allocated, or another lock waited for.
static FORKS_BRIEFLY: ForkLock = ForkLock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
/// The code of the C library's refusal to call the functions below; 0 where it does.
static REFUSED: OnceLock<i32> = OnceLock::new();
static HAS_FORKED: AtomicBool = AtomicBool::new(false);
/// What else is done around a fork.
static HOOKS: OnceLock<Hooks> = OnceLock::new();

thread_local! {
    /// The calling thread holds [`FORKS`].
    static HOLDS_OFF_FORKS: Cell<bool> = const { Cell::new(false) };
}

/// What else is done around a fork.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hooks {
    /// Whether a signal's handler forks that has interrupted what it must not wait for: then none
    /// of the others is called.
    pub(crate) is_interrupted: fn() -> bool,
    pub(crate) before: fn(),
    pub(crate) in_parent: fn(),
    pub(crate) in_child: fn(),
}

/// Whether the process has forked through the C library since the first of the calls below.
#[cfg(feature = "capi")]
pub(super) fn has_forked() -> bool {
    HAS_FORKED.load(Ordering::Relaxed)
}

impl ForkLock {
    fn lock(&self) {
        // SAFETY: an initialized mutex, which is never destroyed.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    #[cfg(feature = "heap")]
    fn try_lock(&self) -> bool {
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_trylock(self.0.get()) == 0 }
    }

    fn unlock(&self) {
        // SAFETY: as above; the calling thread locked it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }

    fn hold<T>(&self, f: impl FnOnce() -> T) -> T {
        see_forks();
        with_signals_blocked(|| {
            self.lock();
            let result = f();
            self.unlock();
            result
        })
    }
}

/// Has the C library call the functions below around each fork. The code of its refusal, or 0.
fn see_forks() -> i32 {
    *REFUSED.get_or_init(|| {
        // SAFETY: the hooks lock and unlock mutexes that are never destroyed.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) }
    })
}

/// Other hooks that are to be called.
fn hooks() -> Option<&'static Hooks> {
    HOOKS.get()
}

/// Whether a handler forks that must not wait. The same before and behind the fork.
fn is_interrupted() -> bool {
    hooks().is_some_and(|hooks| (hooks.is_interrupted)())
}

extern "C" fn before() {
    if is_interrupted() {
        return;
    }
    FORKS.lock();
    FORKS_BRIEFLY.lock();
    if let Some(hooks) = hooks() {
        (hooks.before)();
    }
}

extern "C" fn in_parent() {
    HAS_FORKED.store(true, Ordering::Relaxed);
    unlock(|hooks| hooks.in_parent);
}

extern "C" fn in_child() {
    unlock(|hooks| hooks.in_child);
}

fn unlock(hook: impl FnOnce(&Hooks) -> fn()) {
    if is_interrupted() {
        return;
    }
    if let Some(hooks) = hooks() {
        hook(hooks)();
    }
    FORKS_BRIEFLY.unlock();
    FORKS.unlock();
}

/// Has hooks called around each fork through the C library from now on, while other threads hold
/// off no forks: who does so may wait for what `before` locks.
///
/// # Errors
///
/// Where the C library refuses it, for want of memory.
#[cfg(feature = "heap")]
pub(crate) fn around_forks(more: Hooks) -> io::Result<()> {
    // Not between the functions of one fork.
    holding_off_forks(|| HOOKS.get_or_init(|| more));
    match see_forks() {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Runs `f` while no other thread forks through the C library: for what a child must not inherit
/// half done, a lock that `f` takes or a file that it opens for a moment. Calls nest. Signals wait,
/// since a handler of the program's may fork, too.
pub(crate) fn holding_off_forks<T>(f: impl FnOnce() -> T) -> T {
    match HOLDS_OFF_FORKS.get() {
        true => f(),
        false => FORKS.hold(|| noting_that_forks_wait(f)),
    }
}

/// As [`holding_off_forks`], but for a thread that may hold what another one waits for that holds
/// off forks itself: `None` where there is one.
#[cfg(feature = "heap")]
pub(crate) fn try_holding_off_forks<T>(f: impl FnOnce() -> T) -> Option<T> {
    if HOLDS_OFF_FORKS.get() {
        return Some(f());
    }
    see_forks();
    with_signals_blocked(|| {
        FORKS.try_lock().then(|| {
            let result = noting_that_forks_wait(f);
            FORKS.unlock();
            result
        })
    })
}

fn noting_that_forks_wait<T>(f: impl FnOnce() -> T) -> T {
    let set_cancel_state = |state| {
        let mut old = 0;
        // SAFETY: the call fills `old`.
        unsafe { pthread_setcancelstate(state, &mut old) };
        old
    };
    // A thread that ended at one of the calls of `f` would hold off forks for ever.
    let cancel_state = set_cancel_state(PTHREAD_CANCEL_DISABLE);
    HOLDS_OFF_FORKS.set(true);
    let result = f();
    HOLDS_OFF_FORKS.set(false);
    set_cancel_state(cancel_state);
    result
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

/// The same under glibc and musl.
const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;

/// As [`holding_off_forks`], for system calls alone: `f` allocates nothing and waits for nobody.
/// For threads that begin, whose creator may hold the allocator's lock until they run: they must
/// not wait for somebody who waits for that.
pub(crate) fn holding_off_forks_briefly<T>(f: impl FnOnce() -> T) -> T {
    FORKS_BRIEFLY.hold(f)
}
