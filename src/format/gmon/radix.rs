//! Numbers in order, by one digit after the other.

use std::ops::Range;

/// The most bits of a digit: more counts than these would not stay in the CPU's fast caches.
const DIGIT_BITS: u32 = 11;

/// Memory for sorting, kept from one call to the next.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    numbers: [Vec<u64>; 2],
    /// Where the next number with each digit goes; and how many have each next digit.
    places: [Vec<u32>; 2],
}

/// Sorts numbers by some of their bits. Those that agree in these bits stay in their order. There
/// are less than 2^32 of them.
pub(super) fn sorted<'s>(
    numbers: &'s [u64],
    bits: Range<u32>,
    scratch: &'s mut Scratch,
) -> &'s [u64] {
    // As many bits in each digit, rather than a few in the last one.
    let digits = (bits.len() as u32).div_ceil(DIGIT_BITS).max(1);
    let digit_bits = (bits.len() as u32).div_ceil(digits).max(1);
    let mask = |shift: u32| (1 << digit_bits.min(bits.end.saturating_sub(shift))) - 1;
    let digit = |number: u64, shift: u32, mask: u64| (number.unbounded_shr(shift) & mask) as usize;
    let Scratch {
        numbers: [to, other],
        places: [places, next_places],
    } = scratch;
    for scratch in [&mut *to, other] {
        scratch.resize(scratch.len().max(numbers.len()), 0);
    }
    let (mut to, mut other) = (&mut to[..numbers.len()], &mut other[..numbers.len()]);
    for places in [&mut *places, next_places] {
        places.clear();
        places.resize(1 << digit_bits, 0);
    }
    for &number in numbers {
        places[digit(number, bits.start, mask(bits.start))] += 1;
    }
    let mut is_first = true;
    for shift in bits.clone().step_by(digit_bits as usize) {
        let mut sum = 0;
        for place in &mut *places {
            sum += std::mem::replace(place, sum);
        }
        let from = if is_first { numbers } else { &*other };
        let next_shift = shift + digit_bits;
        let (mask, next_mask) = (mask(shift), mask(next_shift));
        let mut put = |number: u64| {
            let place = &mut places[digit(number, shift, mask)];
            to[*place as usize] = number;
            *place += 1;
        };
        match next_mask {
            0 => from.iter().for_each(|&number| put(number)),
            _ => from.iter().for_each(|&number| {
                put(number);
                next_places[digit(number, next_shift, next_mask)] += 1;
            }),
        }
        places.fill(0);
        std::mem::swap(places, next_places);
        std::mem::swap(&mut to, &mut other);
        is_first = false;
    }
    if is_first { numbers } else { other }
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
            let mut scratch = Scratch::default();
            sorted(&[u64::MAX, 1], 0..64, &mut scratch);
            prop_assert_eq!(sorted(&numbers, begin..end, &mut scratch), expected);
        }
    }
}
