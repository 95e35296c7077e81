//! The addresses that are looked up.

use std::ops::Range;

/// Link-time addresses in one object, in ascending order, each with the index of the location that
/// it came from.
#[derive(Debug)]
pub(super) struct Wanted(Vec<(u64, usize)>);

impl Wanted {
    /// The addresses of these locations; those that have none are not looked for.
    pub(super) fn new(addresses: impl IntoIterator<Item = Option<u64>>) -> Self {
        let addresses = addresses.into_iter().enumerate();
        let mut addresses: Vec<_> = addresses
            .filter_map(|(index, address)| Some((address?, index)))
            .collect();
        addresses.sort_unstable();
        Self(addresses)
    }

    /// Those of the locations whose index is one of these.
    pub(super) fn only(&self, is_one: impl Fn(usize) -> bool) -> Self {
        let addresses = self.0.iter().copied();
        Self(addresses.filter(|&(_, index)| is_one(index)).collect())
    }

    pub(super) fn addresses(&self) -> &[(u64, usize)] {
        &self.0
    }

    /// The places, among all, of those between these, the end excluded.
    pub(super) fn places_in(&self, begin: u64, end: u64) -> Range<usize> {
        let place = |bound| self.0.partition_point(|&(address, _)| address < bound);
        let first = place(begin);
        match self.0.get(first) {
            Some(&(address, _)) if address < end => first..place(end),
            _ => first..first,
        }
    }

    /// Whether one of them lies between these, the end excluded.
    pub(super) fn is_any_in(&self, begin: u64, end: u64) -> bool {
        let first = self.0.partition_point(|&(address, _)| address < begin);
        self.0.get(first).is_some_and(|&(address, _)| address < end)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
