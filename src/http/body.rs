//! Bodies of answers: those that are there, and those that follow their heads when they are made.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;

use super::worker::Pending;
use crate::error::{Error, Result};

/// The body of an answer of [`Endpoints`](super::Endpoints).
///
/// That of a profile follows its head, which is sent as soon as the time is being recorded: clients
/// wait for a head no longer than they do for the time, and naming what was recorded takes longer
/// the larger the program is. Where no profile can be made after all the body is an error, and a
/// server closes the connection. Dropping the body ends the recording.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Full<Bytes>),
    Later(Pending<Result<Vec<u8>>>),
}

impl Body {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Whole(Full::new(bytes.into())))
    }

    pub(super) fn later(bytes: Pending<Result<Vec<u8>>>) -> Self {
        Self(Kind::Later(bytes))
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
            Kind::Later(pending) => match ready!(Pin::new(pending).poll(context)) {
                Ok(Ok(bytes)) => Full::from(bytes),
                Ok(Err(error)) | Err(error) => {
                    self.0 = Kind::Whole(Full::default());
                    return Poll::Ready(Some(Err(error)));
                }
            },
        };
        let frame = Pin::new(&mut whole).poll_frame(context);
        self.0 = Kind::Whole(whole);
        frame.map_err(|never| match never {})
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(whole) => whole.is_end_stream(),
            Kind::Later(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(whole) => whole.size_hint(),
            Kind::Later(_) => SizeHint::default(),
        }
    }
}
