//! New threads, told of by themselves: while a hook is installed, each thread that is created with
//! `pthread_create` runs a function of ours before its start routine, and another at its end.
//!
//! The word through which each module calls `pthread_create` is made to lead to a function of ours
//! ([`super::got`]), which calls the real one with another start routine. Threads that are made
//! otherwise are not seen: by the C library itself (`thrd_create`, timers), by a raw `clone`,
//! through an address that was taken before or by `dlsym`, within the module that defines
//! `pthread_create` (an executable with a sanitizer), or by a module that was loaded since the last
//! [`refresh`](ThreadHook::refresh).
//!
//! While none is installed all of it stays callable, since an address can be kept and a thread be
//! on its way: calls are passed through. The same goes for a forked child, which inherits the words
//! as they are, but not that a hook is installed; if it installs its own, everything is put back at
//! the end of that.

mod cells;
mod ending;
mod trampoline;

#[cfg(test)]
mod tests;

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::fork::{Wipeable, wiped_on_fork};
use super::got::{self, Outcome, Replacement};
use super::maps::Maps;
use super::modules::Generation;
use super::signal::ErrnoGuard;
use cells::Cell;

const NAME: &[u8] = b"pthread_create";
/// How often a list of modules that does not change is walked for the sake of one that seems not to
/// be relocated: at the flusher's pace more than a second, for relocating and the look-ups of a
/// large library.
const PATIENCE: u32 = 200;

/// `pthread_create`, with code addresses as such. It does not unwind, but what a host puts before
/// it may.
type Create = unsafe extern "C-unwind" fn(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: *mut libc::c_void,
    argument: *mut libc::c_void,
) -> libc::c_int;

/// The real `pthread_create`: set before any word leads to the hook, and never cleared.
static REAL: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());
static HOOKS: AtomicUsize = AtomicUsize::new(0);

/// What a forked child must not inherit.
#[derive(Debug)]
struct Page {
    /// The number of the hook that is installed; 0 is none.
    owner: AtomicUsize,
    /// Its [`Callbacks`]; null while none is installed.
    create: AtomicPtr<()>,
    begin: AtomicPtr<()>,
}

// SAFETY: atomics are valid as zeros, which mean that nothing is installed.
unsafe impl Wipeable for Page {}

impl Page {
    fn get() -> Option<&'static Self> {
        // SAFETY: null, or a page that is never freed.
        unsafe { PAGE.load(Ordering::Acquire).as_ref() }
    }

    fn get_or_make() -> io::Result<&'static Self> {
        if let Some(page) = Self::get() {
            return Ok(page);
        }
        let made = wiped_on_fork::<Self>()?;
        let pointer = ptr::from_ref(made).cast_mut();
        // Of two that were made at once, one is used.
        let first = ptr::null_mut();
        Ok(
            match PAGE.compare_exchange(first, pointer, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => made,
                // SAFETY: a page that is never freed.
                Err(earlier) => unsafe { &*earlier },
            },
        )
    }
}

/// What a hook calls. None of them may panic; their errno is nobody's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callbacks {
    /// On the thread that creates another one, before that exists, and with whatever locks are held
    /// there: a number for it.
    pub(crate) create: fn() -> u32,
    /// On the new thread, with its number, before its start routine, as ordinary code with the
    /// signal mask that the thread was given, and with cancellation disabled. Whether `end` is to
    /// run when the thread ends.
    pub(crate) begin: fn(u32) -> bool,
    /// On a thread that ends, with cancellation disabled, if there was memory to remember what
    /// `begin` has answered.
    pub(crate) end: fn(),
}

/// An installed hook; dropping it takes it out.
#[derive(Debug)]
pub(crate) struct ThreadHook {
    page: &'static Page,
    number: usize,
    outcome: Outcome,
    generation: Generation,
    /// Walks of the same list that left something pending.
    retries: u32,
}

