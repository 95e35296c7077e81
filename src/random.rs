//! Numbers that are evenly spread, of each of many things.
#![forbid(unsafe_code)]

use std::hash::BuildHasher;

/// Numbers by index, which the others do not foretell, and other ones for each seed: those of the
/// generator SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// 2014).
///
/// A hash table's hash does not do: with some of its seeds, those of neighbours are so uneven that
/// their mean is 5 % off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random {
    seed: u64,
}

impl Random {
    /// With a seed that is another one each time.
    pub(crate) fn new() -> Self {
        let seed = hashbrown::DefaultHashBuilder::default().hash_one(0);
        Self { seed }
    }

    /// The same numbers for the same seed.
    #[cfg(any(feature = "contention", feature = "heap"))]
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self { seed }
    }

    /// Evenly spread over all 64-bit numbers. Does not allocate.
    pub(crate) fn nth(self, index: u64) -> u64 {
        let mut z = (self.seed).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Evenly spread above 0 and up to 1, in steps of 2^-53. Does not allocate.
    #[cfg(feature = "heap")]
    pub(crate) fn share(self, index: u64) -> f64 {
        ((self.nth(index) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly spread over all numbers below a bound, which is not 0. Does not allocate.
    pub(crate) fn nth_below(self, index: u64, bound: u64) -> u64 {
        // The high half of the product.
        ((u128::from(self.nth(index)) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The first ones of the reference implementation with the seed 1234567.
        let random = Random { seed: 1_234_567 };
        let first = [1, 2, 3].map(|index| random.nth(index));
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn neighbours_are_spread_whatever_the_seed() {
        const BOUND: u64 = 10_000_000;
        for seed in 0..1000 {
            let random = Random { seed };
            let numbers = (1..=1000).map(|index| random.nth_below(index, BOUND));
            let numbers: Vec<u64> = numbers.collect();
            assert!(numbers.iter().all(|&number| number < BOUND));
            // The standard error of the mean is 0.9 % of the bound.
            let mean = numbers.iter().sum::<u64>() / 1000;
            assert!(mean.abs_diff(BOUND / 2) < BOUND / 20, "{seed}: {mean}");
        }
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(Random::new().seed, Random::new().seed);
    }
}
