//! Bodies of answers: those that are there, those that follow their heads when they are made, and
//! those that are made as they are taken.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;

use crate::error::{Error, ErrorKind, Result};

/// How long a client may take to take what is made as it is taken.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// The body of an answer of [`Endpoints`](super::Endpoints).
///
/// That of a profile follows its head, which is sent as soon as the time is being recorded: clients
/// wait for a head no longer than they do for the time, and naming what was recorded takes longer
/// the larger the program is. Where no profile can be made after all the body is an error, and a
/// server closes the connection. Dropping the body ends the recording. Clients of HTTP/1.0 wait.
#[derive(Debug)]
pub struct Body(Kind);

enum Kind {
    Whole(Full<Bytes>),
    Later(Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>),
    Pieces {
        pieces: Box<dyn Iterator<Item = Bytes> + Send>,
        /// Bytes that are still to come.
        left: u64,
        since: Instant,
    },
}

impl Body {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Whole(Full::new(bytes.into())))
    }

    pub(super) fn later(bytes: impl Future<Output = Result<Bytes>> + Send + 'static) -> Self {
        Self(Kind::Later(Box::pin(bytes)))
    }

    /// A body of so many bytes in pieces, none of them empty.
    pub(super) fn pieces(bytes: u64, pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        Self(Kind::Pieces {
            pieces: Box::new(pieces),
            left: bytes,
            since: Instant::now(),
        })
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        let mut whole = match &mut self.0 {
            Kind::Whole(whole) => std::mem::take(whole),
            Kind::Later(bytes) => match ready!(bytes.as_mut().poll(context)) {
                Ok(bytes) => Full::from(bytes),
                Err(error) => {
                    self.0 = Kind::Whole(Full::default());
                    return Poll::Ready(Some(Err(error)));
                }
            },
            Kind::Pieces {
                pieces,
                left,
                since,
            } => {
                if since.elapsed() > TAKEN_WITHIN {
                    let message = format!("the client has not taken all within {TAKEN_WITHIN:?}");
                    self.0 = Kind::Whole(Full::default());
                    return Poll::Ready(Some(Err(Error::new(ErrorKind::Io, message))));
                }
                let piece = pieces.next();
                *left -= piece.as_ref().map_or(*left, |piece| piece.len() as u64);
                return Poll::Ready(piece.map(Frame::data).map(Ok));
            }
        };
        let frame = Pin::new(&mut whole).poll_frame(context);
        self.0 = Kind::Whole(whole);
        frame.map_err(|never| match never {})
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(whole) => whole.is_end_stream(),
            Kind::Later(_) => false,
            Kind::Pieces { left, .. } => *left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(whole) => whole.size_hint(),
            Kind::Later(_) => SizeHint::default(),
            Kind::Pieces { left, .. } => SizeHint::with_exact(*left),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Whole(_) => "Whole",
            Self::Later(_) => "Later",
            Self::Pieces { .. } => "Pieces",
        };
        f.debug_struct(kind).finish_non_exhaustive()
    }
}
