//! Leaf frames that are no more than the way to what was recorded.

use super::{Location, Profile};

impl Profile {
    /// Takes functions with such names off the leaf's end of each location's lines. For each
    /// location, whether it was all of such: it then has its lines still, and is to be left out
    /// where it is a leaf.
    pub(crate) fn take_off_plumbing(&mut self, is_plumbing: impl Fn(&str) -> bool) -> Vec<bool> {
        let counts: Vec<usize> = (self.locations.iter())
            .map(|location| {
                let names = location.lines.iter();
                let names = names.map(|line| self.string(self.function(line.function).name));
                names.take_while(|name| is_plumbing(name)).count()
            })
            .collect();
        let locations = self.locations.iter_mut().zip(counts);
        let take_off = |(location, count): (&mut Location, usize)| match count {
            0 => false,
            _ if count == location.lines.len() => true,
            _ => {
                location.lines.drain(..count);
                false
            }
        };
        locations.map(take_off).collect()
    }
}
