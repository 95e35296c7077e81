//! Numbers of a file, one after the other, in any size and order of bytes.

/// How a file's numbers are stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Layout {
    /// Bytes of an address: 4 or 8.
    pub(super) address_size: usize,
    pub(super) is_big_endian: bool,
}

impl Layout {
    /// This machine's.
    pub(super) const NATIVE: Self = Self::ALL[0];

    /// All there are, this machine's first.
    pub(super) const ALL: [Self; 4] = {
        let is_big_endian = cfg!(target_endian = "big");
        [
            Self::new(8, is_big_endian),
            Self::new(8, !is_big_endian),
            Self::new(4, is_big_endian),
            Self::new(4, !is_big_endian),
        ]
    };

    const fn new(address_size: usize, is_big_endian: bool) -> Self {
        Self {
            address_size,
            is_big_endian,
        }
    }

    /// The address that these bytes begin with, if there are as many.
    pub(super) fn address(self, bytes: &[u8]) -> Option<u64> {
        let address = match (self.address_size, self.is_big_endian) {
            (4, false) => u32::from_le_bytes(*bytes.first_chunk()?).into(),
            (4, true) => u32::from_be_bytes(*bytes.first_chunk()?).into(),
            (_, false) => u64::from_le_bytes(*bytes.first_chunk()?),
            (_, true) => u64::from_be_bytes(*bytes.first_chunk()?),
        };
        Some(address)
    }

    /// Appends an address; of one that is too large, its lower half.
    pub(super) fn put_address(self, address: u64, bytes: &mut Vec<u8>) {
        match self.address_size {
            4 => self.put_u32(address as u32, bytes),
            _ if self.is_big_endian => bytes.extend_from_slice(&address.to_be_bytes()),
            _ => bytes.extend_from_slice(&address.to_le_bytes()),
        }
    }

    pub(super) fn put_u32(self, number: u32, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&match self.is_big_endian {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        });
    }

    pub(super) fn put_u16(self, number: u16, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&match self.is_big_endian {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        });
    }

    /// The number that these bytes are, 8 at most.
    fn number(self, bytes: &[u8]) -> u64 {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self.is_big_endian {
            true => bytes.iter().fold(0, add),
            false => bytes.iter().rev().fold(0, add),
        }
    }
}

/// A place in a file's bytes. What is asked for and not there is `None`, and the place stays.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'b> {
    bytes: &'b [u8],
    offset: usize,
    layout: Layout,
}

impl<'b> Cursor<'b> {
    pub(super) fn new(bytes: &'b [u8], layout: Layout) -> Self {
        Self {
            bytes,
            offset: 0,
            layout,
        }
    }

    /// How the numbers are stored.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// Bytes from the file's first one.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// The bytes that are left.
    pub(super) fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.offset..).unwrap_or_default()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let bytes = self.rest().get(..count)?;
        self.offset += count;
        Some(bytes)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        Some(*self.bytes(1)?.first()?)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let layout = self.layout;
        Some(layout.number(self.bytes(4)?) as u32)
    }

    /// A number of an address's size.
    pub(super) fn address(&mut self) -> Option<u64> {
        let address = self.layout.address(self.rest())?;
        self.offset += self.layout.address_size;
        Some(address)
    }

    /// So many numbers of two bytes.
    pub(super) fn u16s(&mut self, count: usize) -> Option<impl Iterator<Item = u16> + use<'b>> {
        let layout = self.layout;
        let bytes = self.bytes(count.checked_mul(2)?)?;
        Some(
            bytes
                .chunks_exact(2)
                .map(move |two| layout.number(two) as u16),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_either_size_and_order() {
        let bytes: Vec<u8> = (1..=8).collect();
        let read = |address_size, is_big_endian| {
            let mut cursor = Cursor::new(&bytes, Layout::new(address_size, is_big_endian));
            let numbers = (
                cursor.clone().u32(),
                cursor.clone().u16s(2).map(Vec::from_iter),
            );
            (cursor.address().unwrap(), numbers, cursor.offset())
        };
        let little = (Some(0x0403_0201), Some(vec![0x0201, 0x0403]));
        let big = (Some(0x0102_0304), Some(vec![0x0102, 0x0304]));
        assert_eq!(read(8, false), (0x0807_0605_0403_0201, little.clone(), 8));
        assert_eq!(read(4, false), (0x0403_0201, little, 4));
        assert_eq!(read(8, true), (0x0102_0304_0506_0708, big.clone(), 8));
        assert_eq!(read(4, true), (0x0102_0304, big, 4));
    }

    #[test]
    fn what_is_not_there_leaves_the_place() {
        let mut cursor = Cursor::new(&[1, 2, 3], Layout::ALL[0]);
        assert_eq!(cursor.u32(), None);
        assert!(cursor.u16s(usize::MAX).is_none());
        assert_eq!((cursor.u8(), cursor.rest()), (Some(1), &[2, 3][..]));
    }
}
