//! From a code address to its rule, in signal context: rows in ascending order, four bytes each,
//! behind an index of pages.
#![forbid(unsafe_code)]

use super::quick::Quick;
use super::rule::Rule;

/// A page of the index is so many bytes of code, as a power of two: two or three rows of usual
/// code.
const PAGE_BITS: u32 = 8;
/// A row holds so many low bits of its place in the upper half; a page has fewer, so that within it
/// they are in order.
const PLACE_BITS: u32 = 16;

const _: () = assert!(PAGE_BITS <= PLACE_BITS);

/// The rules of one module's code.
#[derive(Debug)]
pub(super) struct Table {
    /// For each page the number of rows before it, and one more entry for the end.
    pages: Box<[u32]>,
    /// In the upper half the low bits of where the row begins, in the lower half the number of its
    /// rule.
    rows: Box<[u32]>,
    rules: Box<[Rule]>,
    /// The same, as far as they are such.
    quick: Box<[Quick]>,
}

impl Table {
    /// The number of the rule at a place, which counts from the table's beginning; `None` where the
    /// table has none. *Async-signal-safe.*
    #[inline]
    pub(super) fn find(&self, place: u64) -> Option<u16> {
        let page = usize::try_from(place >> PAGE_BITS).ok()?;
        let &[begin, end] = self.pages.get(page..)?.first_chunk()?;
        let (begin, end) = (begin as usize, end as usize);
        let low = place as u32 & ((1 << PLACE_BITS) - 1);
        let rows = self.rows.get(begin..end)?.iter();
        // So few that to look at each is faster than to search: no branch depends on what is there.
        let before: u32 = rows.map(|row| u32::from(row >> PLACE_BITS <= low)).sum();
        // Where no row of this page has begun yet, the last one of the pages before goes on.
        let row = self.rows.get((begin + before as usize).checked_sub(1)?)?;
        Some(*row as u16)
    }

    /// The rule of a number. *Async-signal-safe.*
    pub(super) fn rule(&self, number: u16) -> Option<&Rule> {
        self.rules.get(usize::from(number))
    }

    /// The same in less space, if it fits. *Async-signal-safe.*
    #[inline]
    pub(super) fn quick(&self, number: u16) -> Quick {
        let quick = self.quick.get(usize::from(number));
        quick.copied().unwrap_or(Quick::NONE)
    }

    /// The rule at a place.
    #[cfg(any(test, fuzzing))]
    pub(super) fn rule_at(&self, place: u64) -> Option<&Rule> {
        self.rule(self.find(place)?)
    }

    /// Rows, one for each place where another rule begins.
    #[cfg(test)]
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Distinct rules.
    #[cfg(test)]
    pub(super) fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Bytes that the table takes.
    pub(super) fn size_bytes(&self) -> usize {
        size_of_val(&*self.pages)
            + size_of_val(&*self.rows)
            + size_of_val(&*self.rules)
            + size_of_val(&*self.quick)
    }
}

/// A table in the making, to which rows are added in ascending order.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pages: Vec<u32>,
    rows: Vec<u32>,
    rules: Vec<Rule>,
    numbers: hashbrown::HashMap<Rule, u16>,
    last: Option<(u64, Rule)>,
    last_number: u16,
}

/// Rules that a row can name.
const MOST_RULES: usize = 1 << 16;
/// Code that a table can hold, in bytes: the index takes a 64th of that.
const MOST_CODE: u64 = 1 << 34;

impl Builder {
    /// Room for about so many rows.
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self {
            rows: Vec::with_capacity(rows),
            ..Self::default()
        }
    }

    /// From `place` on, `rule` holds. A place that is not above the last one takes that one's, if
    /// it is the same, and is left out where it is below.
    pub(super) fn push(&mut self, place: u64, rule: Rule) {
        if place >= MOST_CODE {
            return;
        }
        match self.last {
            Some((last, _)) if place < last => return,
            Some((_, last_rule)) if last_rule == rule => return,
            Some((last, _)) if place == last => {
                self.rows.pop();
                // The row before it may have had this rule already, which then stands twice: a row
                // too many, no wrong one.
            }
            _ => {}
        }
        let number = self.number(rule);
        let page = (place >> PAGE_BITS) as usize;
        if self.pages.len() <= page {
            self.pages.resize(page + 1, self.rows.len() as u32);
        }
        let low = place as u32 & ((1 << PLACE_BITS) - 1);
        self.rows.push(low << PLACE_BITS | u32::from(number));
        self.last = Some((place, rule));
        self.last_number = number;
    }

    fn number(&mut self, rule: Rule) -> u16 {
        if let Some(&number) = self.numbers.get(&rule) {
            return number;
        }
        let full = self.rules.len() >= MOST_RULES - 1;
        let rule = if full { Rule::COMPLEX } else { rule };
        let known = self.numbers.get(&rule).copied();
        known.unwrap_or_else(|| {
            let number = self.rules.len() as u16;
            self.rules.push(rule);
            self.numbers.insert(rule, number);
            number
        })
    }

    /// The table, in as little memory as it takes.
    pub(super) fn finish(mut self) -> Table {
        self.pages.push(self.rows.len() as u32);
        Table {
            pages: self.pages.into(),
            rows: self.rows.into(),
            quick: self.rules.iter().map(Quick::of).collect(),
            rules: self.rules.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::rule::Kind;

    fn rule(offset: i32) -> Rule {
        Rule {
            cfa_offset: offset,
            ..Rule::of(Kind::Register)
        }
    }

    #[test]
    fn each_place_has_the_last_rule_that_began() {
        let mut places: Vec<u64> = vec![3, 4, 1023, 1024, 1025, 5000, 65_535, 65_536, 65_537];
        places.extend((0..2000).map(|i| 70_000 + i * i));
        places.push(5 << 20);
        let mut builder = Builder::default();
        for (i, &place) in places.iter().enumerate() {
            builder.push(place, rule(i as i32 % 300));
        }
        let table = builder.finish();
        assert_eq!(table.rules(), 300);
        assert_eq!(table.rule_at(2), None);
        for (i, &place) in places.iter().enumerate() {
            let at = |place| table.rule_at(place).map(|rule| rule.cfa_offset as usize);
            assert_eq!(at(place), Some(i % 300), "{place}");
            let before = places.partition_point(|&other| other < place);
            assert_eq!(
                at(place - 1),
                before.checked_sub(1).map(|i| i % 300),
                "{place}"
            );
        }
        assert_eq!(table.rule_at(u64::MAX), None);
        assert!(Builder::default().finish().rule_at(0).is_none());
    }

    #[test]
    fn what_is_out_of_order_or_the_same_adds_nothing() {
        let mut builder = Builder::default();
        builder.push(100, rule(1));
        builder.push(200, rule(2));
        builder.push(150, rule(3));
        builder.push(300, rule(2));
        builder.push(400, rule(4));
        builder.push(400, rule(5));
        builder.push(MOST_CODE, rule(6));
        let table = builder.finish();
        assert_eq!(table.rows(), 3);
        let at = |place| table.rule_at(place).unwrap().cfa_offset;
        assert_eq!(
            [at(100), at(199), at(200), at(399), at(400)],
            [1, 1, 2, 2, 5]
        );
    }

    #[test]
    fn more_rules_than_a_row_can_name_are_complex() {
        let mut builder = Builder::default();
        for i in 0..70_000 {
            builder.push(i * 4, rule(i as i32));
        }
        let table = builder.finish();
        assert_eq!(table.rule_at(400).unwrap().cfa_offset, 100);
        assert_eq!(table.rule_at(69_999 * 4), Some(&Rule::COMPLEX));
    }
}
