//! The other end of a connection, beside what is read from it and written to it.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// How long who sends nothing more may still read.
const READS_FOR: Duration = Duration::from_secs(1);

/// The other end of a connection. Dropping it ends the connection for that end as well, though a
/// forked child of the program has the descriptors, too.
#[derive(Debug)]
pub(super) struct Peer(TcpStream);

impl Peer {
    /// # Errors
    ///
    /// Where the system has no descriptor left.
    pub(super) fn of(connection: &TcpStream) -> io::Result<Self> {
        // A descriptor of its own, so that the connection does not miss what is heard of here.
        let descriptor = connection.as_fd().try_clone_to_owned()?;
        TcpStream::from_std(descriptor.into()).map(Self)
    }

    /// Waits until the other end sends nothing more, and a moment longer. hyper sees such an end
    /// only where nothing else is left to be read, and reads nothing during an answer.
    pub(super) async fn has_gone(&self) {
        while let Ok(ready) = self.0.ready(Interest::READABLE).await
            && !ready.is_read_closed()
        {
            // What there is to be read is the connection's: the next that comes counts.
            let _ = self.0.try_io(Interest::READABLE, || -> io::Result<()> {
                Err(io::ErrorKind::WouldBlock.into())
            });
        }
        tokio::time::sleep(READS_FOR).await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // An end that has gone already is no loss.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}
