//! A listener of its own, for programs that have none.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use tower_service::Service;

use super::endpoints::Endpoints;
use super::worker;
use crate::error::{Error, ErrorKind, Result};

/// How long a client may take to send a request's line and headers.
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of a request's line and headers.
const MAX_HEAD: usize = 16 * 1024;
/// How long nobody is let in where the system has no descriptor left.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// A server of the pprof endpoints, on a thread of its own. Dropping it ends it, with all that its
/// clients wait for.
#[derive(Debug)]
#[must_use = "dropping the server ends it: bind it, as in `let _server = …`"]
pub struct Server {
    local_addr: SocketAddr,
    /// Dropped, it ends the thread.
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

/// Serves the [endpoints](super) at a loopback address, on a thread of its own, until the answer is
/// dropped. Port 0 is any that is free: [`Server::local_addr`] says which.
///
/// # Errors
///
/// [`InvalidInput`](ErrorKind::InvalidInput) for an address that other machines can reach, or none
/// at all; [`Os`](ErrorKind::Os) where the system refuses the address or a thread.
pub fn serve(address: impl ToSocketAddrs) -> Result<Server> {
    let refused =
        |error| Error::with_source(ErrorKind::Os, "the address cannot be listened on", error);
    let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(refused)?.collect();
    if let Some(remote) = addresses.iter().find(|address| !address.ip().is_loopback()) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "{remote} can be reached from other machines, and profiles tell of the program's code and data; \
                 serve a loopback address, as 127.0.0.1:6060"
            ),
        ));
    }
    let listener = TcpListener::bind(&*addresses).map_err(refused)?;
    let local_addr = listener.local_addr().map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(refused)?;
    let listener = {
        let _entered = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(refused)?
    };
    let (stop, stopped) = oneshot::channel();
    let thread = worker::spawn(move || run(runtime, listener, stopped))?;
    Ok(Server {
        local_addr,
        stop: Some(stop),
        thread: Some(thread),
        process: std::process::id(),
    })
}

impl Server {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Ends the server, as dropping it does: connections are closed, and windows that clients wait
    /// for end. The port is free when this returns.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A forked child has no such thread, and its runtime is not the child's to touch.
        if self.process != std::process::id() {
            std::mem::forget(self.stop.take());
            std::mem::forget(self.thread.take());
            return;
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Serves until it is told to stop. Connections end with the runtime.
fn run(
    runtime: Runtime,
    listener: tokio::net::TcpListener,
    stopped: oneshot::Receiver<Infallible>,
) {
    runtime.block_on(async {
        tokio::select! {
            _ = stopped => {}
            () = accept(listener) => {}
        }
    });
}

async fn accept(listener: tokio::net::TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let endpoints = service_fn(|request| Endpoints::new().call(request));
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(SENT_WITHIN)
                    .max_buf_size(MAX_HEAD)
                    .serve_connection(TokioIo::new(stream), endpoints);
                // A connection that fails is the client's loss, which sees it.
                tokio::spawn(async { drop(connection.await) });
            }
            // Of no descriptor being left; or of a connection that is gone already.
            Err(_) => tokio::time::sleep(RETRY_AFTER).await,
        }
    }
}
