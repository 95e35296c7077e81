//! A listener of its own, for programs that have none.

use std::convert::Infallible;
use std::net::{Shutdown, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
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
    let refused =
        |error| Error::with_source(ErrorKind::Os, "the address cannot be listened on", error);
    let invalid = |message| Err(Error::new(ErrorKind::InvalidInput, message));
    if options.token.as_ref().is_some_and(Token::is_empty) {
        return invalid("the token is empty, and keeps nobody out".into());
    }
    let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(refused)?.collect();
    if addresses.is_empty() {
        return invalid("there is no address to listen on".into());
    }
    let mut remote = addresses
        .iter()
        .filter(|address| !address.ip().is_loopback());
    if options.token.is_none()
        && !options.is_remote_allowed
        && let Some(remote) = remote.next()
    {
        return invalid(format!(
            "{remote} can be reached from other machines, and profiles tell of the program's code and data; \
             serve a loopback address, as 127.0.0.1:6060, or set `http::Options::token` or `allow_remote`"
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
    let endpoints = Endpoints::of(options, Admission::of_server(options));
    let (stop, stopped) = oneshot::channel();
    let thread = worker::spawn({
        let endpoints = endpoints.clone();
        move || run(runtime, listener, endpoints, stopped)
    })?;
    Ok(Server {
        local_addr,
        endpoints,
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
