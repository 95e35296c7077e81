//! Values by address as histograms: bins of two bytes of code, as small as gprof knows them.

use std::ops::Range;

/// Bytes of code that a bin covers. All histograms of a file must have bins of one size.
pub(super) const BIN: u64 = 2;
/// The most that a bin holds.
pub(super) const MOST: u64 = u16::MAX as u64;

/// Bins of one size that follow one another. Ranges of histograms must not overlap, unless they are
/// equal: then gprof adds the bins.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Histogram {
    pub(super) addresses: Range<u64>,
    pub(super) bins: Vec<u64>,
}

impl Histogram {
    /// Bins of nothing.
    pub(super) fn empty(addresses: Range<u64>) -> Self {
        let bins = (addresses.end - addresses.start).div_ceil(BIN);
        Self {
            addresses,
            bins: vec![0; bins as usize],
        }
    }

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

/// Histograms of these counts, which come in the order of their addresses: one for each block of
/// this many bytes of code that has any. Blocks are the same in all files of a program, so that
/// `gprof -s` adds them: it refuses ranges that overlap and are not equal.
pub(super) fn histograms(counts: impl Iterator<Item = (u64, u64)>, block: u64) -> Vec<Histogram> {
    let mut histograms: Vec<Histogram> = Vec::new();
    for (address, count) in counts {
        let start = address - address % block;
        if histograms
            .last()
            .is_none_or(|last| last.addresses.start != start)
        {
            histograms.push(Histogram::empty(start..start.saturating_add(block)));
        }
        let bin = histograms
            .last_mut()
            .map(|last| &mut last.bins[((address - start) / BIN) as usize]);
        if let Some(bin) = bin {
            *bin = bin.saturating_add(count);
        }
    }
    histograms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_code_have_a_histogram_each() {
        let counts = [
            (0x1000, 1),
            (0x1001, 2),
            (0x1006, 3),
            (0x1008, 70_000),
            (0x1010, 4),
            (0x9000, 5),
            (u64::MAX, 6),
        ];
        let histograms = histograms(counts.into_iter(), 16);
        let found: Vec<_> = histograms
            .iter()
            .map(|h| (h.addresses.start, &*h.bins))
            .collect();
        assert_eq!(
            found,
            [
                (0x1000, &[3, 0, 0, 3, 70_000, 0, 0, 0][..]),
                (0x1010, &[4, 0, 0, 0, 0, 0, 0, 0]),
                (0x9000, &[5, 0, 0, 0, 0, 0, 0, 0]),
                (u64::MAX - 15, &[0, 0, 0, 0, 0, 0, 0, 6]),
            ]
        );
        let layers: Vec<Vec<u16>> = histograms[0].layers().map(Iterator::collect).collect();
        assert_eq!(layers.len(), 2);
        assert_eq!([layers[0][4], layers[1][4]], [65_535, 4_465]);
        assert_eq!([layers[0][0], layers[1][0]], [3, 0]);
        assert_eq!(histograms[1].layers().count(), 1);
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