impl ThreadHook {
    /// Has each new thread numbered, and run what `callbacks` has for it. That may happen after the
    /// hook was taken out, for threads that were on their way or lived longer; and `end` alone in a
    /// forked child, in which the thread that forked ends.
    ///
    /// `generation` must have been taken before `maps` were read: so it is known that the maps are
    /// of these modules.
    ///
    /// # Errors
    ///
    /// If another hook is installed, if no module defines `pthread_create` (a static executable),
    /// and where the system has no page or no key of thread-specific data to give.
    pub(crate) fn install(
        callbacks: Callbacks,
        generation: Generation,
        maps: &Maps,
    ) -> io::Result<Self> {
        let page = Page::get_or_make()?;
        let number = HOOKS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let claimed = page
            .owner
            .compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
        if claimed.is_err() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a hook for new threads is installed already",
            ));
        }
        // Dropped at an error, it lets go of the page.
        let mut hook = Self {
            page,
            number,
            outcome: Outcome::default(),
            generation,
            retries: 0,
        };
        ending::set(callbacks.end)?;
        if got::definition(NAME).is_none() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "no loaded module defines pthread_create: the program is linked statically",
            ));
        }
        page.create
            .store(callbacks.create as *mut (), Ordering::Release);
        page.begin
            .store(callbacks.begin as *mut (), Ordering::Release);
        hook.refresh(generation, maps);
        Ok(hook)
    }

    /// Sees to the modules that were loaded since; `generation` must have been taken before `maps`
    /// were read. Called when the loader's counters have moved, and while
    /// [`is_pending`](Self::is_pending) says so.
    pub(crate) fn refresh(&mut self, generation: Generation, maps: &Maps) {
        if self.page.owner.load(Ordering::Acquire) != self.number {
            // A forked child's.
            return;
        }
        let Some(function) = got::definition(NAME) else {
            return;
        };
        REAL.store(function as *mut (), Ordering::Release);
        self.outcome =
            got::replace(&[replacement(function)], generation, maps).unwrap_or(Outcome {
                is_pending: true,
                ..self.outcome
            });
        self.retries = match self.outcome.is_pending {
            true if self.generation == generation => self.retries.saturating_add(1),
            _ => 0,
        };
        self.generation = generation;
    }

    /// Whether another [`refresh`](Self::refresh) is due although the list of modules is the same:
    /// one of them was not relocated yet. It is given up after some 200 of them: a module can seem
    /// so for ever.
    pub(crate) fn is_pending(&self) -> bool {
        self.outcome.is_pending && self.retries < PATIENCE
    }

    /// Modules whose new threads are seen, at the last refresh.
    #[cfg(test)]
    pub(crate) fn modules(&self) -> usize {
        self.outcome.modules
    }
}

impl Drop for ThreadHook {
    fn drop(&mut self) {
        // In a forked child the page was wiped: the hook is the parent's, and the child may have
        // its own by now.
        if self.page.owner.load(Ordering::Acquire) == self.number {
            self.page.create.store(ptr::null_mut(), Ordering::Release);
            self.page.begin.store(ptr::null_mut(), Ordering::Release);
            got::restore(&[replacement(REAL.load(Ordering::Acquire) as usize)]);
            self.page.owner.store(0, Ordering::Release);
        }
    }
}

fn replacement(function: usize) -> Replacement {
    Replacement {
        name: NAME,
        function,
        stand_in: (create as Create) as usize,
        other_version: b"",
    }
}

/// Stands in for `pthread_create`. It takes no lock and nothing from the host's heap: an allocator
/// that starts a thread of its own calls this with its locks held.
unsafe extern "C-unwind" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: *mut libc::c_void,
    argument: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: a word leads here only once the real function is known, and that has this signature.
    let real = unsafe { std::mem::transmute::<*mut (), Create>(REAL.load(Ordering::Acquire)) };
    let cell = number().and_then(|number| {
        let (start, argument) = (start.expose_provenance(), argument.expose_provenance());
        Cell::claim(start, argument, number)
    });
    let Some(cell) = cell else {
        // SAFETY: the caller's own call.
        return unsafe { real(thread, attributes, start, argument) };
    };
    let begin = trampoline::begin as *mut libc::c_void;
    let in_cell = ptr::from_ref(cell).cast_mut().cast();
    // SAFETY: the caller's own call, but for the start routine, which takes the cell, and goes on
    // to the caller's.
    let error = unsafe { real(thread, attributes, begin, in_cell) };
    if error != 0 {
        // There is no thread that would.
        cell.free();
    }
    error
}

/// A number for a thread that the calling one is about to create, if a hook is installed.
fn number() -> Option<u32> {
    let create = Page::get()?.create.load(Ordering::Acquire);
    if create.is_null() {
        return None;
    }
    // SAFETY: `install` stored a function of that type.
    let create = unsafe { std::mem::transmute::<*mut (), fn() -> u32>(create) };
    Some(create())
}

/// Runs `begin` on the calling thread, if a hook is installed, and answers what it answers.
fn introduce(number: u32) -> bool {
    let begin = Page::get().map(|page| page.begin.load(Ordering::Acquire));
    let Some(begin) = begin.filter(|begin| !begin.is_null()) else {
        return false;
    };
    // SAFETY: `install` stored a function of that type.
    let begin = unsafe { std::mem::transmute::<*mut (), fn(u32) -> bool>(begin) };
    without_cancellation(|| begin(number))
}

/// Runs `f` as a thread that cannot be cancelled: cancellation unwinds the stack by force, which
/// must not pass a frame of Rust's. Errno is put back.
fn without_cancellation<T>(f: impl FnOnce() -> T) -> T {
    const DISABLE: libc::c_int = 1;
    unsafe extern "C" {
        fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
    }
    let _errno = ErrnoGuard::new();
    let mut old = 0;
    // SAFETY: a state that there is, and a place for the old one.
    unsafe { pthread_setcancelstate(DISABLE, &mut old) };
    let result = f();
    // SAFETY: the state that was.
    unsafe { pthread_setcancelstate(old, ptr::null_mut()) };
    result
}
