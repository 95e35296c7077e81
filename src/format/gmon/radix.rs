//! Numbers in order, by one digit after the other.

use std::ops::Range;

/// The most bits of a digit: more counts than these would not stay in the CPU's fast caches.
const DIGIT_BITS: u32 = 11;

/// Sorts numbers by some of their bits. Those that agree in these bits stay in their order. What the
/// scratch holds does not matter; it is kept for the next call.
pub(super) fn sort<'n>(mut numbers: &'n mut [u64], scratch: &'n mut Vec<u64>, bits: Range<u32>) {
    // As many bits in each digit, rather than a few in the last one.
    let digits = (bits.len() as u32).div_ceil(DIGIT_BITS).max(1);
    let digit_bits = (bits.len() as u32).div_ceil(digits).max(1);
    scratch.resize(scratch.len().max(numbers.len()), 0);
    let mut other = &mut scratch[..numbers.len()];
    let mut is_in_scratch = false;
    for shift in bits.clone().step_by(digit_bits as usize) {
        let width = digit_bits.min(bits.end - shift);
        let digit = |number: u64| (number >> shift & ((1 << width) - 1)) as usize;
        let mut places = [0usize; 1 << DIGIT_BITS];
        for &number in &*numbers {
            places[digit(number)] += 1;
        }
        let mut sum = 0;
        for place in &mut places[..1 << width] {
            sum += std::mem::replace(place, sum);
        }
        for &number in &*numbers {
            let place = &mut places[digit(number)];
            other[*place] = number;
            *place += 1;
        }
        std::mem::swap(&mut numbers, &mut other);
        is_in_scratch = !is_in_scratch;
    }
    if is_in_scratch {
        other.copy_from_slice(numbers);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_sorted_by_these_bits_alone(
            numbers in proptest::collection::vec(any::<u64>(), 0..2000),
            (begin, end) in (0..=64u32, 0..=64u32).prop_filter("a range", |(a, b)| a <= b),
        ) {
            let by = |number: &u64| (begin..end).map(|bit| number >> bit & 1).rev().collect::<Vec<_>>();
            let mut expected = numbers.clone();
            expected.sort_by_key(by);
            let mut sorted = numbers;
            sort(&mut sorted, &mut vec![1], begin..end);
            prop_assert_eq!(sorted, expected);
        }
    }
}
