//! Code that one section describes and another does not.
#![forbid(unsafe_code)]

use std::ops::Range;

/// A part of a function that is to be taken from the entry at `offset`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Part {
    pub(super) range: Range<u64>,
    pub(super) offset: usize,
}

/// The parts of `functions` that are in no range of `described`, in ascending order, and no two of
/// them of the same code.
pub(super) fn undescribed(mut functions: Vec<Part>, mut described: Vec<Range<u64>>) -> Vec<Part> {
    functions.sort_unstable_by_key(|part| (part.range.start, part.range.end, part.offset));
    described.sort_unstable_by_key(|range| range.start);
    let mut others = described.into_iter().peekable();
    let mut parts = Vec::new();
    // Up to where it is decided what holds.
    let mut place = 0;
    for Part { range, offset } in functions {
        place = range.start.max(place);
        while place < range.end {
            while others.next_if(|other| other.end <= place).is_some() {}
            let next = others.peek();
            if let Some(other) = next
                && other.start <= place
            {
                place = other.end;
                continue;
            }
            let end = next.map_or(range.end, |other| other.start.min(range.end));
            let range = place..end;
            place = end;
            parts.push(Part { range, offset });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_leave_is_taken_once_and_in_order() {
        let part = |range: Range<u64>, offset| Part { range, offset };
        let functions = vec![
            part(300..400, 3),
            part(0..100, 1),
            part(50..120, 2),
            part(500..510, 4),
        ];
        let described = vec![
            310..320,
            90..95,
            10..20,
            320..330,
            395..500,
            12..15,
            600..700,
        ];
        let expected = vec![
            part(0..10, 1),
            part(20..90, 1),
            part(95..100, 1),
            part(100..120, 2),
            part(300..310, 3),
            part(330..395, 3),
            part(500..510, 4),
        ];
        assert_eq!(undescribed(functions.clone(), described), expected);
        assert_eq!(undescribed(functions, vec![0..50, 20..u64::MAX]), []);
        assert_eq!(undescribed(vec![part(9..9, 0)], vec![]), []);
    }
}
