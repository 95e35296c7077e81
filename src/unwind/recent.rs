//! Rules that were used a moment ago, by place: samples of one program go through the same few
//! frames again and again.
#![forbid(unsafe_code)]

use super::quick::Quick;

/// Places that are remembered.
const ENTRIES: usize = 512;

/// The last rules of places, found by their addresses, or by the place that was gone to from
/// another one the last time.
#[derive(Debug)]
pub(super) struct Recent {
    /// What the rules are of.
    version: (u32, u32),
    entries: Box<[Entry; ENTRIES]>,
}

/// The rule for a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Found {
    pub(super) at: At,
    pub(super) quick: Quick,
}

/// Where a rule is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum At {
    /// There is none.
    Nowhere,
    /// The frame has no caller.
    Root,
    /// The code that handlers return to.
    Signal,
    /// In a table that is not there yet.
    NoTable,
    /// In the table of a module, both by their numbers.
    Table { module: u32, rule: u16 },
}

impl Found {
    /// A rule that is not for a run.
    pub(super) fn only(at: At) -> Self {
        Self {
            at,
            quick: Quick::NONE,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// No place at all in an entry that is empty.
    place: u64,
    found: Found,
    /// The entry of the caller's place, the last time. While that is right, the rule of a frame is
    /// at hand before its return address is, so that the processor need not wait for one to find
    /// the other.
    caller: Known,
}

/// Half a cache line.
const _: () = assert!(size_of::<Entry>() == 32);

const EMPTY: Entry = Entry {
    place: u64::MAX,
    found: Found {
        at: At::Nowhere,
        quick: Quick::NONE,
    },
    caller: Known(0),
};

/// A place that is remembered, by the number of its entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known(u16);

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            version: (0, 0),
            entries: Box::new([EMPTY; ENTRIES]),
        }
    }

    /// Forgets rules of another version. *Async-signal-safe.*
    pub(super) fn begin(&mut self, version: (u32, u32)) {
        if self.version != version {
            self.entries.fill(EMPTY);
            self.version = version;
        }
    }

    /// A place, which `find` finds the rule of where it is not remembered. *Async-signal-safe* if
    /// `find` is.
    #[inline]
    pub(super) fn know(
        &mut self,
        place: u64,
        find: impl FnOnce(u64) -> Option<Found>,
    ) -> Option<Known> {
        let [first, second] = both(place);
        if self.entry(first).place == place {
            return Some(first);
        }
        if self.entry(second).place == place {
            return Some(second);
        }
        // Of the two that were there, the one that was remembered later stays.
        let found = find(place)?;
        *self.entry_mut(second) = *self.entry(first);
        *self.entry_mut(first) = Entry {
            place,
            found,
            caller: Known(0),
        };
        Some(first)
    }

    /// The same for a place that the code at another one was called from. *Async-signal-safe* if
    /// `find` is.
    #[inline(always)] // A frame takes some ns less this way.
    pub(super) fn know_caller(
        &mut self,
        callee: Known,
        place: u64,
        find: impl FnOnce(u64) -> Option<Found>,
    ) -> Option<Known> {
        let caller = self.entry(callee).caller;
        if self.entry(caller).place == place {
            return Some(caller);
        }
        let caller = self.know(place, find)?;
        self.entry_mut(callee).caller = caller;
        Some(caller)
    }

    /// The rule of a place that is remembered. *Async-signal-safe.*
    #[inline(always)]
    pub(super) fn found(&self, known: Known) -> Found {
        self.entry(known).found
    }

    #[inline(always)]
    fn entry(&self, known: Known) -> &Entry {
        &self.entries[usize::from(known.0) % ENTRIES]
    }

    #[inline(always)]
    fn entry_mut(&mut self, known: Known) -> &mut Entry {
        &mut self.entries[usize::from(known.0) % ENTRIES]
    }
}

/// The two entries that a place can be in.
#[inline(always)]
fn both(place: u64) -> [Known; 2] {
    // Fibonacci hashing: the upper bits of the product depend on all of the place.
    let first = (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16 & !1;
    [Known(first), Known(first | 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(number: u64) -> Option<Found> {
        let at = At::Table {
            module: 1,
            rule: number as u16,
        };
        let quick = Quick::NONE;
        Some(Found { at, quick })
    }

    fn not_found(_: u64) -> Option<Found> {
        None
    }

    #[test]
    fn rules_are_remembered_within_their_version() {
        let mut recent = Recent::new();
        recent.begin((1, 0));
        assert!(recent.know(0x1234, not_found).is_none());
        assert!(recent.know(0x1234, rule).is_some());
        assert!(recent.know(0x1235, not_found).is_none());
        recent.begin((1, 0));
        let known = recent.know(0x1234, not_found).unwrap();
        assert_eq!(Some(recent.found(known)), rule(0x1234));
        recent.begin((1, 1));
        assert!(recent.know(0x1234, not_found).is_none());
    }

    #[test]
    fn callers_are_found_whichever_was_gone_to_before() {
        let mut recent = Recent::new();
        for callee in 0..200 {
            for caller in 0..200 {
                let known = recent.know(callee, rule).unwrap();
                // Found, by its place, and as the last one.
                for _ in 0..3 {
                    let known = recent.know_caller(known, caller, rule).unwrap();
                    assert_eq!(Some(recent.found(known)), rule(caller));
                }
                assert!(recent.know_caller(known, 1 << 40, not_found).is_none());
            }
        }
    }

    #[test]
    fn two_places_that_share_entries_are_both_remembered() {
        let mut recent = Recent::new();
        let entry = |place: u64| both(place)[0].0 as usize % ENTRIES;
        let mut same = (0..).filter(|&place| entry(place) == 6);
        let places: [u64; 2] = std::array::from_fn(|_| same.next().unwrap());
        for place in places {
            recent.know(place, rule).unwrap();
        }
        for place in places.into_iter().chain(places) {
            let known = recent.know(place, not_found).unwrap();
            assert_eq!(Some(recent.found(known)), rule(place));
        }
    }

    #[test]
    fn as_many_as_usual_stacks_have_are_remembered_at_once() {
        let mut recent = Recent::new();
        let places = || (0..64).map(|i| 0x5555_5555_0000 + i * 0x53);
        places().for_each(|place| assert!(recent.know(place, rule).is_some()));
        let left = places().filter(|&place| recent.know(place, not_found).is_some());
        assert!(left.count() >= 62);
    }
}
