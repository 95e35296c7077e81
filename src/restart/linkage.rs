//! Which function a call leads to.
#![forbid(unsafe_code)]

/// Copies memory of this process from an address.
type Read<'r> = &'r dyn Fn(u64, &mut [u8]) -> Option<()>;

/// The place of the call that returns to `return_address`, if that leads to `function`: itself, by
/// a word that holds the address, or by the linkage table's entry for such a word.
/// *Async-signal-safe* if `read` is.
pub(super) fn call_of(function: u64, return_address: u64, read: Read<'_>) -> Option<u64> {
    let mut code = [0; 6];
    read(return_address.wrapping_sub(6), &mut code)?;
    let (length, target) = match code {
        // Linkers put 67 before a call for which they need no word any more.
        [0x67, 0xe8, a, b, c, d] => (6, relative(return_address, [a, b, c, d])),
        [0xff, 0x15, a, b, c, d] => (6, word(relative(return_address, [a, b, c, d]), read)?),
        [_, 0xe8, a, b, c, d] => (5, relative(return_address, [a, b, c, d])),
        _ => return None,
    };
    let leads_there = target == function || entry_target(target, read) == Some(function);
    leads_there.then(|| return_address.wrapping_sub(length))
}

/// Where an entry of a linkage table leads, once it has been resolved. It is a jump, with the marks
/// before it that processors with shadow stacks ask for.
fn entry_target(entry: u64, read: Read<'_>) -> Option<u64> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const BND: u8 = 0xf2;
    let mut code = [0; 11];
    read(entry, &mut code)?;
    let jump = code.strip_prefix(&ENDBR64).unwrap_or(&code);
    let jump = jump.strip_prefix(&[BND]).unwrap_or(jump);
    let distance = *jump.strip_prefix(&[0xff, 0x25])?.first_chunk::<4>()?;
    let behind = code.len() - jump.len() + 6;
    word(relative(entry.wrapping_add(behind as u64), distance), read)
}

fn relative(place: u64, distance: [u8; 4]) -> u64 {
    place.wrapping_add_signed(i32::from_le_bytes(distance).into())
}

fn word(address: u64, read: Read<'_>) -> Option<u64> {
    let mut word = [0; 8];
    read(address, &mut word)?;
    Some(u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTION: u64 = 0x2000;

    /// Memory from address 0x1000 on: `code` at 0x1100, a word with the function's address at
    /// 0x1200, one with another at 0x1208.
    fn call_in(code: &[u8], at: usize) -> Option<u64> {
        let mut memory = [0_u8; 0x300];
        memory[0x100..][..code.len()].copy_from_slice(code);
        memory[0x200..][..8].copy_from_slice(&FUNCTION.to_le_bytes());
        memory[0x208..][..8].copy_from_slice(&(FUNCTION + 1).to_le_bytes());
        let read = |address: u64, into: &mut [u8]| {
            let at = usize::try_from(address.checked_sub(0x1000)?).ok()?;
            into.copy_from_slice(memory.get(at..at + into.len())?);
            Some(())
        };
        call_of(FUNCTION, 0x1100 + at as u64, &read)
    }

    #[test]
    fn a_call_is_found_where_it_leads_to_the_function() {
        // Directly, from 0x1105 and from 0x1106; by the word at 0x1200.
        assert_eq!(call_in(&[0xe8, 0xfb, 0x0e, 0, 0], 5), Some(0x1100));
        assert_eq!(call_in(&[0x67, 0xe8, 0xfa, 0x0e, 0, 0], 6), Some(0x1100));
        assert_eq!(call_in(&[0xff, 0x15, 0xfa, 0, 0, 0], 6), Some(0x1100));
        // By an entry at 0x1105, of the word at 0x1200: plain, and marked.
        let plain = [0xe8, 0, 0, 0, 0, 0xff, 0x25, 0xf5, 0, 0, 0];
        assert_eq!(call_in(&plain, 5), Some(0x1100));
        let marks = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2];
        let jump = [0xff, 0x25, 0xf0, 0, 0, 0];
        let marked = [&[0xe8, 0, 0, 0, 0], &marks[..], &jump[..]].concat();
        assert_eq!(call_in(&marked, 5), Some(0x1100));
    }

    #[test]
    fn a_call_of_another_function_is_none() {
        assert_eq!(call_in(&[0xe8, 0xfc, 0x0e, 0, 0], 5), None);
        assert_eq!(call_in(&[0xff, 0x15, 0x02, 1, 0, 0], 6), None);
        assert_eq!(call_in(&[0xff, 0xd0], 2), None);
        let other = [0xe8, 0, 0, 0, 0, 0xff, 0x25, 0xfd, 0, 0, 0];
        assert_eq!(call_in(&other, 5), None);
    }
}
