//! Work that takes time, on a thread of its own: the host's executor, whichever it is, does not
//! wait.

use std::sync::Arc;
use std::thread::Builder;

use tokio::sync::oneshot;

use super::limits::Permit;
use crate::cpu::Waiter;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::signal;

/// Runs `work` on a thread of its own, which has the permit until it is done. Dropping the future
/// cancels what waits on the `Waiter` that the work was given.
///
/// # Errors
///
/// Where the system refuses a thread, and where the work panicked.
pub(super) async fn run<T: Send + 'static>(
    permit: Permit,
    work: impl FnOnce(&Arc<Waiter>) -> T + Send + 'static,
) -> Result<T> {
    let client = Client(Arc::default());
    let waiter = client.0.clone();
    let (result, answer) = oneshot::channel();
    spawn(move || {
        let done = work(&waiter);
        drop(permit);
        // Whoever has gone needs none.
        let _ = result.send(done);
    })?;
    answer.await.map_err(|_| {
        Error::new(
            ErrorKind::Unsupported,
            "the work on this request panicked; the process's stderr may say why",
        )
    })
}

/// Whoever waits for the answer: gone when this is dropped.
struct Client(Arc<Waiter>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Starts a thread named `sigprof-http`. No signal of the host's is delivered to it, but those of
/// profilers are: it is sampled as any other.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    let thread = signal::with_signals_blocked(|| {
        Builder::new().name("sigprof-http".into()).spawn(move || {
            signal::unblock(&[libc::SIGPROF, libc::SIGURG]);
            work();
        })
    });
    thread.map_err(|error| {
        Error::with_source(ErrorKind::Os, "could not start a thread for it", error)
    })
}
