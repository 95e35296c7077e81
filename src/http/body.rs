//! Bodies of answers: those that are there, those that follow their heads when they are made, and
//! those that clients take in pieces.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;

use super::outgoing::Outgoing;
use crate::error::{Error, ErrorKind, Result};

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
    Later(Pin<Box<dyn Future<Output = Result<Body>> + Send>>),
    Pieces {
        outgoing: Arc<Outgoing>,
        /// Bytes that are still to come.
        left: u64,
    },
}

impl Body {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Whole(Full::new(bytes.into())))
    }

    pub(super) fn later(body: impl Future<Output = Result<Self>> + Send + 'static) -> Self {
        Self(Kind::Later(Box::pin(body)))
    }

    /// A body of so many bytes.
    pub(super) fn pieces(bytes: u64, outgoing: Arc<Outgoing>) -> Self {
        Self(Kind::Pieces {
            outgoing,
            left: bytes,
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
        if let Kind::Later(body) = &mut self.0 {
            let made = ready!(body.as_mut().poll(context));
            // Of what failed there is nothing more.
            self.0 = Kind::Whole(Full::default());
            self.0 = made?.0;
        }
        match &mut self.0 {
            Kind::Whole(whole) => {
                let frame = Pin::new(whole).poll_frame(context);
                frame.map_err(|never| match never {})
            }
            Kind::Pieces { outgoing, left } => {
                let piece = outgoing.next();
                let bytes = |piece: &Bytes| piece.len() as u64;
                *left -= piece.iter().flatten().map(bytes).sum::<u64>();
                if *left == 0 || piece.is_err() {
                    self.0 = Kind::Whole(Full::default());
                }
                let failed = |sentence| Error::new(ErrorKind::Io, sentence);
                let piece = piece.map_err(failed).transpose();
                Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
            }
            Kind::Later(_) => Poll::Ready(None), // a body that comes later does not come later still
        }
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
