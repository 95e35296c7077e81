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

/// Bins of one size that follow one another. Ranges of histograms must not overlap, unless they are
/// equal: then gprof adds the bins.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Histogram {
    pub(super) addresses: Range<u64>,
    pub(super) bins: Vec<u64>,
}

impl Histogram {
    fn size(&self) -> u128 {
        u128::from(self.addresses.end.saturating_sub(self.addresses.start))
    }

    /// The first address of a bin.
    pub(super) fn address_of(&self, bin: usize) -> u64 {
        let into = (bin as u128 * self.size()).div_ceil(self.bins.len().max(1) as u128);
        self.addresses.start + into as u64
    }

    /// The bin that holds an address.
    pub(super) fn bin_at(&mut self, address: u64) -> Option<&mut u64> {
        if !self.addresses.contains(&address) {
            return None;
        }
        let into = u128::from(address - self.addresses.start);
        let bin = into * self.bins.len() as u128 / self.size();
        self.bins.get_mut(bin as usize)
    }

    /// In how many histograms of this range the file can hold the bins: as many as the largest bin
    /// needs, and one at least.
    pub(super) fn layer_count(&self) -> u64 {
        let largest = self.bins.iter().max().copied().unwrap_or(0);
        largest.div_ceil(MOST).max(1)
    }

    /// The bins of each of those histograms.
    pub(super) fn layers(&self) -> impl Iterator<Item = impl Iterator<Item = u16>> {
        (0..self.layer_count()).map(move |layer| {
            let rest = move |bin: &u64| bin.saturating_sub(layer * MOST).min(MOST) as u16;
            self.bins.iter().map(rest)
        })
    }
}

/// The ranges of two histograms that overlap, if any do: no bin is known by its address then.
pub(super) fn overlap(histograms: &[Histogram]) -> Option<[Range<u64>; 2]> {
    let mut ranges: Vec<_> = histograms.iter().map(|h| &h.addresses).collect();
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut pairs = ranges.windows(2);
    let pair = pairs.find(|pair| pair[1].start < pair[0].end)?;
    Some([pair[0].clone(), pair[1].clone()])
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
                if count <= MOST && !is_large(&last.bins) && low - last.addresses.end <= GAP =>
            {
                let between = (low - last.addresses.end) / BIN;
                last.bins.extend((0..between).map(|_| 0));
                last.bins.push(count);
                last.addresses.end = low.saturating_add(BIN);
            }
            _ => histograms.push(Histogram {
                addresses: low..low.saturating_add(BIN),
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
        let found: Vec<_> = histograms
            .iter()
            .map(|h| (h.addresses.start, &*h.bins))
            .collect();
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

    #[test]
    fn a_bin_is_found_by_its_address_whatever_its_size() {
        for (size, bins) in [(1, 1), (10, 10), (10, 3), (1000, 999), (u64::MAX, 7)] {
            let mut histogram = Histogram {
                addresses: 0..size,
                bins: (0..bins).collect(),
            };
            for bin in 0..bins {
                let address = histogram.address_of(bin as usize);
                assert_eq!(
                    histogram.bin_at(address),
                    Some(&mut { bin }),
                    "{size} {bins}"
                );
            }
            assert_eq!(histogram.bin_at(size), None);
        }
    }
}
