//! Which mapping an address of a legacy file lies in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::profile::Mapping;

/// Where a linker used to put programs.
const CLASSIC_START: u64 = 0x40_0000;

/// For each address, the position of the first mapping that holds it.
pub(super) fn first_holding(mappings: &[Mapping], addresses: &[u64]) -> Vec<Option<u32>> {
    let ranges: Vec<_> = mappings
        .iter()
        .map(|m| (m.memory_start, m.memory_limit))
        .collect();
    sweep(&ranges, addresses)
}

/// What google/pprof makes of other profilers' files (`massageMappings` and `remapMappingIDs` in
/// `profile/legacy_profile.go`): it unites neighbouring parts of one file, puts what looks like the
/// main binary first, mends starts and offsets, and invents a mapping for addresses that lie in
/// none. An address of 0 is left alone.
pub(super) fn as_pprof_guesses(mappings: &mut Vec<Mapping>, addresses: &[u64]) -> Vec<Option<u32>> {
    unite_neighbours(mappings);
    let is_main = |m: &Mapping| {
        let file = m.filename.trim();
        !file.is_empty() && !is_library(file) && !file.starts_with('[')
    };
    if let Some(main) = mappings.iter().position(is_main) {
        mappings.swap(0, main);
    }
    if let [first, second, ..] = mappings.as_slice()
        && first.filename.starts_with("/anon_hugepage")
        && first.memory_limit == second.memory_start
    {
        mappings.remove(0);
    }
    if let Some(main) = mappings.first_mut()
        && main.memory_start.wrapping_sub(main.file_offset) == CLASSIC_START
    {
        main.memory_start = CLASSIC_START;
        main.file_offset = 0;
    }

    let mut found = first_holding(mappings, addresses);
    // Profilers that left out the first part of a split mapping.
    let before: Vec<_> = mappings
        .iter()
        .map(|m| match m.memory_start.checked_sub(m.file_offset) {
            Some(start) => (start, m.memory_start),
            None => (0, 0),
        })
        .collect();
    let found_before = sweep(&before, addresses);
    let mut invented = None;
    for (i, &address) in addresses.iter().enumerate() {
        if address == 0 {
            found[i] = None;
        } else if found[i].is_none() {
            found[i] = found_before[i].or_else(|| {
                Some(*invented.get_or_insert_with(|| {
                    mappings.push(Mapping {
                        memory_limit: u64::MAX,
                        ..Mapping::default()
                    });
                    mappings.len() as u32 - 1
                }))
            });
            if let Some(mended) = found_before[i] {
                let m = &mut mappings[mended as usize];
                m.memory_start -= m.file_offset;
                m.file_offset = 0;
            }
        }
    }
    found
}

fn unite_neighbours(mappings: &mut Vec<Mapping>) {
    let mut united: Vec<Mapping> = Vec::with_capacity(mappings.len());
    for m in mappings.drain(..) {
        match united.last_mut() {
            Some(last) if are_parts_of_one(last, &m) => {
                last.memory_limit = m.memory_limit;
                if !m.filename.is_empty() {
                    last.filename = m.filename;
                }
                if !m.build_id.is_empty() {
                    last.build_id = m.build_id;
                }
            }
            _ => united.push(m),
        }
    }
    *mappings = united;
}

fn are_parts_of_one(a: &Mapping, b: &Mapping) -> bool {
    let agree = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
    let size = a.memory_limit.wrapping_sub(a.memory_start);
    agree(&a.filename, &b.filename)
        && agree(&a.build_id, &b.build_id)
        && a.memory_limit == b.memory_start
        && (a.file_offset == 0
            || b.file_offset == 0
            || a.file_offset.wrapping_add(size) == b.file_offset)
}

/// google/pprof's `([.]so$|[.]so[._][0-9]+)`.
fn is_library(file: &str) -> bool {
    file.ends_with(".so")
        || file.match_indices(".so").any(|(i, so)| {
            let mut rest = file[i + so.len()..].chars();
            matches!(rest.next(), Some('.' | '_'))
                && rest.next().is_some_and(|c| c.is_ascii_digit())
        })
}

/// For each address, the position of the first range that holds it, in O(n log n): files may come
/// from anywhere, and their ranges overlap as they like.
fn sweep(ranges: &[(u64, u64)], addresses: &[u64]) -> Vec<Option<u32>> {
    let mut by_start: Vec<u32> = (0..ranges.len() as u32).collect();
    by_start.sort_unstable_by_key(|&i| ranges[i as usize].0);
    let mut by_address: Vec<usize> = (0..addresses.len()).collect();
    by_address.sort_unstable_by_key(|&i| addresses[i]);

    let mut found = vec![None; addresses.len()];
    let mut begun: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
    let mut next = by_start.into_iter().peekable();
    for i in by_address {
        let address = addresses[i];
        while let Some(range) = next.next_if(|&r| ranges[r as usize].0 <= address) {
            begun.push(Reverse(range));
        }
        // What has ended before this address has ended before all later ones.
        while let Some(&Reverse(range)) = begun.peek() {
            if address < ranges[range as usize].1 {
                found[i] = Some(range);
                break;
            }
            begun.pop();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_sweep_finds_what_a_scan_finds(
            ranges in prop::collection::vec((0u64..40, 0u64..40), 0..12),
            addresses in prop::collection::vec(0u64..40, 0..40),
        ) {
            let scan = |a: u64| ranges.iter().position(|r| r.0 <= a && a < r.1);
            let expected: Vec<_> = addresses.iter().map(|&a| scan(a).map(|i| i as u32)).collect();
            prop_assert_eq!(sweep(&ranges, &addresses), expected);
        }
    }

    #[test]
    fn libraries_are_known_by_their_names() {
        for name in ["/lib/libc.so", "/lib/libc.so.6", "libx.so_1"] {
            assert!(is_library(name), "{name}");
        }
        for name in ["/bin/server", "/opt/x.sold/server", "/bin/x.so.d"] {
            assert!(!is_library(name), "{name}");
        }
    }
}
