//! Values by address as histograms: bins of two bytes of code, as small as gprof knows them.

use std::ops::Range;

/// Bytes of code that a bin covers. All histograms of a file must have bins of one size.
pub(super) const BIN: u64 = 2;
/// The most that a bin holds.
pub(super) const MOST: u64 = u16::MAX as u64;
/// So much code without samples may lie between two bins of one histogram. There are a few
/// histograms then, since gprof compares each with all others, and no file is much larger than the
/// code that was met.
const GAP: u64 = 4096;

/// Bins that follow one another. Ranges of histograms must not overlap, unless they are equal:
/// then gprof adds the bins.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Histogram {
    /// The address of the first bin.
    pub(super) low: u64,
    pub(super) bins: Vec<u64>,
}

impl Histogram {
    pub(super) fn addresses(&self) -> Range<u64> {
        self.low..self.low.saturating_add(self.bins.len() as u64 * BIN)
    }

    /// The bins as the file can hold them: in as many histograms of this range as the largest bin
    /// needs, and one at least.
    pub(super) fn layers(&self) -> impl Iterator<Item = impl Iterator<Item = u16>> {
        let largest = self.bins.iter().max().copied().unwrap_or(0);
        (0..largest.div_ceil(MOST).max(1)).map(move |layer| {
            let rest = move |bin: &u64| bin.saturating_sub(layer * MOST).min(MOST) as u16;
            self.bins.iter().map(rest)
        })
    }
}

/// Histograms of these counts, which come in the order of their addresses. A bin that needs more
/// than one histogram has them for itself.
pub(super) fn histograms(counts: impl Iterator<Item = (u64, u64)>) -> Vec<Histogram> {
    let mut bins: Vec<(u64, u64)> = Vec::new();
    for (address, count) in counts {
        let low = address - address % BIN;
        match bins.last_mut() {
            Some((last, sum)) if *last == low => *sum = sum.saturating_add(count),
            _ => bins.push((low, count)),
        }
    }
    let mut histograms: Vec<Histogram> = Vec::new();
    for (low, count) in bins {
        let is_large = |bins: &[u64]| bins[0] > MOST;
        match histograms.last_mut() {
            Some(last)
                if count <= MOST && !is_large(&last.bins) && low - last.addresses().end <= GAP =>
            {
                let between = (low - last.addresses().end) / BIN;
                last.bins.extend((0..between).map(|_| 0));
                last.bins.push(count);
            }
            _ => histograms.push(Histogram {
                low,
                bins: vec![count],
            }),
        }
    }
    histograms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_that_are_near_share_a_histogram_and_a_large_one_has_its_own() {
        let counts = [
            (0x1000, 1),
            (0x1001, 2),
            (0x1006, 3),
            (0x1008, 70_000),
            (0x100a, 4),
            (0x9000, 5),
        ];
        let histograms = histograms(counts.into_iter());
        let found: Vec<_> = histograms.iter().map(|h| (h.low, &*h.bins)).collect();
        assert_eq!(
            found,
            [
                (0x1000, &[3, 0, 0, 3][..]),
                (0x1008, &[70_000]),
                (0x100a, &[4]),
                (0x9000, &[5]),
            ]
        );
        let layers: Vec<Vec<u16>> = histograms[1].layers().map(Iterator::collect).collect();
        assert_eq!(layers, [[65_535], [4_465]]);
        assert_eq!(histograms[0].layers().count(), 1);
    }
}
