//! `.eh_frame_hdr`: where `.eh_frame` is, and a table to search it by (Linux Standard Base
//! Core, 10.6.2).
#![forbid(unsafe_code)]

/// The link-time address of `.eh_frame` that an `.eh_frame_hdr` at `address` names.
pub(super) fn eh_frame_address(address: u64, hdr: &[u8]) -> Option<u64> {
    const VERSION: u8 = 1;
    let [VERSION, encoding, _, _, pointer @ ..] = hdr else {
        return None;
    };
    let value = match encoding & 0x0f {
        0x03 => u64::from(u32::from_ne_bytes(*pointer.first_chunk()?)),
        0x0b => i64::from(i32::from_ne_bytes(*pointer.first_chunk()?)) as u64,
        0x00 | 0x04 | 0x0c => u64::from_ne_bytes(*pointer.first_chunk()?),
        _ => return None,
    };
    match encoding & 0x70 {
        0x00 => Some(value),
        // Relative to the pointer's own place.
        0x10 => Some(value.wrapping_add(address + 4)),
        // Relative to the section's beginning.
        0x30 => Some(value.wrapping_add(address)),
        _ => None,
    }
}

/// Whether a header has its search table, in the one form that linkers give it, and all entries of
/// that lead into `.eh_frame`; both sections with their link-time addresses. Handlers search the
/// table by code that takes it at its word.
pub(crate) fn is_searchable((address, hdr): (u64, &[u8]), (eh_frame, bytes): (u64, &[u8])) -> bool {
    // Numbers of 4 bytes; those in the table count from the section's beginning.
    let [
        1,
        0x1b | 0x3b,
        0x03,
        0x3b,
        _,
        _,
        _,
        _,
        a,
        b,
        c,
        d,
        table @ ..,
    ] = hdr
    else {
        return false;
    };
    let count = u32::from_ne_bytes([*a, *b, *c, *d]) as usize;
    let (entries, _) = table.as_chunks::<8>();
    let leads_into_eh_frame = |&[_, _, _, _, a, b, c, d]: &[u8; 8]| {
        let offset = i32::from_ne_bytes([a, b, c, d]);
        let place = address.wrapping_add_signed(offset.into());
        place.wrapping_sub(eh_frame) < bytes.len() as u64
    };
    eh_frame_address(address, hdr) == Some(eh_frame)
        && entries
            .get(..count)
            .is_some_and(|entries| entries.iter().all(leads_into_eh_frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_headers_are_refused() {
        assert_eq!(eh_frame_address(0, &[2, 0x1b, 3, 0x3b]), None);
        assert_eq!(eh_frame_address(0, &[1, 0x1b, 3, 0x3b, 1, 0]), None);
    }

    #[test]
    fn entries_lead_into_the_section() {
        let searchable = |count: u8, entry: u8, table_encoding: u8| {
            let pointer = [1, 0x1b, 3, table_encoding, 0xfc, 0, 0, 0, count, 0, 0, 0];
            let hdr = [&pointer[..], &[0, 0, 0, 0, entry, 0, 0, 0]].concat();
            is_searchable((0x1000, &hdr), (0x1100, &[0; 16]))
        };
        // The section begins at 0x100 from the header, which a byte does not reach.
        assert!(searchable(0, 0, 0x3b));
        assert!(!searchable(1, 0xff, 0x3b));
        assert!(!searchable(2, 0, 0x3b) && !searchable(0, 0, 0xff));
        let hdr = [
            1, 0x1b, 3, 0x3b, 0xfc, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x0f, 1, 0, 0,
        ];
        assert!(is_searchable((0x1000, &hdr), (0x1100, &[0; 16])));
        assert!(!is_searchable((0x1000, &hdr), (0x1100, &[0; 15])));
        assert!(!is_searchable((0x1000, &hdr), (0x1101, &[0; 16])));
    }
}
