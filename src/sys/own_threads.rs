//! The profiler's own threads, which do not keep a process from ending.
//!
//! A process ends when the last of its threads does: the C library counts them, and calls `exit(0)`
//! on the last one. Threads of the profiler's never end before that, so they look for themselves
//! whether they are the last ones.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::per_process::PerProcess;
use super::signal;
#[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
use super::thread;
use super::thread::{current_tid, identity};
use super::thread_sets::{Member, Set, ThreadSets};

/// A forked child has none of its parent's threads.
static OWN: PerProcess<Own> = PerProcess::new();

#[derive(Debug, Default)]
struct Own {
    /// Ids of the threads; 0: none.
    tids: [AtomicI32; 8],
    is_ending_process: AtomicBool,
    /// What threads say of themselves at the moment.
    sets: ThreadSets,
}

impl Own {
    fn has(&self, tid: i32) -> bool {
        self.tids
            .iter()
            .any(|own| own.load(Ordering::Acquire) == tid)
    }
}

/// The calling thread does the profiler's own work, until this is dropped by the same thread.
#[derive(Debug)]
pub(crate) struct AtWork {
    _member: Option<Member<'static>>,
}

/// Says that the calling thread does the profiler's own work. Where there is no room to say it,
/// what the thread does is taken for the program's.
pub(crate) fn note_own() -> AtWork {
    let own = OWN.get_or_make(Own::default).ok();
    AtWork {
        _member: own.and_then(|own| own.sets.join(Set::OwnWork)),
    }
}

/// Sets of threads, in which those are that do the profiler's own work, and others that say
/// something of themselves.
///
/// # Errors
///
/// Where the system has no page to give.
#[cfg(feature = "contention")]
pub(crate) fn thread_sets() -> io::Result<&'static ThreadSets> {
    Ok(&OWN.get_or_make(Own::default)?.sets)
}

/// Whether the calling thread is one of the profiler's own, or does the profiler's work.
/// *Async-signal-safe.*
#[cfg(feature = "heap")]
#[inline]
pub(crate) fn is_own() -> bool {
    OWN.get()
        .is_some_and(|own| own.sets.has_caller(Set::OwnWork))
}

/// Has the calling thread do the profiler's own work, which is in no profile of the heap or of
/// locks: the program has asked for a profile, and shall see itself.
pub(crate) fn as_own<T>(work: impl FnOnce() -> T) -> T {
    let _at_work = note_own();
    work()
}

/// The calling thread is one of the profiler's own, and does not keep the process from ending,
/// until this is dropped.
#[derive(Debug)]
pub(crate) struct OwnThread {
    tid: Option<&'static AtomicI32>,
    _at_work: AtWork,
}

impl OwnThread {
    /// Says so of the calling thread. Where there is no room to say it, the thread keeps the
    /// process from ending, as any other does.
    pub(crate) fn begin() -> Self {
        let _at_work = note_own();
        let current = current_tid();
        let take = |place: &&AtomicI32| {
            let taken = place.compare_exchange(0, current, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        let own = OWN.get_or_make(Own::default).ok();
        let tid = own.and_then(|own| own.tids.iter().find(take));
        Self { tid, _at_work }
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if let Some(tid) = self.tid {
            tid.store(0, Ordering::Release);
        }
    }
}

/// Whether the main thread has ended, and the process goes on without it.
fn has_main_thread_ended() -> bool {
    identity(main_thread()).is_some_and(|main| main.has_ended)
}

/// Ends the process as the C library does, if only the profiler's threads are left of it. Asks the
/// system which threads there are where the main thread has ended; `tids` is room for their ids.
#[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
pub(crate) fn look_around(tids: &mut Vec<i32>) {
    if has_main_thread_ended() && thread::list(tids).is_ok() {
        end_process_if_left_alone(tids);
    }
}

/// The kernel's id of the main thread, which is the process's.
fn main_thread() -> i32 {
    std::process::id() as i32
}

/// Ends the process as the C library does, if only the profiler's threads are left of it. `tids`
/// are the ids of all threads, in any order, as the system lists them: with the main thread,
/// whether it has ended or not.
pub(crate) fn end_process_if_left_alone(tids: &[i32]) {
    let Some(own) = OWN.get() else { return };
    let main = main_thread();
    // In a /proc of another PID namespace the ids are others.
    let are_left_alone =
        tids.contains(&main) && tids.iter().all(|&tid| tid == main || own.has(tid));
    if !are_left_alone
        || !has_main_thread_ended()
        || own.is_ending_process.swap(true, Ordering::AcqRel)
    {
        return;
    }
    if end_process().is_err() {
        // The next time, perhaps.
        own.is_ending_process.store(false, Ordering::Release);
    }
}

/// Has a thread call `exit(0)`: an ordinary one, since it runs what the program has asked for with
/// `atexit`.
fn end_process() -> io::Result<()> {
    extern "C" fn end(_: *mut c_void) -> *mut c_void {
        signal::unblock_all();
        // SAFETY: no other thread is left that could call it, too.
        unsafe { libc::exit(0) }
    }
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the call fills `thread`; the routine takes no argument.
    let refused =
        unsafe { libc::pthread_create(thread.as_mut_ptr(), ptr::null(), end, ptr::null_mut()) };
    match refused {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
