//! Work that takes time, on a thread of its own: the host's executor, whichever it is, does not
//! wait.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::Builder;

use tokio::sync::oneshot;

use super::limits::Permit;
use crate::cpu::Waiter;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::own_threads::note_own;
use crate::sys::signal;

/// Runs `work` on a thread of its own, which has the permit until it is done. Dropping the future
/// cancels what waits on the `Waiter` that the work was given.
///
/// # Errors
///
/// Where the system refuses a thread, and where the work panicked.
pub(super) async fn run<T: Send + 'static>(
    permit: Permit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    run_in_two(permit, |_| Ok(()), |()| work()).await?.await
}

/// Runs `begin`, and then `finish` on what it made, as [`run`] runs its work. The answer is there
/// when `begin` is done; what `finish` makes comes later. Dropping either cancels what waits on the
/// `Waiter`.
///
/// # Errors
///
/// That of `begin`; and those of [`run`].
pub(super) async fn run_in_two<B, T: Send + 'static>(
    permit: Permit,
    begin: impl FnOnce(&Arc<Waiter>) -> Result<B> + Send + 'static,
    finish: impl FnOnce(B) -> T + Send + 'static,
) -> Result<Pending<T>> {
    let client = Client(Arc::default());
    let waiter = client.0.clone();
    let (begun, beginning) = oneshot::channel();
    let (finished, result) = oneshot::channel();
    spawn(move || {
        // Whoever has gone needs no answer.
        let done = match begin(&waiter) {
            Ok(made) => {
                let _ = begun.send(Ok(()));
                Some(finish(made))
            }
            Err(error) => {
                let _ = begun.send(Err(error));
                None
            }
        };
        drop(permit);
        if let Some(done) = done {
            let _ = finished.send(done);
        }
    })?;
    beginning.await.map_err(|_| panicked())??;
    Ok(Pending {
        result,
        _client: client,
    })
}

/// What work that has begun is going to make.
#[derive(Debug)]
pub(super) struct Pending<T> {
    result: oneshot::Receiver<T>,
    _client: Client,
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let result = Pin::new(&mut self.result).poll(context);
        result.map_err(|_| panicked())
    }
}

fn panicked() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the work on this request panicked; the process's stderr may say why",
    )
}

/// Whoever waits for the answer: gone when this is dropped.
#[derive(Debug)]
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
            signal::unblock_profilers();
            let _own = note_own();
            work();
        })
    });
    thread.map_err(|error| {
        Error::with_source(ErrorKind::Os, "could not start a thread for it", error)
    })
}
