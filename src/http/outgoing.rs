//! What clients are to take: bytes in pieces, which hold what the answer has taken of the limits.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;

/// How long a client may take where others wait for what the answer holds.
pub(super) const TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// The most bytes that are copied at a time.
const PIECE: usize = 64 << 10;

type Pieces = Box<dyn Iterator<Item = Bytes> + Send>;

/// What one client is to take.
pub(super) struct Outgoing(Mutex<Option<Pieces>>);

/// All that clients are to take. A server asks for the next piece when its client has taken some,
/// which may be never; so what was not taken in time is taken back by whoever needs what it holds.
#[derive(Debug, Default)]
pub(super) struct AllOutgoing(Mutex<Vec<(Instant, Weak<Outgoing>)>>);

impl Outgoing {
    /// The next piece, which is not empty, if there is one left.
    ///
    /// # Errors
    ///
    /// A sentence, where all was taken back.
    pub(super) fn next(&self) -> Result<Option<Bytes>, String> {
        let mut pieces = lock(&self.0);
        let left = pieces.as_mut().ok_or_else(|| {
            format!("the client has not taken all within {TAKEN_WITHIN:?}, and others wait")
        })?;
        Ok(left.next())
    }
}

impl AllOutgoing {
    /// Pieces, none of them empty, for a client to take from now on.
    pub(super) fn add(
        &self,
        pieces: impl Iterator<Item = Bytes> + Send + 'static,
    ) -> Arc<Outgoing> {
        let outgoing = Arc::new(Outgoing(Mutex::new(Some(Box::new(pieces)))));
        let mut all = lock(&self.0);
        all.retain(|(_, outgoing)| outgoing.strong_count() > 0);
        all.push((Instant::now(), Arc::downgrade(&outgoing)));
        outgoing
    }

    /// Takes back what clients have not taken by `now` though they had the time.
    pub(super) fn take_back(&self, now: Instant) {
        let mut all = lock(&self.0);
        all.retain(|(since, outgoing)| {
            let is_late = now.saturating_duration_since(*since) > TAKEN_WITHIN;
            if is_late && let Some(outgoing) = outgoing.upgrade() {
                drop(lock(&outgoing.0).take());
            }
            !is_late
        });
    }
}

/// Bytes in pieces. The pieces are copies, which hold nothing.
pub(super) fn copied<H>(bytes: Vec<u8>, held: H) -> impl Iterator<Item = Bytes> {
    let mut begin = 0;
    std::iter::from_fn(move || {
        let _held = &held;
        let rest = &bytes[begin..];
        let piece = &rest[..rest.len().min(PIECE)];
        begin += piece.len();
        (!piece.is_empty()).then(|| Bytes::copy_from_slice(piece))
    })
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_in_time_is_taken_back() {
        let all = AllOutgoing::default();
        let held = [(); 2].map(Arc::new);
        let [late, ended] = held.each_ref().map(|held| {
            let bytes = (0..200_000).map(|i| i as u8).collect();
            all.add(copied(bytes, held.clone()))
        });
        let mut taken = Vec::new();
        while let Some(piece) = ended.next().unwrap() {
            taken.extend_from_slice(&piece);
        }
        assert!((0..200_000).map(|i| i as u8).eq(taken));
        assert_eq!(late.next().unwrap().unwrap().len(), PIECE);
        let now = Instant::now();
        all.take_back(now);
        assert_eq!(late.next().unwrap().unwrap().len(), PIECE);
        drop(ended);
        assert_eq!(held.each_ref().map(Arc::strong_count), [2, 1]);
        all.take_back(now + TAKEN_WITHIN + Duration::from_secs(1));
        assert_eq!(held.each_ref().map(Arc::strong_count), [1, 1]);
        assert!(late.next().unwrap_err().contains("others wait"));
    }
}
