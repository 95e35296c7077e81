//! A flusher thread: named after sigprof, deaf to signals, asleep most of the time.

use std::io;
use std::thread::JoinHandle;

use crate::sys::own_threads::OwnThread;
use crate::sys::signal;
use crate::sys::thread::{prefer_calling_thread, tid_of};

/// The running thread.
#[derive(Debug)]
pub(crate) struct Flusher {
    thread: JoinHandle<()>,
    tid: i32,
}

/// Enough for a few frames of ordinary code; the thread's stack is the host's memory.
const STACK_BYTES: usize = 256 * 1024;

impl Flusher {
    /// Starts a thread of this name that runs `work`, which returns when it is told to stop. Does not wait for
    /// the thread: within `dlopen`, as in a constructor of a library, the calling thread holds the
    /// loader's lock, which a new thread takes where it touches a thread-local of that library.
    pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        // Blocked before the thread exists, so that no signal of the host's can ever land on it.
        let thread = signal::with_signals_blocked(|| {
            std::thread::Builder::new()
                .name(name.into())
                .stack_size(STACK_BYTES)
                .spawn(move || {
                    let _own = OwnThread::begin();
                    prefer_calling_thread();
                    work();
                })
        })?;
        let tid = tid_of(&thread)?;
        Ok(Self { thread, tid })
    }

    /// The kernel's id of the thread.
    pub(crate) fn tid(&self) -> i32 {
        self.tid
    }

    /// Waits for the thread to end, which `work` has been told to do.
    pub(crate) fn join(self) {
        // A panic of the thread has been reported by the panic hook; what it had collected is still
        // there.
        let _ = self.thread.join();
    }
}
