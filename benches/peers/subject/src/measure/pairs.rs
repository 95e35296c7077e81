//! The same with and without recording, in turn.

use crate::Result;
use crate::options::Options;

/// What one turn came to, with recording and without.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    pub with: f64,
    pub without: f64,
}

/// Runs `phase` without and with recording in turn, and pairs each phase that records with the mean
/// of the two around it that do not: a machine that becomes slower steadily does not count. A phase
/// has several figures; each is paired with its like.
///
/// A first pair does not count: it pages in code, and warms caches.
pub fn alternate<const N: usize>(
    options: &Options,
    mut phase: impl FnMut(bool) -> Result<[f64; N]>,
) -> Result<[Vec<Pair>; N]> {
    phase(false)?;
    phase(true)?;
    let mut pairs = [const { Vec::new() }; N];
    let mut before = phase(false)?;
    for _ in 0..options.pairs {
        let with = phase(true)?;
        let after = phase(false)?;
        for (figure, pairs) in pairs.iter_mut().enumerate() {
            pairs.push(Pair {
                with: with[figure],
                without: (before[figure] + after[figure]) / 2.0,
            });
        }
        before = after;
    }
    Ok(pairs)
}
