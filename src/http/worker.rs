//! Work that takes time, on a thread of its own: the host's executor, whichever it is, does not
//! wait.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::sys::signal;

/// Whoever waits for the answer.
#[derive(Debug)]
pub(super) struct Client(Receiver<Infallible>);

impl Client {
    /// Waits for so long; false as soon as the client has gone.
    pub(super) fn waits_for(&self, time: Duration) -> bool {
        matches!(self.0.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}

/// Runs `work` on a thread of its own. Dropping the future tells it that the client has gone.
///
/// # Errors
///
/// Where the system refuses a thread, and where the work panicked.
pub(super) async fn run<T: Send + 'static>(
    work: impl FnOnce(Client) -> T + Send + 'static,
) -> Result<T> {
    let (_is_there, gone) = channel();
    let (result, answer) = oneshot::channel();
    spawn(move || {
        // Whoever has gone needs none.
        let _ = result.send(work(Client(gone)));
    })?;
    answer.await.map_err(|_| {
        Error::new(
            ErrorKind::Unsupported,
            "the work on this request panicked; the process's stderr may say why",
        )
    })
}

/// Starts a thread named `sigprof-http`. No signal of the host's is delivered to it, but those of
/// profilers are: it is sampled as any other.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    let thread = signal::with_signals_blocked(|| {
        Builder::new().name("sigprof-http".into()).spawn(move || {
            signal::unblock(libc::SIGPROF, libc::SIGURG);
            work();
        })
    });
    thread.map_err(|error| {
        Error::with_source(ErrorKind::Os, "could not start a thread for it", error)
    })
}
