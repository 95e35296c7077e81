//! What may be done with the pages of this process.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::maps::Maps;

/// The protections of all mappings, to be asked often.
#[derive(Debug)]
pub(super) struct Protections(Vec<(Range<u64>, libc::c_int)>);

impl Protections {
    pub(super) fn new(maps: &Maps) -> Self {
        let protection = |permissions: &str| {
            let bits = [libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC];
            let given = permissions.bytes().zip(bits).filter(|(p, _)| *p != b'-');
            given.fold(libc::PROT_NONE, |all, (_, bit)| all | bit)
        };
        let entries = maps.entries();
        Self(
            entries
                .map(|e| (e.start..e.end, protection(e.permissions)))
                .collect(),
        )
    }

    /// What `mprotect` would be told of this address; `None` where nothing is mapped.
    pub(super) fn of(&self, address: u64) -> Option<libc::c_int> {
        self.from(address)
            .next()
            .filter(|(range, _)| range.contains(&address))
            .map(|(_, protection)| *protection)
    }

    /// Whether all of a range is mapped, and none of it can be written.
    pub(super) fn are_sealed(&self, pages: &Range<u64>) -> bool {
        let mut next = pages.start;
        for (range, protection) in self.from(pages.start) {
            if next >= pages.end || !range.contains(&next) || protection & libc::PROT_WRITE != 0 {
                break;
            }
            next = range.end;
        }
        next >= pages.end
    }

    /// The mappings that end above an address.
    fn from(&self, address: u64) -> impl Iterator<Item = &(Range<u64>, libc::c_int)> {
        let first = self.0.partition_point(|(range, _)| range.end <= address);
        self.0.iter().skip(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RO: libc::c_int = libc::PROT_READ;
    const RW: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

    #[test]
    fn ranges_are_sealed_only_as_a_whole() {
        let all = Protections(vec![(10..20, RO), (20..30, RO), (30..40, RW), (50..60, RO)]);
        assert!(all.are_sealed(&(10..30)) && all.are_sealed(&(15..25)));
        assert!(!all.are_sealed(&(15..31)), "its end can be written");
        assert!(!all.are_sealed(&(50..61)), "its end is not there");
        assert!(!all.are_sealed(&(5..15)), "its beginning is not there");
        assert!(!all.are_sealed(&(70..80)));
        assert_eq!(all.of(9), None);
        assert_eq!(
            (all.of(29), all.of(30), all.of(40)),
            (Some(RO), Some(RW), None)
        );
    }

    #[test]
    fn reads_them_from_the_maps() {
        let all = Protections::new(&Maps::read().unwrap());
        let local = 0_u8;
        assert_eq!(all.of(&raw const local as u64), Some(RW));
        let code = Protections::new as *const () as u64;
        assert_eq!(all.of(code), Some(libc::PROT_READ | libc::PROT_EXEC));
    }
}
