//! A listener of its own, for programs that have none.

use std::convert::Infallible;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;

use super::admission::{Admission, Token};
use super::connection::{self, Places};
use super::endpoints::Endpoints;
use super::options::Options;
use super::worker;
use crate::error::{Error, ErrorKind, Result};

/// How long the end of a server waits for work that nobody waits for any more.
const WORK_ENDS_WITHIN: Duration = Duration::from_secs(10);
/// How long nobody is let in where the system has no descriptor left.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// A server of the pprof endpoints, on a thread of its own. Dropping it ends it, with all that its
/// clients wait for.
#[derive(Debug)]
#[must_use = "dropping the server ends it: bind it, as in `let _server = …`"]
pub struct Server {
    local_addr: SocketAddr,
    endpoints: Endpoints,
    /// Dropped, it ends the thread.
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

/// Serves the [endpoints](super) at a loopback address, on a thread of its own, until the answer is
/// dropped. Port 0 is any that is free: [`Server::local_addr`] says which. [`Options::serve`] has
/// more to choose from.
///
/// # Errors
///
/// [`InvalidInput`](ErrorKind::InvalidInput) for an address that other machines can reach, or none
/// at all; [`Os`](ErrorKind::Os) where the system refuses the address or a thread.
pub fn serve(address: impl ToSocketAddrs) -> Result<Server> {
    Options::new().serve(address)
}

/// Serves as the options have it.
pub(super) fn start(options: &Options, address: impl ToSocketAddrs) -> Result<Server> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidInput, message);
    if options.token.as_ref().is_some_and(Token::is_empty) {
        return Err(invalid("the token is empty, and keeps nobody out".into()));
    }
    let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(no_address)?.collect();
    if addresses.is_empty() {
        return Err(invalid("there is no address to listen on".into()));
    }
    let is_remote = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
    if options.token.is_none()
        && !options.is_remote_allowed
        && let Some(remote) = addresses.iter().find(is_remote)
    {
        return Err(invalid(format!(
            "{remote} can be reached from other machines, and profiles tell of the program's code and data; \
             serve a loopback address, as 127.0.0.1:6060, or set `http::Options::token` or `allow_remote`"
        )));
    }
    let refused = |error| {
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let message = format!("cannot listen on {}", addresses.join(" or "));
        Error::with_source(ErrorKind::Os, message, error)
    };
    let listener = TcpListener::bind(&*addresses).map_err(refused)?;
    let local_addr = listener.local_addr().map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let endpoints = Endpoints::of(options, Admission::of_server(options));
    let (stop, stopped) = oneshot::channel();
    let (begun, beginning) = mpsc::channel();
    let thread = worker::spawn({
        let endpoints = endpoints.clone();
        // A runtime cannot be dropped by a thread that runs another one, so the caller's has none.
        move || match runtime_for(listener) {
            Ok((runtime, listener)) => {
                let _ = begun.send(Ok(()));
                run(runtime, listener, endpoints, stopped);
            }
            Err(error) => {
                let _ = begun.send(Err(error));
            }
        }
    })?;
    // A thread that panicked sends nothing.
    let panicked = |_| Err(io::Error::other("its thread panicked"));
    beginning.recv().unwrap_or_else(panicked).map_err(refused)?;
    Ok(Server {
        local_addr,
        endpoints,
        stop: Some(stop),
        thread: Some(thread),
        process: std::process::id(),
    })
}

/// The error of an address that is none, or whose name has none.
fn no_address(error: io::Error) -> Error {
    let (kind, message) = match error.kind() {
        io::ErrorKind::InvalidInput => (
            ErrorKind::InvalidInput,
            "the address must have a port, as 127.0.0.1:6060",
        ),
        _ => (ErrorKind::Os, "the host has no address to listen on"),
    };
    Error::with_source(kind, message, error)
}

/// A runtime of one thread, and the listener for it.
fn runtime_for(listener: TcpListener) -> io::Result<(Runtime, tokio::net::TcpListener)> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let listener = {
        let _entered = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    Ok((runtime, listener))
}

impl Server {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Ends the server, as dropping it does: connections are closed, and windows that clients wait
    /// for end. When this returns the port is free, and nothing is recorded for a client any more.
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
        // Windows are cancelled. What else there is to do for a client that has gone ends soon.
        let deadline = Instant::now() + WORK_ENDS_WITHIN;
        while !self.endpoints.limits().are_idle() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Serves until it is told to stop. Connections end with the runtime.
fn run(
    runtime: Runtime,
    listener: tokio::net::TcpListener,
    endpoints: Endpoints,
    stopped: oneshot::Receiver<Infallible>,
) {
    runtime.block_on(async {
        tokio::select! {
            _ = stopped => {}
            () = accept(&listener, endpoints) => {}
        }
    });
    // A forked child of the program that has the descriptor, too, does not keep the port.
    let _ = SockRef::from(&listener).shutdown(Shutdown::Both);
}

async fn accept(listener: &tokio::net::TcpListener, endpoints: Endpoints) {
    let places = Arc::new(Places::new());
    loop {
        // Who is not let in yet waits.
        let place = places.one().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = connection::serve(stream, endpoints.clone(), places.clone());
                tokio::spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            // Of no descriptor being left; or of a connection that is gone already.
            Err(_) => tokio::time::sleep(RETRY_AFTER).await,
        }
    }
}
